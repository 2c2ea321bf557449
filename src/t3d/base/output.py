"""Stdout and stderr that cannot be written: full, closed, without a reader, in another encoding."""

import errno
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from t3d.base.errors import CannotWrite


class Output:
    """A stream whose failure ends nothing: it says so once on stderr, and is silent from then on.

    If it is `essential`, as for a command whose output is its result, a failure is an error.
    Characters that its encoding lacks are replaced in any case.
    """

    def __init__(
        self, stream: TextIO | None, essential: bool = False, complains: bool = True
    ) -> None:
        """`stream` is None where the program was started without one."""
        self._stream = stream
        self._essential, self._complains = essential, complains
        self._silent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stream"], name)

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return getattr(self._stream, "encoding", "") or "utf-8"

    def isatty(self) -> bool:
        """Whether it is a terminal that can still be written."""
        with suppress(ValueError):  # it is closed
            return not self._silent and self._stream is not None and self._stream.isatty()
        return False

    def fileno(self) -> int:
        """The file descriptor."""
        if self._stream is None:
            raise io.UnsupportedOperation("no stream")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write a text, as far as that is possible."""
        self._try(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write some texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand all of it to the system."""
        self._try("")

    def _try(self, text: str) -> None:
        if self._silent:
            return
        try:
            if self._stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if not text:
                self._stream.flush()
                return
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(replaced(text, self.encoding))
        except BlockingIOError:
            pass  # a reader that is slow for now
        except RuntimeError:
            pass  # a signal came while this stream was written, and its handler prints
        except (OSError, ValueError) as error:  # a closed stream raises ValueError
            self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        self._silent = True
        if self._stream in (sys.__stdout__, sys.__stderr__) and self._stream is not None:
            # Python flushes these two at the end, and would fail again.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
        why = getattr(error, "strerror", None) or str(error)
        if self._essential:
            if isinstance(error, BrokenPipeError):
                raise error
            raise CannotWrite(f"the output cannot be written: {why}") from error
        if self._complains:
            complain(f"nothing more is shown, the output cannot be written: {why}")


def replaced(text: str, encoding: str) -> str:
    """A text without the characters that an encoding lacks."""
    plain = text.replace("±", "+/-").replace("×", "x")
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def complain(text: str) -> None:
    """Print a line on stderr, if that can be written."""
    with suppress(OSError, ValueError, RuntimeError):
        if sys.stderr is not None:
            sys.stderr.write(f"t3d: {text}\n")
            sys.stderr.flush()


_guarding = threading.Lock()
_before: list[tuple[TextIO, TextIO]] = []  # what stdout and stderr were before each guard


@contextmanager
def guarded(essential: bool) -> Iterator[None]:
    """Guard stdout and stderr meanwhile; `essential` applies to stdout.

    Threads may end in another order than they began in: the last to end sets the streams back.
    """
    with _guarding:
        _before.append((sys.stdout, sys.stderr))
        guards = Output(sys.stdout, essential), Output(sys.stderr, complains=False)
        sys.stdout, sys.stderr = (cast(TextIO, guard) for guard in guards)
    try:
        yield
    finally:
        with _guarding:
            sys.stdout, sys.stderr = _before.pop()


_quiet = threading.RLock()  # Python's filters of warnings are those of all threads


@contextmanager
def no_warnings() -> Iterator[None]:
    """Ignore warnings meanwhile, in one thread at a time: two would not set the filters back."""
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def open_missing() -> None:
    """Open the standard files that the program was started without, as the null device.

    Otherwise the next file that is opened, such as a run's metrics, would become stdout.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
