"""Compile functions with Numba. It is imported on first use: that takes half a second.

Numba keeps compiled code on disk as pickles, which run code when they are read, and reads whatever
is there. Here they are read only if they are this user's own and nobody else can write them
(`_why_not_ours`), and only if they are as they were written: each file has its SHA-256 in its
name. Anything else is compiled again.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any, TypeVar, cast

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # a division by zero gives inf, as in PyTorch
}

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function into whatever compiled function calls it."""
    import numba

    return cast(Function, numba.njit(**_OPTIONS)(function))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, and keep the result on disk, where that is possible."""
    dispatcher: Any = compiled(function)
    with suppress(RuntimeError):  # neither the source's folder nor the user's cache is writable
        dispatcher._cache = _cache_of(function)
    return cast(Function, dispatcher)


def _cache_of(function: Callable[..., Any]) -> Any:
    """Numba's cache of a function, with files of ours."""
    from numba.core.caching import FunctionCache

    cache = FunctionCache(function)
    stamp = cache._impl.locator.get_source_stamp().hex()[:16]
    cache._cache_file = KeptCode(Path(cache.cache_path), f"{cache._impl.filename_base}.{stamp}")
    return cache


class KeptCode:
    """The compiled forms of one function, a file for each, in a folder of this user alone."""

    def __init__(self, place: Path, stem: str) -> None:
        self.folder = place / f"t3d-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        self._stem = stem
        self._refused = False

    def load(self, key: Any) -> Any:
        """What was saved under a key; None if it is not there, or not to be trusted."""
        from numba.core.caching import IndexDataCacheFile

        if self._why_not(self.folder):
            return None
        reader = IndexDataCacheFile(str(self.folder), self._stem, b"")
        for path in sorted(self.folder.glob(f"{escape(self._name(key))}.*.nbc")):
            try:
                if self._why_not(path):
                    return None
                if hashlib.sha256(path.read_bytes()).hexdigest() == path.suffixes[-2][1:]:
                    saved_key, data = reader._load_data(path.name)
                    if saved_key == key:
                        return data
                _say(f"compiled code in {self.folder} is damaged: it is compiled again")
                path.unlink()
            except OSError:  # another process may have removed it
                continue
        return None

    def _why_not(self, path: Path) -> bool:
        """Whether a file or the folder is not to be trusted; then nothing is written, either."""
        with suppress(FileNotFoundError):
            why_not = _why_not_ours(path)
            if why_not:
                self._refused = True
                _say(f"{why_not}: the compiled code there is not used, it is compiled again")
        return self._refused

    def save(self, key: Any, data: Any) -> None:
        """Write a file that is there whole or not at all; a failure costs only time."""
        from numba.core.serialize import dumps

        if self._refused:
            return
        content: bytes = dumps((key, data))
        path = self.folder / f"{self._name(key)}.{hashlib.sha256(content).hexdigest()}.nbc"
        temporary = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._why_not(self.folder):  # somebody else was faster
                return
            # A killed process may have left one, and had the number that is now ours.
            temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(content)
            temporary.replace(path)

    def flush(self) -> None:
        """Forget all forms of the function."""
        for path in self.folder.glob(f"{escape(self._stem)}.*"):
            path.unlink(missing_ok=True)

    def _name(self, key: Any) -> str:
        """How the names of its files begin. A key is a signature, the processor, and hashes."""
        import numba

        name = hashlib.sha256(f"{numba.__version__} {key}".encode()).hexdigest()[:16]
        return f"{self._stem}.{name}"


def _why_not_ours(path: Path) -> str:
    """Why a file or folder may hold code of others; empty if only this user or root writes it."""
    if not hasattr(os, "getuid"):  # pragma: no cover, Windows has no such bits
        return ""
    status = path.lstat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return f"{path} is neither a file nor a folder"
    if status.st_uid not in (os.getuid(), 0):
        return f"{path} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by other users"
    return ""


@cache
def _say(line: str) -> None:
    """Tell the user, once; that nobody can read it is no error."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"t3d: {line}\n")
