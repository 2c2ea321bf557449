"""Small helpers for text that people read."""

import os
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 300  # characters of a foreign text that a message quotes


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'tau'?` if one of `names` is close, else nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
    """The beginning of a text in one line, without characters that a terminal obeys."""
    more = f" ... ({len(text):,} characters)" if len(text) > _LONGEST else ""
    words = " ".join(text[:_LONGEST].split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words) + more


def blame(error: BaseException) -> str:
    """An exception of the user's own code in one line, with the place it came from."""
    what = f"{type(error).__name__}: {one_line(error)}"
    places = traceback.extract_tb(error.__traceback__)
    if not places:
        return what
    return f"{what} ({os.path.basename(places[-1].filename)}:{places[-1].lineno})"
