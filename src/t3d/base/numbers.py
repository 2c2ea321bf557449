"""Numbers from outside: converted to float32, and checked to be finite."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def as_floats(values: ArrayLike) -> NDArray[np.float32]:
    """The values as float32. Those that are too large become infinite, for the caller to refuse."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no number is nan or infinite."""
    # Fast path: if the sum of squares is finite, all are. It may overflow: then look at each.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
