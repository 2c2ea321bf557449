"""Noiseless episodes, separate from training."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.base.text import percent
from t3d.play.envs import EnvMaker, GuardedEnv, Spaces
from t3d.play.info import LIMIT, EpisodeInfo
from t3d.play.workers import EpisodeLost, WorkerEnv

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


def evaluation_env(maker: EnvMaker) -> EvaluationEnv:
    """An environment to evaluate in: where those of training run, in this process or not."""
    return separate_env(maker.for_evaluation())


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
    score = Score([], [], [], [], [], [])
    for episode in episodes:
        one = None
        while one is None:
            if stop():
                return score
            try:
                one = _play(policy, env, derived_seed(seed, purpose, episode), discount, stop)
            except EpisodeLost:  # the same seed in its next process: the same episode
                continue
        columns: tuple[list[Any], ...] = score
        for column, value in zip(columns, one):
            column.append(value)
    return score


def _play(
    policy: Policy, env: EvaluationEnv, seed: int, discount: float, stop: Callable[[], bool]
) -> tuple[Any, ...] | None:
    """Play one episode, for each column of Score; None if it was stopped."""
    state, _ = env.reset(seed=seed)
    start, total, discounted, length = state.copy(), 0.0, 0.0, 0
    info: EpisodeInfo | None = None  # known at the end
    while info is None:
        if stop():
            return None
        if length == _ENDLESS:
            advice = "set --max-episode-steps"
            raise BadInput(f"{env.name}: an episode has {length:,} steps and no end; {advice}")
        state, reward, terminated, _, info = env.play(policy(state[None])[0])
        total += reward
        discounted += discount**length * reward
        length += 1
    return total, length, start, discounted, 0.0 if terminated else discount**length, info
