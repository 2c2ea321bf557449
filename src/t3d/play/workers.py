"""Environments in processes of their own, which are restarted if they die or hang."""

import multiprocessing
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from t3d.base import signals
from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.play.envs import Answer, EnvMaker, GuardedEnv, Spaces, blame

_POLL_LIMIT = 1e6  # seconds; a pipe cannot wait for much longer, except for ever
_START_LIMIT = 300.0  # seconds that a new process has to import and make its environment


class Workers:
    """Environments in processes of their own.

    If a process dies or does not answer in time, its environment gets a new process and begins a
    new episode. Observations come through shared memory, since images are large; everything
    else goes through pipes.
    """

    def __init__(self, maker: EnvMaker, indices: range) -> None:
        """Start environments with these indices, each in a process of its own."""
        self._maker, self._indices = maker, indices
        self._deadline = maker.config.env_deadline or float("inf")
        self._max_restarts = maker.config.env_restarts
        self._restart_counts = [0] * len(indices)
        self._restarts: list[tuple[int, str]] = []  # since take_restarts
        self.processes: list[Any] = [None] * len(indices)
        self._pipes: list[Connection | None] = [None] * len(indices)
        self._rows: _Rows | None = None
        # They ignore SIGTERM, by which Python would end them at its own exit.
        Finalize(self, _kill_all, (self.processes,), exitpriority=10)
        try:
            for index in range(len(indices)):
                self._start(index)
            spaces = [self._must_answer(index, _START_LIMIT) for index in range(len(indices))]
            self.spaces: Spaces = spaces[0]
            self._rows = _Rows(len(indices), self.spaces.layout)
            for index in range(len(indices)):
                self._attach(index)
                self._must_answer(index, _START_LIMIT)
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> None:
        # Spawned, not forked: a fork copies the locks of PyTorch's threads, held or not.
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(
            target=_serve,
            args=(theirs, self._maker, self._indices[index]),
            name=f"env-{index}",
            daemon=True,
        )
        with signals.held():
            resource_tracker.ensure_running()  # it would die of them, and be missed
        with signals.held():
            process.start()
        theirs.close()
        self.processes[index], self._pipes[index] = process, mine

    def _process_name(self, index: int) -> str:
        return f"the process of environment {self._indices[index]}"

    @property
    def shared_memory(self) -> str | None:
        """The system's name of the memory that observations come through; None once closed."""
        return self._rows.name if self._rows else None

    def _attach(self, index: int) -> None:
        """Tell a new process where to write its observations."""
        self._ask(index, "attach", self.shared_memory, len(self._indices), index)

    def _row(self, index: int) -> Array:
        """An environment's last observation."""
        assert self._rows is not None
        row: Array = self._rows.array[index].copy()
        return row

    def _ask(self, index: int, *question: Any) -> None:
        pipe = self._pipes[index]
        assert pipe is not None
        try:
            pipe.send(question)
        except (BrokenPipeError, ConnectionError):
            pass  # it is dead, which `_answer` will notice

    def _answer(self, index: int, until: float) -> Any:
        """A process's answer, or that it is lost. An error in it is raised here."""
        pipe = self._pipes[index]
        assert pipe is not None
        try:
            left = until - time.monotonic()
            if not pipe.poll(None if left > _POLL_LIMIT else max(0.0, left)):
                return _Lost(f"did not answer within {self._deadline:g} s")
            kind, answer = pipe.recv()
        except (EOFError, OSError):
            self.processes[index].join(timeout=5)
            return _Lost(f"died ({_ending(self.processes[index].exitcode)})")
        if kind == "broken":
            raise BrokenEnvironment(answer)
        if kind == "refused":
            raise BadInput(answer)
        return answer

    def _must_answer(self, index: int, seconds: float) -> Any:
        """A process's answer; that it is lost is an error."""
        answer = self._answer(index, time.monotonic() + seconds)
        if isinstance(answer, _Lost):
            raise BrokenEnvironment(f"{self._process_name(index)} {answer.why}")
        return answer

    def _answers(self, indices: Iterable[int]) -> dict[int, Any]:
        until = time.monotonic() + self._deadline
        return {index: self._answer(index, until) for index in indices}

    def _restart(self, index: int, why: str) -> None:
        """A new process for an environment, if it has not had too many."""
        answer: Any = _Lost(why)
        while isinstance(answer, _Lost):
            self._kill(index)
            what = f"{self._process_name(index)} {answer.why}"
            if self._restart_counts[index] == self._max_restarts:
                times = f", after {self._max_restarts} restarts" if self._max_restarts else ""
                raise BrokenEnvironment(f"{what}{times}")
            self._restart_counts[index] += 1
            self._restarts.append((index, answer.why))
            try:
                self._start(index)
                answer = self._answer(index, time.monotonic() + _START_LIMIT)
                if not isinstance(answer, _Lost):
                    self._attach(index)
                    answer = self._answer(index, time.monotonic() + _START_LIMIT)
            except (T3DError, OSError) as error:
                raise BrokenEnvironment(f"{what}, and cannot be restarted: {error}") from error

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each; None where the process was lost, and restarted."""
        for index, row in enumerate(action):
            self._ask(index, "step", row)
        results: list[Answer | None] = []
        for index, answer in self._answers(range(len(action))).items():
            if isinstance(answer, _Lost):
                self._restart(index, answer.why)
                results.append(None)
            else:
                results.append((self._row(index), *answer))
        return results

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        for index, seed in seeds.items():
            self._ask(index, "reset", seed)
        answers = self._answers(seeds)
        for index, seed in seeds.items():
            while isinstance(answers[index], _Lost):
                self._restart(index, answers[index].why)
                self._ask(index, "reset", seed)
                answers |= self._answers([index])
        return {index: self._row(index) for index in seeds}

    def replay(self, seeds: list[int], played: list[Array]) -> list[Array]:
        """Begin an episode in each, and play some actions."""
        for index, (seed, actions) in enumerate(zip(seeds, played)):
            self._ask(index, "replay", seed, actions)
        deadline = self._deadline * max(1, *map(len, played), 1)
        for index in range(len(seeds)):
            self._must_answer(index, deadline)
        return [self._row(index) for index in range(len(seeds))]

    def take_restarts(self) -> list[tuple[int, str]]:
        """Which were restarted since the last call, and why."""
        restarts, self._restarts = self._restarts, []
        return restarts

    def _kill(self, index: int) -> None:
        process, pipe = self.processes[index], self._pipes[index]
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()
            self._pipes[index] = None

    def close(self) -> None:
        """Ask them to end, and kill those that take too long."""
        for index, pipe in enumerate(self._pipes):
            if pipe is not None:
                self._ask(index, "close")
        until = time.monotonic() + 2
        for index, process in enumerate(self.processes):
            if process is not None and self._pipes[index] is not None:
                process.join(timeout=max(0.0, until - time.monotonic()))
            self._kill(index)
        if self._rows is not None:
            self._rows.close()
            self._rows = None


class _Rows:
    """Observations in shared memory: the block of a given name, or else a new one."""

    def __init__(self, count: int, layout: Layout, name: str | None = None) -> None:
        size = count * layout.size * layout.dtype.itemsize
        try:
            self._memory = SharedMemory(name, create=name is None, size=size)
        except OSError as error:
            what = f"{count} x {layout.size * layout.dtype.itemsize:,} bytes"
            advice = "play with --env-backend inline"
            raise BadInput(
                f"no shared memory for {what} of observations: {error}; {advice}"
            ) from error
        # Also at an exit that closes nothing: named memory outlives its processes.
        self._end = Finalize(self, self._memory.unlink, exitpriority=10) if name is None else None
        self.name = self._memory.name
        self.array: Array = np.ndarray((count, layout.size), layout.dtype, self._memory.buf)

    def close(self) -> None:
        """Release it; the array cannot be read any more."""
        del self.array
        self._memory.close()
        if self._end is not None:
            self._end()


def _kill_all(processes: list[Any]) -> None:
    for process in processes:
        if process is not None:
            process.kill()


@dataclass(frozen=True)
class _Lost:
    """In place of an answer: the process died, or did not answer in time."""

    why: str


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _serve(pipe: Connection, maker: EnvMaker, index: int) -> None:
    """A worker process: make an environment, and follow the pipe's commands until it ends."""
    # Ctrl-C and a closed terminal reach the whole group, and a batch system signals every process;
    # the trainer alone decides what to do, and ends this process when it has saved.
    signals.ignore()

    def reply(kind: str, answer: Any) -> None:
        with suppress(OSError):  # the trainer is gone, which the next recv() will notice
            pipe.send((kind, answer))

    try:
        env = maker.make(index)
    except T3DError as error:
        reply("refused", str(error))
        return
    reply("ready", Spaces.of(env))
    rows: _Rows | None = None
    row = 0
    while True:
        try:
            command, *arguments = pipe.recv()
        except (EOFError, OSError):  # the trainer is gone
            command = "close"
        if command == "close":
            env.close()
            if rows is not None:
                rows.close()
            return
        answer: list[Any] = []
        try:
            if command == "attach":
                name, count, row = arguments
                rows = _Rows(count, env.layout, name)
            else:
                assert rows is not None
                rows.array[row], *answer = _execute(env, command, arguments)
        except BrokenEnvironment as error:
            reply("broken", str(error))
        except Exception as error:
            reply("broken", f"the process of environment {index}: {blame(error)}")
        else:
            reply("done", answer)


def _execute(env: GuardedEnv, command: str, arguments: list[Any]) -> tuple[Any, ...]:
    """An observation, and the rest of the answer."""
    if command == "step":
        return env.step(*arguments)[:4]
    if command == "reset":
        return env.reset(seed=arguments[0])[:1]
    return (env.replay(*arguments),)
