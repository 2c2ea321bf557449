"""Shared by the commands: the terminal, and how the user types `t3d`."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.text import clean

if TYPE_CHECKING:
    from rich.console import Console


def console() -> "Console":
    """The terminal; a run outlives a reader that leaves, as `head` does."""
    from t3d.show.terminal import PatientConsole

    return PatientConsole()


def line(text: object) -> None:
    """Print one line. It may hold names from a file or an environment: they are cleaned."""
    print(clean(text))


def t3d() -> str:
    """The command `t3d` as the user can type it, where it is not on the PATH, too."""
    called = Path(sys.argv[0])
    if called.name != "t3d" or shutil.which("t3d"):
        return "t3d"
    if called == Path("t3d"):  # by `python -m t3d`
        return f"{Path(sys.executable).name} -m t3d"
    return shlex.quote(os.path.relpath(called))
