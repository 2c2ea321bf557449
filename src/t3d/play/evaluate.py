"""Noiseless episodes, separate from training."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.play.envs import GuardedEnv

Policy = Callable[[Array], Array]  # states (n, state_dim) -> actions (n, action_dim)
_ENDLESS = 100_000  # steps after which an episode is taken to have no end


class Score(NamedTuple):
    """The returns of a set of episodes."""

    returns: list[float]
    lengths: list[int]
    starts: list[Array]  # the first state of each episode
    discounted: list[float]  # the discounted return from there
    cut_off: list[float]  # the weight of what a time limit cut off, 0 where the episode terminated

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))


def evaluate(
    policy: Policy,
    env: GuardedEnv,
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
        state, _ = env.reset(seed=derived_seed(seed, purpose, episode))
        start, total, discounted, length = state.copy(), 0.0, 0.0, 0
        terminated = truncated = False
        while not (terminated or truncated):
            if stop():
                return score
            if length == _ENDLESS:
                advice = "set --max-episode-steps"
                raise BadInput(f"{env.name}: an episode has {length:,} steps and no end; {advice}")
            state, reward, terminated, truncated, _ = env.step(policy(state[None])[0])
            total += reward
            discounted += discount**length * reward
            length += 1
        score.returns.append(total)
        score.lengths.append(length)
        score.starts.append(start)
        score.discounted.append(discounted)
        score.cut_off.append(0.0 if terminated else discount**length)
    return score
