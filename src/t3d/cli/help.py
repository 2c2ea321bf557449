"""Pages of help: a column of options, a column of what they do."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t3d.cli.options import Argument, Option

_COLUMN = 29  # where the explanations begin


def page(
    usage: str,
    about: str,
    argument: "Argument | None",
    groups: Mapping[str, Sequence["Option"]],
) -> str:
    """The help of a command: how it is typed, what it does, and its options by heading.

    The default of an option stands in brackets.
    """
    lines = [f"usage: {usage}{' [options]' if groups else ''}", "", *_wrapped(about)]
    if argument:
        lines += ["", *row(argument.metavar, argument.help)]
    for heading, options in groups.items():
        lines += ["", f"{heading}:"]
        for option in options:
            lines += row(option.spelling, option.help + _default(option.default))
    return "\n".join(lines)


def names(groups: Mapping[str, Sequence["Option"]]) -> list[str]:
    """Only the names of options, by heading."""
    lines = []
    for heading, options in groups.items():
        lines += row(heading, " ".join(option.flag for option in options), column=14)
    return lines


def row(left: str, right: str, column: int = _COLUMN) -> list[str]:
    """A line of two columns; the right one is wrapped."""
    words = textwrap.wrap(right, width() - column, break_on_hyphens=False)
    if len(left) + 4 > column:  # too long for its column
        words = ["", *words]
    lefts = [f"  {left}"] + [""] * (len(words) - 1)
    return [f"{one:<{column}}{other}".rstrip() for one, other in zip(lefts, words)]


def _default(value: Any) -> str:
    """A default as the end of an explanation, as it would be typed; an off switch has none."""
    if value is None or value is False or value in ((), {}):
        return ""
    if value is True:
        return " [on]"
    return f" [{' '.join(map(str, value)) if isinstance(value, tuple) else value}]"


def width() -> int:
    """Columns of the terminal, up to 100: longer lines are hard to read."""
    return max(60, min(shutil.get_terminal_size().columns, 100))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width(), break_on_hyphens=False)
