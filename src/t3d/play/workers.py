"""Environments in processes of their own, which are restarted if they die or hang."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

from t3d.base import signals
from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.base.text import one_line
from t3d.play.envs import Answer, EnvMaker, Settings, Spaces, env_role
from t3d.play.serving import LOOK_EVERY, Row, serve

_SETTLE_LIMIT = 2.0  # seconds that processes have to answer when nobody waits for it any more
_START_LIMIT = 300.0  # seconds that a new process has to import and make its environment


class Workers:
    """Environments in processes of their own.

    If a process dies or does not answer in time, its environment gets a new process and begins a
    new episode. Observations come through shared memory, since images are large; everything
    else goes through pipes.
    """

    def __init__(self, maker: EnvMaker, indices: Sequence[int | None]) -> None:
        """Start environments with these indices (None: for evaluation), each in its own process."""
        self._maker, self._indices = maker, indices
        self._deadline = maker.config.env_deadline or float("inf")
        self._max_restarts = maker.config.env_restarts
        self._restart_counts = [0] * len(indices)
        self._restarts: list[tuple[int, str]] = []  # since take_restarts
        self.processes: list[Any] = [None] * len(indices)
        self._pipes: list[Connection | None] = [None] * len(indices)
        self._rows: list[Row | None] = [None] * len(indices)
        self._settings: list[Settings] = [{} for _ in indices]
        self._due: dict[int, float] = {}  # by when those that were asked by `ask` are to answer
        # They ignore SIGTERM, by which Python would end them at its own exit.
        Finalize(self, _kill_all, (self.processes,), exitpriority=10)
        try:
            for index in range(len(indices)):
                self._start(index)
            ready = [self._must_answer(index, _START_LIMIT) for index in range(len(indices))]
            self.spaces: Spaces
            self.time_limit: int | None
            self.spaces, self.time_limit = ready[0]
            for index in range(len(indices)):
                lost = self._attach(index)
                if lost:
                    raise BrokenEnvironment(f"{self._process_name(index)} {lost.why}")
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> None:
        # Spawned, not forked: a fork copies the locks of PyTorch's threads, held or not.
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        by_main_thread = threading.current_thread() is threading.main_thread()
        process = context.Process(
            target=serve,
            args=(theirs, self._maker, self._indices[index], by_main_thread),
            name=f"env-{index}",
            daemon=True,
        )
        try:
            with signals.held():
                resource_tracker.ensure_running()  # it would die of them, and be missed
            with signals.held():
                process.start()
        except OSError:
            raise
        except Exception as error:  # whatever an object raises that cannot be pickled
            if getattr(multiprocessing.process.current_process(), "_inheriting", False):
                what = "a process of an environment imports this script, which trains again"
                advice = 'put the training of the script below: if __name__ == "__main__":'
                raise BadInput(f"{what}; {advice}") from None
            name = self._maker.name
            what = f"environment {name!r} cannot be sent to a process of its own"
            why = "it is a lambda or a local function" if "<" in name else one_line(error)
            advice = "define it with def or class at the top of a module, and pass that"
            processes = self._maker.config.env_backend == "processes"
            other = "use --env-backend inline" if processes else "leave out --eval-envs"
            raise BadInput(f"{what}: {why}; {advice}, or {other}") from error
        finally:
            theirs.close()
        self.processes[index], self._pipes[index] = process, mine

    def _process_name(self, index: int) -> str:
        return f"the process of {env_role(self._indices[index])}"

    def _attach(self, index: int) -> "_Lost | None":
        """Tell a new process where to write its observations; returns that it is lost, if it is."""
        self._release(index)
        self._rows[index] = row = Row(self.spaces.layout)
        try:
            self._ask(index, "attach", row.name)
            answer = self._answer(index, time.monotonic() + _START_LIMIT)
        finally:
            row.unlink()  # both have it now; named memory would outlive a trainer that is killed
        return answer if isinstance(answer, _Lost) else None

    def _row(self, index: int) -> Array:
        """An environment's last observation."""
        row = self._rows[index]
        assert row is not None
        return row.array.copy()

    def _release(self, index: int) -> None:
        row, self._rows[index] = self._rows[index], None
        if row is not None:
            row.close()

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
        process = self.processes[index]
        try:
            while not pipe.poll(max(0.0, min(until - time.monotonic(), LOOK_EVERY))):
                if time.monotonic() >= until:
                    return _Lost(f"did not answer within {self._deadline:g} s")
                # A process that the environment forked keeps the pipe open.
                if not process.is_alive() and not pipe.poll(0):
                    raise EOFError
        except (EOFError, OSError):
            return self._died(index)
        return self._receive(index)

    def _receive(self, index: int) -> Any:
        """The answer that is in the pipe; an error in it is raised here."""
        pipe = self._pipes[index]
        assert pipe is not None
        try:
            kind, answer = pipe.recv()
        except (EOFError, OSError):
            return self._died(index)
        if kind == "broken":
            raise BrokenEnvironment(answer)
        if kind == "refused":
            raise BadInput(answer)
        return answer

    def _died(self, index: int) -> "_Lost":
        process = self.processes[index]
        process.join(timeout=5)
        return _Lost(f"died ({_ending(process.exitcode)})")

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
                    answer = self._attach(index)
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

    def ask(self, index: int, command: str, *arguments: Any) -> None:
        """Have one do something, and do not wait for it: `some_answers` has what comes of it."""
        if self._pipes[index] is None:
            self._restart(index, "was left behind")
        self._ask(index, command, *arguments)
        self._due[index] = time.monotonic() + self._deadline

    def some_answers(self) -> dict[int, tuple[Any, ...] | None]:
        """What some have answered to `ask`; None where the process was lost, and restarted.

        It waits for half a second at most, and is empty if there is no answer by then.
        """
        pipes: dict[Any, int] = {self._pipes[index]: index for index in self._due}
        ready = [pipes[pipe] for pipe in connection.wait(list(pipes), LOOK_EVERY)]
        answers: dict[int, Any] = {}
        for index in ready:
            del self._due[index]
            answers[index] = self._receive(index)
        now = time.monotonic()
        for index, due in list(self._due.items()):
            # A process that the environment forked keeps the pipe open.
            gone = not ready and not self.processes[index].is_alive()
            if gone or now >= due:
                del self._due[index]
                answers[index] = self._answer(index, due)
        for index, answer in answers.items():
            if isinstance(answer, _Lost):
                self._kill(index)
        for index, answer in answers.items():
            answers[index] = None
            if isinstance(answer, _Lost):
                self._restart(index, answer.why)
            else:
                answers[index] = self._row(index), *answer
        return answers

    def settle(self) -> None:
        """Drop all answers to `ask`. A process that does not soon answer is killed."""
        until = time.monotonic() + _SETTLE_LIMIT
        while self._due:
            index, due = self._due.popitem()
            with suppress(T3DError):  # nobody is interested any more
                if isinstance(self._answer(index, min(due, until)), _Lost):
                    self._kill(index)

    def configure(self, index: int, settings: Settings) -> None:
        """Set attributes of an environment whenever it begins an episode, from the next one on."""
        self._settings[index] = settings

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        for index, seed in seeds.items():
            self._ask(index, "reset", self._settings[index], seed)
        answers = self._answers(seeds)
        for index, seed in seeds.items():
            while isinstance(answers[index], _Lost):
                self._restart(index, answers[index].why)
                self._ask(index, "reset", self._settings[index], seed)
                answers |= self._answers([index])
        return {index: self._row(index) for index in seeds}

    def replay(self, episodes: dict[int, tuple[int, Array]]) -> dict[int, tuple[Array, int]]:
        """Begin an episode in those that have a seed, and play some actions."""
        for index, (seed, actions) in episodes.items():
            self._ask(index, "replay", self._settings[index], seed, actions)
        longest = max((len(actions) for _, actions in episodes.values()), default=0)
        deadline = self._deadline * max(1, longest)
        checksums = {index: self._must_answer(index, deadline)[0] for index in episodes}
        return {index: (self._row(index), checksums[index]) for index in episodes}

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
            self._release(index)


