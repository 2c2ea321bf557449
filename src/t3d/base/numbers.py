"""Numbers that come from outside: as the type we compute with, and whether they can be used."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def as_floats(given: ArrayLike) -> NDArray[np.float32]:
    """The same as float32. What is too large becomes infinite, and is to be refused as that."""
    if isinstance(given, np.ndarray) and given.dtype == np.float32:
        return given
    with np.errstate(over="ignore"):
        return np.asarray(given, np.float32)


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no number is nan or infinite."""
    # A sum of squares that is finite has finite parts; another may have too, if they are large.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
