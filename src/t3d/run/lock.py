"""Locks: one process trains a run; free again when that process ends, however it ends."""

import os
import platform
import secrets
import threading
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

# Record locks (lockf) belong to a process: unlike those of flock, they are not inherited by what an
# environment forks, which may outlive the trainer. But they do not exclude this same process, and
# are lost when it closes the file anywhere. So it remembers which files it holds, by device and
# inode with its own number, and does not open those again.
_held: dict[tuple[int, int], int] = {}
_acquiring = threading.Lock()


class Lock:
    """Held by the process that trains a run."""

    def __init__(self, folder: RunFolder) -> None:
        """Acquire it; an error names the process that holds it."""
        self._folder, self._path = folder.path, folder.path / "lock"
        self._descriptor: int | None = None
        files.require_regular(self._path)
        with _acquiring:
            if _is_held_here(self._path):
                raise self._in_use(_me())
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise files.cannot_write(self._path, error) from error
            try:
                if fcntl is not None:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another"
                os.close(descriptor)
                raise self._in_use(holder) from error
            self._descriptor, self._inode = descriptor, _inode(os.fstat(descriptor))
            _held[self._inode] = os.getpid()
        with suppress(OSError):  # the holder's name only makes the message better
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _me().encode(), 0)

    def _in_use(self, holder: str) -> BadInput:
        advice = "stop that one, or train elsewhere with --run"
        return BadInput(f"{self._folder} is in use by process {holder}; {advice}")

    def renew(self) -> None:
        """Acquire it again, if code of the user's own lost it: a copy of the folder opens it, too.

        An error if another process was faster.
        """
        mine = self._descriptor is not None and _held.get(self._inode) == os.getpid()
        if fcntl is None or not mine:
            return
        assert self._descriptor is not None
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace")
            raise self._in_use(holder) from error

    def release(self) -> None:
        """Free the run. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with _acquiring:
                _held.pop(self._inode, None)
                os.close(descriptor)


def _me() -> str:
    return f"{os.getpid()} on {platform.node()}"


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_held_here(path: Path) -> bool:
    """Whether this process, not one that it was forked from, holds the lock of this path."""
    try:
        return _held.get(_inode(path.stat())) == os.getpid()
    except OSError:
        return False


def is_locked(folder: RunFolder) -> bool:
    """Whether a process trains the run now. Asking changes nothing."""
    path = folder.path / "lock"
    if fcntl is None:  # pragma: no cover, not on Windows
        return False
    with _acquiring:
        if _is_held_here(path):
            return True
        try:
            with files.open_regular(path) as file:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
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
