"""Noiseless episodes, separate from training."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.play.envs import EnvMaker, GuardedEnv
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

    def __str__(self) -> str:
        return f"{self.mean:,.1f} ± {self.std:,.1f} over {len(self.returns)} episodes"

    def __repr__(self) -> str:  # without the states
        return f"Score(mean={self.mean:g}, std={self.std:g}, episodes={len(self.returns)})"

    def add(
        self, total: float, length: int, start: Array, discounted: float, cut_off: float
    ) -> None:
        """Append an episode."""
        self.returns.append(total)
        self.lengths.append(length)
        self.starts.append(start)
        self.discounted.append(discounted)
        self.cut_off.append(cut_off)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))


def evaluation_env(maker: EnvMaker) -> EvaluationEnv:
    """An environment to evaluate in: where those of training run, in this process or not."""
    return WorkerEnv(maker) if maker.config.env_backend == "processes" else maker.make()


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
    score = Score([], [], [], [], [])
    for episode in episodes:
        one = None
        while one is None:
            if stop():
                return score
            try:
                one = _play(policy, env, derived_seed(seed, purpose, episode), discount, stop)
            except EpisodeLost:  # the same seed in its next process: the same episode
                continue
        score.add(*one)
    return score


def _play(
    policy: Policy, env: EvaluationEnv, seed: int, discount: float, stop: Callable[[], bool]
) -> tuple[float, int, Array, float, float] | None:
    """Play one episode, for Score.add; None if it was stopped."""
    state, _ = env.reset(seed=seed)
    start, total, discounted, length = state.copy(), 0.0, 0.0, 0
    terminated = truncated = False
    while not (terminated or truncated):
        if stop():
            return None
        if length == _ENDLESS:
            advice = "set --max-episode-steps"
            raise BadInput(f"{env.name}: an episode has {length:,} steps and no end; {advice}")
        state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
        total += reward
        discounted += discount**length * reward
        length += 1
    return total, length, start, discounted, 0.0 if terminated else discount**length
