"""Knobs: fields of a dataclass with a scope, a range and a line of help, and how they are typed."""

import dataclasses
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from t3d.base import arguments
from t3d.base.arguments import Arguments
from t3d.base.errors import BadInput
from t3d.base.text import did_you_mean

_LONGEST = 1000  # characters of a text, numbers of a list


@dataclass(frozen=True)
class Span:
    """The range that `t3d tune` searches: from low to high, on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = False


def knob(
    scope: str,
    default: Any,
    help: str,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    search: Span | tuple[Any, ...] | None = None,
) -> Any:
    """A field with its range: `minimum <= value <= maximum` and `value > above`.

    `scope` says what the knob changes. `search` is what `t3d tune` tries: a span, or some
    choices.
    """
    bounds = {"minimum": minimum, "above": above, "maximum": maximum}
    about = {"scope": scope, "help": help, "search": search}
    return dataclasses.field(default=default, metadata=about | bounds)


def range_in_words(field: "dataclasses.Field[Any]") -> str:
    """The range of a knob in words; empty if any value of its type is allowed."""
    names = {"above": "above", "minimum": "at least", "maximum": "at most"}
    bounds = {word: field.metadata[name] for name, word in names.items()}
    return " and ".join(f"{w} {b:,.15g}" for w, b in bounds.items() if math.isfinite(b))


def checked(field: "dataclasses.Field[Any]", kind: Any, value: Any) -> Any:
    """The value converted to the knob's type; an error if it cannot be, or is out of range."""
    name = field.name
    if get_origin(kind) is UnionType:  # a knob that may be None
        if value is None:
            return None
        kind = get_args(kind)[0]
    if get_origin(kind) is Mapping:
        return arguments.checked(name, value)
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    if get_origin(kind) is Literal:
        return _choice(name, kind, value)
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        if get_origin(kind) is Literal:  # any number of choices, each of them once
            several = value if isinstance(value, (tuple, list)) else (value,)
            parts = [each.split(",") if isinstance(each, str) else [each] for each in several]
            return tuple(dict.fromkeys(_choice(name, kind, item) for item in chain(*parts)))
        if kind is str:
            return _texts(name, value)
        value = (value,) if isinstance(value, (int, float)) else value  # one number is enough
        fewest = 0 if field.default == () else 1
        if not isinstance(value, (tuple, list)) or not fewest <= len(value) <= _LONGEST:
            noun = "whole numbers" if kind is int else "numbers"
            raise BadInput(f"{name} is {value!r}; expected one or more {noun}, up to {_LONGEST:,}")
        return tuple(_number(field, kind, item) for item in value)
    if kind in (str, bool):
        if not (isinstance(value, bool) if kind is bool else _is_text(value)):
            noun = "true or false" if kind is bool else "text of one line"
            raise BadInput(f"{name} is {value!r}; expected {noun}")
        return value
    return _number(field, kind, value)


def _choice(name: str, kind: Any, value: Any) -> Any:
    choices = get_args(kind)
    if value not in choices:
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise BadInput(f"{name} is {value!r}; expected one of: {', '.join(choices)}{hint}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Any number of words, also none."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (tuple, list)) or not all(map(_is_text, texts)):
        raise BadInput(f"{name} is {value!r}; expected words, each a text of one line")
    return tuple(texts)


def _number(field: "dataclasses.Field[Any]", kind: Any, value: Any) -> Any:
    noun = "a whole number" if kind is int else "a number"
    limits = range_in_words(field)
    message = f"{field.name} is {value!r}; expected {noun}{' ' if limits else ''}{limits}"
    bounds = field.metadata
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(message)
    if not (bounds["minimum"] <= value <= bounds["maximum"] and value > bounds["above"]):
        raise BadInput(message)
    if math.isinf(value) or (kind is int and value != int(value)):
        raise BadInput(message)
    return kind(value)


def flag(name: str, value: Any) -> str:
    """A knob and its value as they are typed."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, Arguments):
        value = tuple(arguments.words(value))
    if isinstance(value, tuple):
        return " ".join([f"--{name}", *(shlex.quote(str(item)) for item in value)])
    return f"--{name} {shlex.quote(str(value))}"


def typed_value(kind: Any, text: str) -> Any:
    """A typed word as a value of a knob's type, or else the word itself, which `checked` refuses.

    Whole numbers may be typed as 1e6.
    """
    if get_origin(kind) is UnionType:
        if text == "None":
            return None
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    for convert in {int: (int, float), float: (float,)}.get(kind, ()):
        try:
            return convert(text)
        except ValueError:
            pass
    return text
