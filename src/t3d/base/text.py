"""Small helpers for text that people read."""

import os
import shlex
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

MAXIMUM = 4000  # characters of a line on a terminal
_LONGEST = 300  # characters of a foreign text that a message quotes


def clean(text: object, maximum: int = MAXIMUM) -> str:
    r"""Text from a file or an environment, made safe to print: one line of bounded length.

    What could move the cursor, hide text or change its direction (control characters, escapes,
    line breaks, bidirectional overrides) is shown as in Python, such as \x1b.
    """
    line = str(text)
    if len(line) > maximum:
        line = f"{line[:maximum]} ... ({len(line):,} characters)"
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'tau'?` if one of `names` is close, else nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def percent(share: float) -> str:
    """A share as 62 %."""
    return f"{100 * share:.3g} %"


def typed_path(path: str | os.PathLike[str]) -> str:
    """A path as it is typed in a shell; one that looks like an option gets ./ in front."""
    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def one_line(error: BaseException) -> str:
    """An exception's message without line breaks."""
    try:
        text = str(error)
    except BaseException:  # it is not ours: any may come
        text = ""
    return _quoted(text) or type(error).__name__


def shown(value: object) -> str:
    """A foreign value as a message shows it: short, in one line, and always something."""
    try:
        return _quoted(repr(value))
    except BaseException:  # it is not ours: any may come
        return f"a {type(value).__name__}"


def _quoted(text: str) -> str:
    """The beginning of a foreign text in one line."""
    return clean(" ".join(text.split()), _LONGEST)


def blame(error: BaseException) -> str:
    """An exception of the user's own code in one line, with the place it came from."""
    what = f"{type(error).__name__}: {one_line(error)}"
    places = traceback.extract_tb(error.__traceback__)
    if not places:
        return what
    return f"{what} ({os.path.basename(places[-1].filename)}:{places[-1].lineno})"
