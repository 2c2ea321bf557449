"""N environments side by side, here or in processes: the one place that knows about resets."""

import multiprocessing
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from t3d.config import Config
from t3d.errors import T3DError
from t3d.numbers import as_floats
from t3d.observation import Layout
from t3d.play.envs import BrokenEnvironmentError, EnvSource, GuardedEnv, blame, make
from t3d.randomness import derived_seed

Array = NDArray[Any]
Answer = tuple[Array, float, bool, bool]  # observation, reward, terminated, truncated
_LONGEST = 1e6  # seconds that one can wait for; more is for ever
_STARTING = 300.0  # seconds that a new process has to import and make its environment


class Spaces(NamedTuple):
    """What all of the environments have in common."""

    layout: Layout
    low: Array
    high: Array

    @classmethod
    def of(cls, env: GuardedEnv) -> "Spaces":
        """Those of one of them."""
        action = env.action_space
        assert isinstance(action, gym.spaces.Box)
        return cls(env.layout, as_floats(action.low), as_floats(action.high))


@dataclass(frozen=True)
class _Maker:
    """Makes environment `index`, here or in a worker process."""

    source: EnvSource
    config: Config
    index: int

    def __call__(self) -> GuardedEnv:
        return make(self.source, self.config, index=self.index)


class InProcess:
    """Environments that play one after the other.

    Between two updates the processor has forgotten all that Python does here, so little is done.
    """

    def __init__(self, makers: list[_Maker]) -> None:
        self.envs: list[GuardedEnv] = []
        try:
            for maker in makers:
                self.envs.append(maker())
        except BaseException:
            self.close()
            raise
        self.spaces = Spaces.of(self.envs[0])

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each."""
        return [env.step(row)[:4] for env, row in zip(self.envs, action)]

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        return {index: self.envs[index].reset(seed=seed)[0] for index, seed in seeds.items()}

    def replay(self, seeds: list[int], played: list[Array]) -> list[Array]:
        """Begin an episode in each, and play some actions."""
        return [env.replay(seed, rows) for env, seed, rows in zip(self.envs, seeds, played)]

    def take_restarts(self) -> list[tuple[int, str]]:
        """There are none here."""
        return []

    def close(self) -> None:
        """End them."""
        for env in self.envs:
            env.close()


class Workers:
    """Environments in processes of their own, which are watched.

    One whose process dies, or does not answer in time, gets a new one and begins a new episode.
    """

    def __init__(self, makers: list[_Maker], deadline: float, restarts: int) -> None:
        """Start them. One may be restarted so many times; a deadline of 0 is none."""
        self._makers = makers
        self._deadline = deadline or float("inf")
        self._most = restarts
        self._restarted = [0] * len(makers)
        self._news: list[tuple[int, str]] = []
        self._processes: list[Any] = [None] * len(makers)
        self._pipes: list[Connection | None] = [None] * len(makers)
        # They do not listen to SIGTERM, by which Python would end them at its own exit.
        Finalize(self, _kill_all, (self._processes,), exitpriority=10)
        try:
            for index in range(len(makers)):
                self._start(index)
            made = [
                self._answer(index, time.monotonic() + _STARTING) for index in range(len(makers))
            ]
        except BaseException:
            self.close()
            raise
        for index, answer in enumerate(made):
            if isinstance(answer, _Lost):
                self.close()
                raise BrokenEnvironmentError(f"the process of environment {index} {answer.why}")
        self.spaces: Spaces = made[0]

    def _start(self, index: int) -> None:
        # Spawned, not forked: a fork copies the locks of PyTorch's threads, held or not.
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, self._makers[index]), name=f"env-{index}", daemon=True
        )
        process.start()
        theirs.close()
        self._processes[index], self._pipes[index] = process, mine

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
            raise BrokenEnvironmentError(answer)
        if kind == "refused":
            raise T3DError(answer)
        return answer

    def _answers(self, indices: Iterable[int]) -> dict[int, Any]:
        until = time.monotonic() + self._deadline
        return {index: self._answer(index, until) for index in indices}

    def _restart(self, index: int, why: str) -> None:
        """A new process for an environment, if it has not had too many."""
        made: Any = _Lost(why)
        while isinstance(made, _Lost):
            self._kill(index)
            if self._restarted[index] == self._most:
                times = f", after {self._most} restarts" if self._most else ""
                what = f"the process of environment {index} {made.why}{times}"
                raise BrokenEnvironmentError(what)
            self._restarted[index] += 1
            self._news.append((index, made.why))
            try:
                self._start(index)
                made = self._answer(index, time.monotonic() + _STARTING)
            except (T3DError, OSError) as error:
                what = f"the process of environment {index} {made.why}, and cannot be restarted"
                raise BrokenEnvironmentError(f"{what}: {error}") from error

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each; None where the process was lost and is another now."""
        for index, row in enumerate(action):
            self._ask(index, "step", row)
        answers = self._answers(range(len(action)))
        found: list[Answer | None] = []
        for index, answer in answers.items():
            if isinstance(answer, _Lost):
                self._restart(index, answer.why)
                answer = None
            found.append(answer)
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
        return found

    def replay(self, seeds: list[int], played: list[Array]) -> list[Array]:
        """Begin an episode in each, and play some actions."""
        for index, given in enumerate(zip(seeds, played)):
            self._ask(index, "replay", *given)
        deadline = self._deadline * max(1, *map(len, played), 1)
        found = []
        for index in range(len(seeds)):
            answer = self._answer(index, time.monotonic() + deadline)
            if isinstance(answer, _Lost):
                raise BrokenEnvironmentError(f"the process of environment {index} {answer.why}")
            found.append(answer)
        return found

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


