"""Optional packages: the command that installs an extra, as the user can type it."""

import json
import os
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """The command that adds an extra to this installation, from the clone if it came from one."""
    origin = _origin()
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file":
        return f"{_pip()} install 't3d[{extra}]'"
    clone = Path(unquote(url.path))
    here = clone == Path.cwd()
    pinned = clone / "constraints.txt"
    words = [_pip(), "install"]
    if pinned.is_file():  # without them pip may take a build of PyTorch that is gigabytes larger
        words.append(f"-c {pinned.name if here else shlex.quote(str(pinned))}")
    if origin.get("dir_info", {}).get("editable"):
        words.append("-e")
    words.append(f"'.[{extra}]'" if here else shlex.quote(f"{clone}[{extra}]"))
    return " ".join(words)


def _origin() -> dict[str, Any]:
    """Where T3D was installed from, as pip noted it; empty if by its name."""
    with suppress(PackageNotFoundError, ValueError):
        noted = json.loads(distribution("t3d").read_text("direct_url.json") or "{}")
        return noted if isinstance(noted, dict) else {}
    return {}


def _pip() -> str:
    """pip of the Python that runs this, which need not be the one on the PATH."""
    python = Path(sys.executable)
    usual = shutil.which("pip")
    if usual and Path(usual).parent == python.parent:
        return "pip"
    inside = python.is_relative_to(Path.cwd())
    return f"{shlex.quote(os.path.relpath(python) if inside else str(python))} -m pip"
