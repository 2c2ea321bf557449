"""Environments in processes of their own, which are watched."""

import multiprocessing
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.play.envs import Answer, EnvMaker, GuardedEnv, Spaces, blame

_LONGEST = 1e6  # seconds that one can wait for; more is for ever
_STARTING = 300.0  # seconds that a new process has to import and make its environment


class Workers:
    """Environments in processes of their own, which are watched.

    One whose process dies, or does not answer in time, gets a new one and begins a new episode.
    Observations come through shared memory, since images are large; all else goes through pipes.
    """

    def __init__(self, maker: EnvMaker, indices: range) -> None:
        """Start environments with these indices, each in a process of its own."""
        self._maker, self._indices = maker, indices
        self._deadline = maker.config.env_deadline or float("inf")
        self._max_restarts = maker.config.env_restarts
        self._restarted = [0] * len(indices)
        self._news: list[tuple[int, str]] = []
        self._processes: list[Any] = [None] * len(indices)
        self._pipes: list[Connection | None] = [None] * len(indices)
        self._rows: _Rows | None = None
        # They do not listen to SIGTERM, by which Python would end them at its own exit.
        Finalize(self, _kill_all, (self._processes,), exitpriority=10)
        try:
            for index in range(len(indices)):
                self._start(index)
            made = [self._found(index, _STARTING) for index in range(len(indices))]
            self.spaces: Spaces = made[0]
            self._rows = _Rows(len(indices), self.spaces.layout)
            for index in range(len(indices)):
                self._share(index)
                self._found(index, _STARTING)
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
        process.start()
        theirs.close()
        self._processes[index], self._pipes[index] = process, mine

    def _named(self, index: int) -> str:
        return f"the process of environment {self._indices[index]}"

    def _share(self, index: int) -> None:
        """Tell a new process where its observations go."""
        assert self._rows is not None
        self._ask(index, "share", self._rows.name, len(self._indices), index)

    def _row(self, index: int) -> Array:
        """What an environment showed last."""
        assert self._rows is not None
        row: Array = self._rows.array[index].copy()
        return row

    def _ask(self, index: int, *question: Any) -> None:
        pipe = self._pipes[index]
        assert pipe is not None
        try:
            pipe.send(question)
        except (BrokenPipeError, ConnectionError):
            pass  # it is dead, which shows when it does not answer

    def _answer(self, index: int, until: float) -> Any:
        """What a process has to say, or that it is lost. What broke in it is raised here."""
        pipe = self._pipes[index]
        assert pipe is not None
        try:
            left = until - time.monotonic()
            if not pipe.poll(None if left > _LONGEST else max(0.0, left)):
                return _Lost(f"did not answer within {self._deadline:g} s")
            kind, answer = pipe.recv()
        except (EOFError, OSError):
            self._processes[index].join(timeout=5)
            return _Lost(f"died ({_ending(self._processes[index].exitcode)})")
        if kind == "broken":
            raise BrokenEnvironment(answer)
        if kind == "refused":
            raise BadInput(answer)
        return answer

    def _found(self, index: int, seconds: float) -> Any:
        """What a process has to say, which must not be lost."""
        answer = self._answer(index, time.monotonic() + seconds)
        if isinstance(answer, _Lost):
            raise BrokenEnvironment(f"{self._named(index)} {answer.why}")
        return answer

    def _answers(self, indices: Iterable[int]) -> dict[int, Any]:
        until = time.monotonic() + self._deadline
        return {index: self._answer(index, until) for index in indices}

    def _restart(self, index: int, why: str) -> None:
        """A new process for an environment, if it has not had too many."""
        made: Any = _Lost(why)
        while isinstance(made, _Lost):
            self._kill(index)
            if self._restarted[index] == self._max_restarts:
                times = f", after {self._max_restarts} restarts" if self._max_restarts else ""
                what = f"{self._named(index)} {made.why}{times}"
                raise BrokenEnvironment(what)
            self._restarted[index] += 1
            self._news.append((index, made.why))
            try:
                self._start(index)
                made = self._answer(index, time.monotonic() + _STARTING)
                if not isinstance(made, _Lost):
                    self._share(index)
                    made = self._answer(index, time.monotonic() + _STARTING)
            except (T3DError, OSError) as error:
                what = f"{self._named(index)} {made.why}, and cannot be restarted"
                raise BrokenEnvironment(f"{what}: {error}") from error

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each; None where the process was lost and is another now."""
        for index, row in enumerate(action):
            self._ask(index, "step", row)
        answers = self._answers(range(len(action)))
        found: list[Answer | None] = []
        for index, answer in answers.items():
            if isinstance(answer, _Lost):
                self._restart(index, answer.why)
                found.append(None)
            else:
                found.append((self._row(index), *answer))
        return found

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        for index, seed in seeds.items():
            self._ask(index, "reset", seed)
        found = self._answers(seeds)
        for index, seed in seeds.items():
            while isinstance(found[index], _Lost):
                self._restart(index, found[index].why)
                self._ask(index, "reset", seed)
                found |= self._answers([index])
        return {index: self._row(index) for index in seeds}

    def replay(self, seeds: list[int], played: list[Array]) -> list[Array]:
        """Begin an episode in each, and play some actions."""
        for index, given in enumerate(zip(seeds, played)):
            self._ask(index, "replay", *given)
        deadline = self._deadline * max(1, *map(len, played), 1)
        for index in range(len(seeds)):
            self._found(index, deadline)
        return [self._row(index) for index in range(len(seeds))]

    def take_restarts(self) -> list[tuple[int, str]]:
        """Which were restarted since this was asked last, and why."""
        news, self._news = self._news, []
        return news

    def _kill(self, index: int) -> None:
        process, pipe = self._processes[index], self._pipes[index]
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()
            self._pipes[index] = None

    def close(self) -> None:
        """End them, in their own way if they are quick."""
        for index, pipe in enumerate(self._pipes):
            if pipe is not None:
                self._ask(index, "close")
        until = time.monotonic() + 2
        for index, process in enumerate(self._processes):
            if process is not None and self._pipes[index] is not None:
                process.join(timeout=max(0.0, until - time.monotonic()))
            self._kill(index)
        if self._rows is not None:
            self._rows.close()
            self._rows = None


class _Rows:
    """Observations in memory that several processes see; whoever names none makes it."""

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
        # Also at an exit that closes nothing: what has a name outlives its processes.
        self._end = Finalize(self, self._memory.unlink, exitpriority=10) if name is None else None
        self.name = self._memory.name
        self.array: Array = np.ndarray((count, layout.size), layout.dtype, self._memory.buf)

    def close(self) -> None:
        """Let go of it; nothing may look at the array any more."""
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
    """The answer of a process that does not answer."""

    why: str


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _serve(pipe: Connection, maker: EnvMaker, index: int) -> None:
    """A worker process: make an environment, and do what the pipe says until it ends."""
    # Ctrl-C reaches the whole terminal group, and a batch system tells every process to end;
    # the trainer alone decides what that means, and ends this one when it has saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def say(kind: str, answer: Any) -> None:
        with suppress(OSError):  # the trainer is gone, which shows when it is to be heard
            pipe.send((kind, answer))

    try:
        env = maker.make(index)
    except T3DError as error:
        say("refused", str(error))
        return
    say("made", Spaces.of(env))
    rows: _Rows | None = None
    row = 0
    while True:
        try:
            word, *given = pipe.recv()
        except (EOFError, OSError):  # the trainer is gone
            word = "close"
        if word == "close":
            env.close()
            if rows is not None:
                rows.close()
            return
        answer: list[Any] = []
        try:
            if word == "share":
                name, count, row = given
                rows = _Rows(count, env.layout, name)
            else:
                assert rows is not None
                rows.array[row], *answer = _do(env, word, given)
        except BrokenEnvironment as error:
            say("broken", str(error))
        except Exception as error:
            say("broken", f"the process of environment {index}: {blame(error)}")
        else:
            say("done", answer)


def _do(env: GuardedEnv, word: str, given: list[Any]) -> tuple[Any, ...]:
    """An observation, and what else there is to say."""
    if word == "step":
        return env.step(*given)[:4]
    if word == "reset":
        return env.reset(seed=given[0])[:1]
    return (env.replay(*given),)
