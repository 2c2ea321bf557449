"""Signals that ask a run to stop: remembered, so that the loop can stop where it is safe."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from t3d.base.signals import HANDLERS, STOP_SIGNALS, Ended, set_handler

# Sent by a person, who sends a second one to quit at once. Systems repeat the others by themselves:
# a shell and the terminal both say that it was closed, a limit of CPU time is said every second.
_BY_HAND = [n for n in STOP_SIGNALS if n.name in ("SIGINT", "SIGTERM", "SIGQUIT")]


def never() -> bool:
    """The `stop` of a run that nothing stops."""
    return False


def _end(number: int, frame: FrameType | None) -> None:
    # Code of the user's may catch this one. A second one by hand ends the program.
    signal.signal(number, signal.SIG_DFL if number in _BY_HAND else signal.SIG_IGN)
    HANDLERS.pop(number, None)
    raise Ended(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a program that a signal ended: 128 + n for signal n."""
    return 128 + getattr(interrupt, "number", signal.SIGINT)


@contextmanager
def raised() -> Iterator[None]:
    """Meanwhile, a signal that would kill the program raises `Ended`, so that it cleans up."""
    with _handled([n for n in STOP_SIGNALS if signal.getsignal(n) == signal.SIG_DFL], _end):
        yield


class StopSignal:
    """Whether a signal asked the run to stop, and which."""

    def __init__(self, on_signal: Callable[[], None] = lambda: None) -> None:
        self.number: int | None = None
        self._on_signal = on_signal

    def __call__(self) -> bool:
        """Whether a signal has arrived."""
        return self.number is not None

    @contextmanager
    def caught(self) -> Iterator["StopSignal"]:
        """Catch the signals meanwhile. A second one by hand has its usual effect: it ends the run.

        One that is ignored, such as SIGHUP under nohup, or that the program handles itself, is left
        alone, except for SIGINT and SIGTERM.
        """
        numbers = [
            number
            for number in STOP_SIGNALS
            if number in (signal.SIGINT, signal.SIGTERM)
            or signal.getsignal(number) in (signal.SIG_DFL, _end)
        ]
        usual = {number: signal.getsignal(number) for number in numbers}

        def remember(number: int, frame: FrameType | None) -> None:
            if number in _BY_HAND:
                for each in _BY_HAND:
                    if each in usual:
                        set_handler(each, usual[each])
            elif self.number is not None:
                return
            self.number = self.number or number
            with suppress(Exception):  # it only shows something
                self._on_signal()

        with _handled(numbers, remember):
            yield self


@contextmanager
def _handled(numbers: list[signal.Signals], handler: Callable[..., Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    usual = {number: signal.getsignal(number) for number in numbers}
    before = dict(HANDLERS)
    for number in numbers:
        set_handler(number, handler)
    try:
        yield
    finally:
        HANDLERS.clear()
        HANDLERS.update(before)
        for number in numbers:
            signal.signal(number, usual[number])
