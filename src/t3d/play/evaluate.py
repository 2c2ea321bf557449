"""Noiseless episodes, separate from training."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.machine import cores
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.base.text import percent
from t3d.play.envs import Answer, EnvMaker, GuardedEnv, Spaces
from t3d.play.info import LIMIT, EpisodeInfo
from t3d.play.workers import WorkerEnv

EvaluationEnv = GuardedEnv | WorkerEnv
Policy = Callable[[Array], Array]  # states (n, state_dim) -> actions (n, action_dim)
_ENDLESS = 100_000  # steps after which an episode is taken to have no end


class Score(NamedTuple):
    """The returns of a set of episodes."""

    returns: list[float]
    lengths: list[int]
    starts: list[Array]  # the first state of each episode
    discounted: list[float]  # the discounted return from there
    cut_off: list[float]  # the weight of what a time limit cut off, 0 where the episode terminated
    infos: list[EpisodeInfo]  # whether each was a success, and the means of the info's numbers

    def __str__(self) -> str:
        success = "" if self.success is None else f", success {percent(self.success)}"
        return f"{self.mean:,.1f} ± {self.std:,.1f} over {len(self.returns)} episodes{success}"

    def __repr__(self) -> str:  # without the states
        success = "" if self.success is None else f", success={self.success:g}"
        episodes = len(self.returns)
        return f"Score(mean={self.mean:g}, std={self.std:g}, episodes={episodes}{success})"

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def success(self) -> float | None:
        """The share of successes among the episodes that say; None if none does."""
        successes = [info.success for info in self.infos if info.success is not None]
        return float(np.mean(successes)) if successes else None

    @property
    def info(self) -> dict[str, float]:
        """The mean of each number of the info over the episodes that had it."""
        names = dict.fromkeys(name for info in self.infos for name in info.means)
        return {
            name: float(np.mean([info.means[name] for info in self.infos if name in info.means]))
            for name in list(names)[:LIMIT]
        }


def evaluation_env(maker: EnvMaker, episodes: int | None = None) -> EvaluationEnv:
    """What to play so many episodes in: an environment here, or some in processes of their own.

    The number is that of the config's evaluations by default.
    """
    config = maker.config
    in_processes = config.env_backend == "processes" and not config.collectors
    # One more than cores: while the policy chooses an action for one, all cores are busy.
    count = config.eval_envs or (cores() + 1 if in_processes else 1)
    count = min(count, config.eval_episodes if episodes is None else episodes)
    maker = maker.for_evaluation()
    return WorkerEnv(maker, count) if count > 1 else separate_env(maker)


def separate_env(maker: EnvMaker) -> EvaluationEnv:
    """One environment, not for training, in this process or in its own."""
    return WorkerEnv(maker) if maker.config.env_backend == "processes" else maker.make()


def spaces_of(env: EvaluationEnv) -> Spaces:
    """The spaces of an environment in this process or in its own."""
    return Spaces.of(env) if isinstance(env, GuardedEnv) else env.spaces


def evaluate(
    policy: Policy,
    env: EvaluationEnv,
    episodes: Iterable[int],
    seed: int,
    purpose: Literal["evaluation", "test"] = "evaluation",
    discount: float = 1.0,
    stop: Callable[[], bool] = lambda: False,
) -> Score:
    """Play some full episodes without noise, by their numbers.

    Episode k is reset with a seed derived from (seed, purpose, k): the same call plays the same
    episodes. Training picks its best agent on "evaluation" episodes; nothing is picked on
    "test" episodes. Once `stop` says so, it returns the episodes that are finished.
    """
    numbers = ((episode, derived_seed(seed, purpose, episode)) for episode in episodes)
    if isinstance(env, WorkerEnv):
        finished = _play_together(policy, env, numbers, discount, stop)
    else:
        finished = _play_in_turn(policy, env, numbers, discount, stop)
    score = Score([], [], [], [], [], [])
    for number in sorted(finished):
        columns: tuple[list[Any], ...] = score
        for column, value in zip(columns, finished[number].row()):
            column.append(value)
    return score


class _Episode:
    """One in progress."""

    def __init__(self, start: Array, discount: float) -> None:
        self.state, self._start, self._discount = start, start.copy(), discount
        self._total, self._discounted, self._length = 0.0, 0.0, 0
        self._terminated = False
        self._info: EpisodeInfo | None = None  # known at the end

    def add(self, answer: Answer, name: str) -> bool:
        """Count a step; True if it was the last."""
        self.state, reward, self._terminated, _, self._info = answer
        self._total += reward
        self._discounted += self._discount**self._length * reward
        self._length += 1
        if self._info is None and self._length == _ENDLESS:
            advice = "set --max-episode-steps"
            raise BadInput(f"{name}: an episode has {self._length:,} steps and no end; {advice}")
        return self._info is not None

    def row(self) -> tuple[Any, ...]:
        """A value for each column of Score."""
        cut_off = 0.0 if self._terminated else self._discount**self._length
        return self._total, self._length, self._start, self._discounted, cut_off, self._info


def _play_in_turn(
    policy: Policy,
    env: GuardedEnv,
    numbers: Iterator[tuple[int, int]],
    discount: float,
    stop: Callable[[], bool],
) -> dict[int, _Episode]:
    """Play one episode after the other, by numbers and seeds; returns those that are finished."""
    finished: dict[int, _Episode] = {}
    for number, seed in numbers:
        if stop():
            break
        episode = _Episode(env.reset(seed=seed)[0], discount)
        while not stop():
            if episode.add(env.play(policy(episode.state[None])[0]), env.name):
                finished[number] = episode
                break
    return finished


def _play_together(
    policy: Policy,
    env: WorkerEnv,
    numbers: Iterator[tuple[int, int]],
    discount: float,
    stop: Callable[[], bool],
) -> dict[int, _Episode]:
    """The same with an episode in each process at a time, which gives the same numbers.

    For that, the policy sees one state at a time: the rounding of sums may depend on how many
    there are. Where a process is lost, its episode begins again in the next.
    """
    finished: dict[int, _Episode] = {}
    playing: dict[int, tuple[int, int]] = {}  # the number and the seed of each process's episode
    begun: dict[int, _Episode] = {}  # by process

    def begin_next(process: int) -> None:
        following = next(numbers, None)
        if following is not None:
            playing[process] = following
            env.ask_reset(process, following[1])

    try:
        for process in range(env.count):
            begin_next(process)
        while playing and not stop():
            for process, answer in env.some_answers().items():
                number, seed = playing[process]
                if answer is None:
                    begun.pop(process, None)
                    env.ask_reset(process, seed)
                    continue
                if process not in begun:
                    begun[process] = _Episode(answer[0], discount)
                elif begun[process].add(answer, env.name):
                    finished[number] = begun.pop(process)
                    del playing[process]
                    begin_next(process)
                    continue
                env.ask_step(process, policy(begun[process].state[None])[0])
    finally:
        env.settle()
    return finished
