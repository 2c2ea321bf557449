"""What an environment in this process shares with T3D, and may change: settings, signals, streams.

A change that T3D's numbers or files depend on is named, once a call into the environment is over.
One that an environment does not need to keep is undone.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from t3d.base.output import open_missing
from t3d.base.signals import HANDLERS, STOP_SIGNALS, getsignal

_RECURSION = 1000  # Python's usual limit; a higher one does no harm

Settings = dict[str, Any]
ADVICE = "leave that as it is, or use --env-backend processes"


def settings() -> Settings:
    """What T3D's numbers and files depend on, by name."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = "one that was removed"
    python: Settings = {
        "the working directory": folder,
        "Python's recursion limit": min(sys.getrecursionlimit(), _RECURSION),
    }
    torch = sys.modules.get("torch")
    if torch is None:  # it takes long to import: not for an environment
        return python
    return python | {
        "PyTorch's default dtype": torch.get_default_dtype(),
        "PyTorch's default device": torch.get_default_device(),
        "PyTorch's grad mode": torch.is_grad_enabled(),
    }


def changes(usual: Settings) -> list[str]:
    """What is not as it was, in words; it is set back."""
    now = settings()
    different = [name for name, value in usual.items() if now.get(name) != value]
    for name in different:
        _set_back(name, usual[name])
    return [f"{name} from {usual[name]} to {now.get(name)}" for name in different]


def left_over(usual: Settings) -> list[str]:
    """What a step has changed of `lasting`, in words. It stays: an agent may have changed it."""
    return [name for name, value in lasting().items() if usual.get(name, value) != value]


def lasting() -> Settings:
    """What is undone after an environment is made or reset, but not after each of its steps."""
    others: Settings = {
        "NumPy's error handling": np.geterr(),
        "sys.stdout": id(sys.stdout),
        "sys.stderr": id(sys.stderr),
    }
    torch = sys.modules.get("torch")
    if torch is None:
        return others
    return others | {
        "PyTorch's number of threads": torch.get_num_threads(),
        "PyTorch's precision of products": torch.get_float32_matmul_precision(),
    }


def _set_back(name: str, value: Any) -> None:
    torch = sys.modules.get("torch")
    if name == "the working directory":
        with suppress(OSError):
            os.chdir(value)
    elif name == "Python's recursion limit":
        sys.setrecursionlimit(value)
    elif torch is not None:
        setters: dict[str, Callable[[Any], Any]] = {
            "PyTorch's default dtype": torch.set_default_dtype,
            # The default is no device at all, which leaves PyTorch's functions as fast as they are.
            "PyTorch's default device": lambda device: torch.set_default_device(
                None if device == torch.device("cpu") else device
            ),
            "PyTorch's grad mode": torch.set_grad_enabled,
        }
        setters[name](value)


@contextmanager
def undone() -> Iterator[None]:
    """Around a call into an environment: what it does not need to change for itself is undone."""
    handlers = {number: getsignal(number) for number in STOP_SIGNALS if number not in HANDLERS}
    floating_point = np.geterr()
    streams = sys.stdout, sys.stderr
    torch = sys.modules.get("torch")
    if torch is not None:
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        np.seterr(**floating_point)
        if torch is not None:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            if torch.get_float32_matmul_precision() != precision:
                torch.set_float32_matmul_precision(precision)
        # Also where none seems to differ: C code may have changed it, unseen by Python.
        if threading.current_thread() is threading.main_thread():  # no other may change them
            for number, handler in (handlers | HANDLERS).items():
                if handler is not None:
                    signal.signal(number, handler)
        open_missing()


class TookTooLong(BaseException):
    """Raised inside of a close() that hangs; not an Exception, which it might catch."""


@contextmanager
def time_limited(seconds: float) -> Iterator[None]:
    """Interrupt what is not done in time, if it waits or is in Python code, in the main thread.

    Not in a thread that could be abandoned: windows, contexts of OpenGL and event loops must be
    closed by the thread that opened them.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: Any) -> None:
        raise TookTooLong(f"close() did not return within {seconds:g} s")

    usual = signal.signal(signal.SIGALRM, interrupt)
    theirs = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *theirs)
        signal.signal(signal.SIGALRM, usual if usual is not None else signal.SIG_DFL)
