"""Shared by the commands: the terminal, and how the user types `t3d`."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from t3d.config import Config


def console() -> "Console":
    """The terminal; a run outlives a reader that leaves, as `head` does."""
    from t3d.show.terminal import PatientConsole

    return PatientConsole()


def line(text: object) -> None:
    """Print one line. It may hold names from a file or an environment: they are cleaned."""
    print(clean(text))


def ask(question: str) -> bool:
    """The user's answer to a question; no where nobody can be asked."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def require_trust(where: str, *configs: "Config", trust: bool, given: Iterable[str] = ()) -> None:
    """Refuse code that a folder names, unless the user trusts it, by an option or if asked."""
    from t3d.run.trust import require

    require(where, *configs, given=tuple(given), trust=trust, ask=ask, how="add --trust")


def t3d() -> str:
    """The command `t3d` as the user can type it, where it is not on the PATH, too."""
    called = Path(sys.argv[0])
    if called.name != "t3d" or shutil.which("t3d"):
        return "t3d"
    if called == Path("t3d"):  # by `python -m t3d`
        return f"{Path(sys.executable).name} -m t3d"
    return shlex.quote(os.path.relpath(called))
