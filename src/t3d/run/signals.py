"""Ctrl-C and SIGTERM: remembered, so that the loop can stop where it is safe."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from t3d.play.surroundings import hold_signals, let_go_of_signals


def never() -> bool:
    """The `stop` of a run that nothing stops."""
    return False


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
        """Catch the signals meanwhile. A second one has its usual effect: it ends the program."""
        if threading.current_thread() is not threading.main_thread():
            yield self  # only the main thread may set handlers
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        usual = {number: signal.getsignal(number) for number in numbers}

        def restore() -> None:
            let_go_of_signals()
            for number in numbers:
                signal.signal(number, usual[number])

        def remember(number: int, frame: FrameType | None) -> None:
            self.number = number
            restore()
            self._on_signal()

        hold_signals(dict.fromkeys(numbers, remember))  # an environment may set its own
        try:
            yield self
        finally:
            restore()
