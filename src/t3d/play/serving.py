"""The process of an environment: it follows the trainer's commands, and ends with the trainer."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from t3d.base import signals
from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.base.signals import HANDLERS
from t3d.play.envs import EnvMaker, GuardedEnv, Spaces, blame, env_role, time_limit

LOOK_EVERY = 0.5  # seconds after which trainer and worker look whether the other is alive
_CLOSE_LIMIT = 5.0  # seconds that a worker has to close its environment when the trainer is gone


class Row:
    """An observation in shared memory: the block of a given name, or else a new one."""

    def __init__(self, layout: Layout, name: str | None = None) -> None:
        size = layout.size * layout.dtype.itemsize
        try:
            self._memory = SharedMemory(name, create=name is None, size=size)
        except OSError as error:
            what = f"{size:,} bytes of observations"
            advice = "play with --env-backend inline"
            raise BadInput(f"no shared memory for {what}: {error}; {advice}") from error
        self.name, self.unlink = self._memory.name, self._memory.unlink
        self.array: Array = np.ndarray(layout.size, layout.dtype, self._memory.buf)

    def close(self) -> None:
        """Release it; the array cannot be read any more."""
        del self.array
        self._memory.close()


def _end_with_the_trainer(by_main_thread: bool) -> None:
    """End this process soon after the trainer, even while its environment does not return."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    trainer = parent.pid

    def watch() -> None:
        while os.getppid() == trainer:
            time.sleep(LOOK_EVERY)
        time.sleep(_CLOSE_LIMIT)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    # That thread cannot run while C code holds Python's lock. So Linux is asked to send a signal
    # whose handler is the C library's alarm(): it gets the signal's number, 16, as the seconds
    # after which SIGALRM ends this process. Linux sends it when the thread that started this
    # process ends, which is the trainer's end only if that was its main thread.
    if sys.platform == "linux" and hasattr(signal, "SIGSTKFLT") and by_main_thread:
        libc, set_death_signal = ctypes.CDLL(None), 1
        libc.signal(signal.SIGSTKFLT, libc.alarm)
        libc.prctl(set_death_signal, signal.SIGSTKFLT)


def serve(pipe: Connection, maker: EnvMaker, index: int | None, by_main_thread: bool) -> None:
    """A worker process: make an environment, and follow the pipe's commands until it ends."""
    # Ctrl-C and a closed terminal reach the whole group, and a batch system signals every process;
    # the trainer alone decides what to do, and ends this process when it has saved.
    signals.ignore()
    HANDLERS.update(dict.fromkeys(signals.STOP_SIGNALS, signal.SIG_IGN.value))
    _end_with_the_trainer(by_main_thread)

    def reply(kind: str, answer: Any) -> None:
        with suppress(OSError):  # the trainer is gone, which the next recv() will notice
            pipe.send((kind, answer))

    try:
        env = maker.make(index, own_process=True)
    except T3DError as error:
        reply("refused", str(error))
        return
    reply("ready", (Spaces.of(env), time_limit(env)))
    row: Row | None = None
    while True:
        try:
            command, *arguments = pipe.recv()
        except (EOFError, OSError):  # the trainer is gone
            command = "close"
        if command == "close":
            env.close()
            if row is not None:
                row.close()
            return
        answer: list[Any] = []
        try:
            if command == "attach":
                row = Row(env.layout, *arguments)
            else:
                assert row is not None
                row.array[:], *answer = _execute(env, command, arguments)
        except BrokenEnvironment as error:
            reply("broken", str(error))
        except Exception as error:
            reply("broken", f"the process of {env_role(index)}: {blame(error)}")
        else:
            reply("done", answer)


def _execute(env: GuardedEnv, command: str, arguments: list[Any]) -> tuple[Any, ...]:
    """An observation, and the rest of the answer."""
    if command == "step":
        return env.play(*arguments)
    env.settings, *arguments = arguments
    if command == "reset":
        return env.reset(seed=arguments[0])[:1]
    return env.replay(*arguments)