def _serve(pipe: Connection, maker: _Maker) -> None:
    """A worker process: make an environment, and do what the pipe says until it ends."""
    # Ctrl-C reaches the whole terminal group, and a batch system tells every process to end;
    # the trainer alone decides what that means, and ends this one when it has saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        env = maker()
    except T3DError as error:
        pipe.send(("refused", str(error)))
        return
    pipe.send(("made", Spaces.of(env)))
    while True:
        try:
            word, *given = pipe.recv()
        except EOFError:  # the trainer is gone
            word = "close"
        if word == "close":
            env.close()
            return
        try:
            answer = _do(env, word, given)
        except BrokenEnvironmentError as error:
            pipe.send(("broken", str(error)))
        except Exception as error:
            pipe.send(("broken", f"the process of environment {maker.index}: {blame(error)}"))
        else:
            pipe.send(("done", answer))


def _do(env: GuardedEnv, word: str, given: list[Any]) -> Any:
    if word == "step":
        return env.step(*given)[:4]
    if word == "reset":
        return env.reset(seed=given[0])[0]
    return env.replay(*given)


class Steps(NamedTuple):
    """What one step of all environments led to; row i is environment i."""

    next_state: Array  # where the action led, before any reset
    reward: Array
    terminated: Array
    truncated: Array
    lost: list[int]  # those that have not played it, since their process was lost


class Environments:
    """N environments that play side by side, and where each of them stands.

    Episode k of environment i is reset with a seed derived from (run seed, i, k), so any
    episode can be played again from that seed and its actions, which are kept until it ends.
    """

    def __init__(self, source: EnvSource, config: Config) -> None:
        makers = [_Maker(source, config, index) for index in range(config.num_envs)]
        self.vector: InProcess | Workers
        if config.env_processes:
            self.vector = Workers(makers, config.env_deadline, config.env_restarts)
        else:
            self.vector = InProcess(makers)
        self.low, self.high = self.vector.spaces.low, self.vector.spaces.high
        self.layout = self.vector.spaces.layout
        self.num_envs = config.num_envs
        self.seed = config.seed
        self.lost: list[int] = []
        self.episode = np.zeros(self.num_envs, np.int64)
        self.played: list[list[Array]] = [[] for _ in range(self.num_envs)]
        self.state: Array = np.zeros((self.num_envs, self.layout.size), self.layout.dtype)
        self._broken: BrokenEnvironmentError | None = None  # at a reset, after a good step

    def _seed(self, index: int) -> int:
        return derived_seed(self.seed, "reset", index, int(self.episode[index]))

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self._begin(range(self.num_envs))

    def _begin(self, which: Iterable[int]) -> None:
        """Begin the episodes whose turn it is."""
        for index in which:
            self.played[index] = []
        for index, observation in self.vector.reset({i: self._seed(i) for i in which}).items():
            self.state[index] = observation

    def check(self) -> None:
        """Raise what broke when the last step's episodes were to be followed by others."""
        if self._broken:
            raise self._broken

    def step(self, action: Array) -> Steps:
        """Play one action in each environment; those whose episode ended start the next."""
        answers = self.vector.step(action)
        next_state = np.empty_like(self.state)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        lost, ended = [], []
        for i, (answer, row) in enumerate(zip(answers, action.copy())):
            if answer is None:
                next_state[i] = self.state[i]
                lost.append(i)
                ended.append(i)
                continue
            next_state[i], reward[i], terminated[i], truncated[i] = answer
            self.played[i].append(row)
            if answer[2] or answer[3]:
                ended.append(i)
        self.state = next_state.copy()
        if ended:
            self.episode[ended] += 1
            try:
                self._begin(ended)
            except BrokenEnvironmentError as error:  # the step was good: it counts
                self._broken = error
        return Steps(next_state, reward, terminated, truncated, lost)

    def state_dict(self) -> dict[str, Array]:
        """Where each environment stands, as arrays."""
        width = len(self.low)
        played = [np.asarray(rows, np.float32).reshape(-1, width) for rows in self.played]
        return {
            "episode": self.episode.copy(),
            "played": np.concatenate(played),
            "lengths": np.array([len(rows) for rows in played]),
            "state": self.state.copy(),
            "begun": np.array(self._broken is None),
        }

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Stand where `state_dict` was taken: reset each episode and play its actions again.

        Where that leads elsewhere, the environment is not deterministic: `lost` names it, and
        it begins its next episode. The broken one is truncated, so none of its rows is wrong.
        """
        self.episode = arrays["episode"].copy()
        played = np.split(arrays["played"], np.cumsum(arrays["lengths"])[:-1])
        reached = self.vector.replay([self._seed(i) for i in range(self.num_envs)], played)
        self.state = np.stack(reached)
        self.played = [list(rows) for rows in played]
        lost = (self.state != arrays["state"]).any(axis=1)
        if not arrays["begun"]:  # those that did not come to their first step were nowhere yet
            lost &= arrays["lengths"] > 0
        self.lost = np.flatnonzero(lost).tolist()
        if self.lost:
            self.episode[lost] += 1
            self._begin(self.lost)

    def close(self) -> None:
        """End the environments, and their processes if they have any."""
        self.vector.close()