class WorkerEnv:
    """An environment to evaluate in, in a process of its own, or `count` of them.

    `reset`, `step` and `play` are those of the first, as of an environment in this process.
    """

    def __init__(self, maker: EnvMaker, count: int = 1) -> None:
        self.count = count
        self._workers = Workers(maker, [None] * count)
        self.name = maker.name
        self.spaces, self.time_limit = self._workers.spaces, self._workers.time_limit
        self.layout, self.low, self.high = self.spaces
        self.some_answers, self.settle = self._workers.some_answers, self._workers.settle

    def reset(self, *, seed: int) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        return self._workers.reset({0: seed})[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """The same as `play`, without an info."""
        return *self.play(action)[:4], {}

    def play(self, action: Array) -> Answer:
        """Play one action."""
        answer = self._workers.step(action[None])[0]
        if answer is None:
            what = f"the process of the evaluation environment ({self.name}) was lost"
            raise BrokenEnvironment(what)
        return answer

    def ask_reset(self, process: int, seed: int) -> None:
        """Have a process begin an episode; `some_answers` has its first state."""
        self._workers.ask(process, "reset", {}, seed)

    def ask_step(self, process: int, action: Array) -> None:
        """Have a process play an action; `some_answers` has the answer."""
        self._workers.ask(process, "step", action)

    def take_restarts(self) -> list[str]:
        """Why a process was restarted, each time since the last call."""
        return [why for _, why in self._workers.take_restarts()]

    def close(self) -> None:
        """End the processes."""
        self._workers.close()


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
        with suppress(ValueError):  # a real-time signal, which has no name
            return signal.Signals(-code).name
    return f"exit code {code}"
