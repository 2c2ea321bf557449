"""Numbers from outside: converted to float32, and checked to be finite."""

import math
import numbers
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from t3d.base.errors import BadInput
from t3d.base.output import no_warnings
from t3d.base.text import shown

Array = NDArray[Any]


def as_floats(values: ArrayLike) -> NDArray[np.float32]:
    """The values as float32. Those that are too large become infinite, for the caller to refuse."""
    if type(values) is np.ndarray and values.dtype == np.float32 and values.flags.writeable:
        return values  # PyTorch warns of an array that cannot be written
    if type(values) is not np.ndarray or values.dtype.kind not in "fiub":
        values = plain_array(values)
    with np.errstate(all="ignore"):
        return values.astype(np.float32)


def plain_array(values: Any) -> Array:
    """The values as an array of real numbers; a TypeError says why they are none.

    NumPy alone would take much more: text of digits, a complex number without its imaginary
    part, None as nan, what a mask hides.
    """
    if isinstance(values, (float, int, np.ndarray)):
        array = np.asarray(values)
    else:  # foreign objects warn while they become an array
        with no_warnings():
            array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise TypeError("some of it is masked")
    if array.dtype.kind == "O":  # integers of any size, fractions: exact numbers of Python
        if not all(isinstance(item, (numbers.Real, Decimal)) for item in array.flat):
            raise TypeError("expected numbers")
        array = np.array([_float(item) for item in array.flat]).reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"NumPy makes {array.dtype} of it")
    return array


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # larger than any float
        return math.inf if number > 0 else -math.inf


def as_number(value: Any) -> float:
    """The value as a float: a number, or an array of one."""
    if isinstance(value, (float, int)):
        return _float(value)
    return float(plain_array(value).item())


def as_whole(name: str, value: Any, minimum: int) -> int:
    """The value as a whole number; 1e6 is fine, too. An error names it."""
    try:
        number = as_number(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number >= minimum and number.is_integer()):
        raise BadInput(f"{name} is {shown(value)}; expected a whole number at least {minimum}")
    return int(number)


def as_truth(value: Any) -> bool:
    """The value as a truth value: True or False, 1 or 0, or an array of one of them."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    number = as_number(value)
    if number not in (0, 1):
        raise ValueError("expected True or False")
    return number == 1


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no number is nan or infinite."""
    # Fast path: if the sum of squares is finite, all are. It may overflow: then look at each.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
