"""The signals that ask a program to end, and how a child process is kept out of them."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Ctrl-C and `kill`, Ctrl-\, a closed terminal, a scheduler's notices, a limit of CPU time.
_NAMES = ("SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
STOP_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


# The function itself: signal.getsignal, which wraps it, takes twenty times as long.
getsignal: Callable[[int], Any] = import_module("_signal").getsignal
HANDLERS: dict[int, Any] = {}  # by signal: those that no environment may change


def set_handler(number: int, handler: Any) -> None:
    """Handle a signal in this way, and again after an environment has changed that."""
    signal.signal(number, handler)
    HANDLERS[number] = getsignal(number)


def set_handlers_again() -> None:
    """Called after every step, so it only compares as long as none was changed."""
    if threading.get_ident() != threading.main_thread().ident:
        return  # no other thread may set them
    for number, handler in HANDLERS.items():
        if getsignal(number) is not handler:
            signal.signal(number, handler)


def _let_go() -> None:
    """In a process that was forked here: it is ended as usual, and stops no run."""
    for number in HANDLERS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)
    HANDLERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Ended(KeyboardInterrupt):
    """Raised where Ctrl-C would raise, by a signal that is not Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def held(numbers: tuple[signal.Signals, ...] = STOP_SIGNALS) -> Iterator[None]:
    """A process that is started here does not hear the signals. In this thread they wait meanwhile.

    A terminal and a batch system signal whole groups of processes: a child that has not yet
    called `ignore` would die.
    """
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover, not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore all of them in this process from now on."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # `held` when it was started
