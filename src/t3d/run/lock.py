"""Locks: one process trains a run; free again when that process ends, however it ends."""

import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover, not on Windows
    fcntl = None  # type: ignore[assignment]

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.run.folder import RunFolder


class Lock:
    """Held by the process that trains a run."""

    def __init__(self, folder: RunFolder) -> None:
        """Acquire it; an error names the process that holds it."""
        self._path = folder.path / "lock"
        self._descriptor: int | None = None
        files.require_regular(self._path)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise files.cannot_write(self._path, error) from error
        self._descriptor = descriptor
        if fcntl is None:  # pragma: no cover, not on Windows
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another"
            self.release()
            advice = "stop that one, or train elsewhere with --run"
            raise BadInput(f"{folder.path} is in use by process {holder}; {advice}") from error
        with suppress(OSError):  # the holder's name only makes the message better
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {platform.node()}".encode(), 0)

    def release(self) -> None:
        """Free the run. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked(folder: RunFolder) -> bool:
    """Whether a process trains the run now. Asking changes nothing."""
    if fcntl is None:  # pragma: no cover, not on Windows
        return False
    try:
        with files.open_regular(folder.path / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BadInput:  # there is none, or none that a trainer could hold
        return False
    except OSError:
        return True
    return False


@contextmanager
def alone(path: Path) -> Iterator[str]:
    """Wait until no other process is in here for the same folder; gives the folder's id.

    The id is stored in the folder: the same by whatever path and from whatever machine.
    """
    files.require_regular(path / ".folder")
    with (path / ".folder").open("a+", errors="replace") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        name = file.read(64)
        if not name:
            name = secrets.token_hex(16)
            file.write(name)
            file.flush()
        yield name
