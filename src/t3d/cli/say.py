"""Shared by the commands: the terminal, and how the user types `t3d`."""

import ctypes
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from t3d.base.errors import BrokenAgent, BrokenWatcher, T3DError
from t3d.base.output import Output
from t3d.base.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from t3d.config import Config


def console(file: TextIO | None = None) -> "Console":
    """The terminal, or a file; a run outlives a reader that leaves, as `head` does."""
    from t3d.show.terminal import PatientConsole

    return PatientConsole(file=file)


class _Lent:
    """A stream for an environment, which cannot close it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """The stream is not the environment's."""


@contextmanager
def own_stdout() -> Iterator[TextIO]:
    """While environments play, keep stdout for T3D; gives a file that writes there.

    What environments print, from Python or from C, goes to stderr, and they can close neither.
    """
    usual, errors = sys.stdout, cast(TextIO, _Lent(sys.stderr))
    with redirect_stdout(errors), redirect_stderr(errors):
        try:
            ours, theirs = usual.fileno(), sys.stderr.fileno()
        except (OSError, ValueError):  # no file of the system, but one of a program that calls us
            yield usual
            return
        usual.flush()
        copy = os.dup(ours)
        file = os.fdopen(os.dup(ours), "w", 1, usual.encoding, usual.errors)
        os.dup2(theirs, ours)
        try:
            yield cast(TextIO, Output(file))
        finally:
            with suppress(AttributeError, OSError, TypeError):  # what C code has not written yet
                ctypes.CDLL(None).fflush(None)
            with suppress(OSError):
                file.close()
            os.dup2(copy, ours)
            os.close(copy)


def line(text: object) -> None:
    """Print one line. It may hold names from a file or an environment: they are cleaned."""
    print(clean(text))


def first(text: str, file: TextIO | None = None) -> None:
    """Print the first line of a command at once: what it imports next takes seconds.

    It goes to stderr, as `file`, where stdout is a result that a script may read.
    """
    if "torch" not in sys.modules:
        print(clean(text), file=file, flush=True)


def own_traceback(error: T3DError) -> list[str]:
    """The traceback of a watcher or an agent of the user's own that raised; empty for others."""
    cause = error.__cause__
    if not isinstance(error, (BrokenWatcher, BrokenAgent)) or cause is None:
        return []
    if isinstance(cause, T3DError):  # its message says all
        return []
    lines = "".join(traceback.format_exception(cause, chain=False)).splitlines()
    return [line for line in lines if line.strip()]


def ask(question: str) -> bool:
    """The user's answer to a question; no where nobody can be asked."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def require_trust(
    where: str, *configs: "Config", trust: bool, not_from_folder: Iterable[str] = ()
) -> None:
    """Refuse code that a folder names, unless the user trusts it, by an option or if asked."""
    from t3d.run.trust import require

    require(
        where,
        *configs,
        not_from_folder=tuple(not_from_folder),
        trust=trust,
        ask=ask,
        how="add --trust",
    )


def t3d() -> str:
    """The command `t3d` as the user can type it, where it is not on the PATH, too."""
    called = Path(sys.argv[0])
    if called.name != "t3d" or shutil.which("t3d"):
        return "t3d"
    if called == Path("t3d"):  # by `python -m t3d`
        return f"{Path(sys.executable).name} -m t3d"
    return shlex.quote(os.path.relpath(called))
