"""The shape of a JSON file, written as a dataclass, and checked once when the file is read."""

import dataclasses
import reprlib
import sys
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_LARGEST_COUNT = 2**62

Shape = TypeVar("Shape")


def parse(shape: type[Shape], value: Any) -> Shape:
    """A JSON value as a dataclass; ValueError names the part that is missing or wrong.

    A field with a default may be missing. Other keys are ignored: a later version may write more.
    """
    if not isinstance(value, dict):
        raise ValueError(f"it is {reprlib.repr(value)}; expected an object")
    kinds = get_type_hints(shape)
    values = {}
    for field in dataclasses.fields(shape):  # type: ignore[arg-type]
        if field.name in value:
            values[field.name] = _read(field.name, kinds[field.name], value[field.name])
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"it has no {field.name}")
    return shape(**values)


def finite(value: Any, largest: float = sys.float_info.max) -> float:
    """A finite number of at most this size; ValueError if the value is none."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not -largest <= value <= largest:  # nan is neither
        raise ValueError(f"{reprlib.repr(value)} is not a finite number")
    return float(value)


def whole(value: Any) -> int:
    """A whole number of up to 2**62; ValueError if the value is none. JSON may write 1 as 1.0."""
    if not finite(value, _LARGEST_COUNT).is_integer():
        raise ValueError(f"{reprlib.repr(value)} is not a whole number")
    return int(value)


def _read(name: str, kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        try:
            return parse(kind, value)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"in its {name}, {error}") from error
    options = get_args(kind)
    if get_origin(kind) is UnionType:  # something, or None
        return None if value is None else _read(name, options[0], value)
    if get_origin(kind) is list and isinstance(value, list):
        return [_read(name, options[0], each) for each in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return {key: _read(f"{name}.{key}", options[1], each) for key, each in value.items()}
    try:
        if kind is float:
            return finite(value)
        if kind is int:
            return whole(value)
    except ValueError:
        pass
    if isinstance(kind, type) and kind in (str, bool) and isinstance(value, kind):
        return value
    words = {float: "a finite number", int: "a whole number", str: "a text", bool: "true or false"}
    words |= {list: "a list", dict: "an object"}
    expected = words[get_origin(kind) or kind]
    raise ValueError(f"its {name} is {reprlib.repr(value)}; expected {expected}")
