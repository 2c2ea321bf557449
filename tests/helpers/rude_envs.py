"""Environments that crash, hang, fork, print, or change the process that they play in."""

import ctypes
import io
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from helpers.broken_envs import Calm
from t3d.base.randomness import derived_seed

EVALUATED = derived_seed(0, "evaluation", 0)  # the seed of the first evaluation episode, seed 0
TESTED = derived_seed(0, "test", 0)


class Doing(Calm):
    """Does something when it is made, at each reset or at each step."""

    def __init__(self, what: Callable[[], Any], when: str) -> None:
        self.what, self.when = what, when
        self._do("make")

    def _do(self, when: str) -> None:
        if self.when == when:
            self.what()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._do("reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._do("step")
        return super().step(action)

    def close(self) -> None:
        self._do("close")


def doing(what: Callable[[], Any], when: str) -> Callable[[], Doing]:
    """A callable that makes such an environment."""

    def make() -> Doing:
        return Doing(what, when)

    return make


def _torch() -> Any:
    return import_module("torch")  # only here: it takes long, and a worker does without


def lower_recursion_limit() -> None:
    sys.setrecursionlimit(150)


SETTINGS: dict[str, Callable[[], Any]] = {
    "PyTorch's default dtype": lambda: _torch().set_default_dtype(_torch().float64),
    "PyTorch's default device": lambda: _torch().set_default_device("meta"),
    "PyTorch's grad mode": lambda: _torch().set_grad_enabled(False),
    "Python's recursion limit": lower_recursion_limit,
    "the working directory": lambda: os.chdir("/"),
}


def ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def ignore_signals_in_c() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        ctypes.CDLL(None).signal(number, ctypes.c_void_p(1))


def replace_stdout() -> None:
    sys.stdout = io.StringIO()


HARMLESS: dict[str, Callable[[], Any]] = {
    "ignores signals": ignore_signals,
    "ignores signals in C": ignore_signals_in_c,
    "numpy raises": lambda: np.seterr(all="raise"),
    "sets PyTorch's threads": lambda: _torch().set_num_threads(2),
    "sets PyTorch's precision": lambda: _torch().set_float32_matmul_precision("medium"),
    "replaces stdout": replace_stdout,
}


def print_much() -> None:
    """From Python, to the descriptor, and from C."""
    print("an environment says hello")  # noqa: T201
    os.write(1, b"hello\n")
    ctypes.CDLL(None).puts(b"hello from C")


def prints() -> Doing:
    return Doing(print_much, "step")


def closes_stdout() -> Doing:
    return Doing(lambda: sys.stdout.close(), "reset")


def ignores_signals() -> Doing:
    return Doing(ignore_signals, "step")


def ignores_signals_in_c() -> Doing:
    return Doing(ignore_signals_in_c, "reset")


def fork_once() -> None:
    """Leave a process behind that outlives the trainer; its number goes to the file FORKED."""
    file = Path(os.environ["FORKED"])
    if not file.exists():
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        file.write_text(str(child))


def forks() -> Doing:
    return Doing(fork_once, "make")


def hold_the_lock_of_python() -> None:
    deque(repeat(0), maxlen=0)  # never ends, and runs in C


def loop() -> None:
    while True:
        pass


HANGS = {"sleeps": lambda: time.sleep(600), "loops": loop, "in C": hold_the_lock_of_python}


def sleeps() -> Doing:
    return Doing(HANGS["sleeps"], "step")


def loops() -> Doing:
    return Doing(HANGS["loops"], "step")


def hangs_in_c() -> Doing:
    return Doing(HANGS["in C"], "step")


def hangs_at_close() -> Doing:
    return Doing(HANGS["loops"], "close")


class Evaluated(Calm):
    """Breaks down at the third step of an evaluation or test episode, as often as BREAKDOWNS says.

    BREAKDOWNS is a folder with one file for each time that it shall.
    """

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.evaluated = seed in (EVALUATED, TESTED)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.evaluated and self.count == 2:
            for file in Path(os.environ["BREAKDOWNS"]).iterdir():
                file.unlink()
                self.break_down()
                break
        return super().step(action)

    def break_down(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class HangsEvaluated(Evaluated):
    """Hangs instead."""

    def break_down(self) -> None:
        time.sleep(600)


class ForksAndCrashesEvaluated(Evaluated):
    """Leaves a process that keeps its pipe to the trainer open, then crashes."""

    def break_down(self) -> None:
        fork_once()
        super().break_down()
