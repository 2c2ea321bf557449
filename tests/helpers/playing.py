"""An environment whose actions can be read off its observations, and random play in it."""

from typing import Any

import gymnasium as gym
import numpy as np

from helpers.broken_envs import Calm
from t3d import Config, ReplayBuffer
from t3d.base.numbers import Array
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.play.vector import Environments


class Lopsided(Calm):
    """Bounds that differ per dimension and are not symmetric, as CarRacing's."""

    action_space = gym.spaces.Box(
        np.array([-1, 0, 10], np.float32), np.array([1, 2, 50], np.float32)
    )
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.append(action, self.count), 0.0, False, self.count >= 5, {}


def played(**knobs: Any) -> ReplayBuffer:
    """What is stored of 400 steps, with a policy that plays the middle of the range."""
    config = Config(env="-", **knobs)
    environments = Environments(EnvMaker(Lopsided, config))
    environments.reset()
    collector = Collector(environments, config)
    memory = ReplayBuffer(10_000, 4, 3)

    def middle(states: Array) -> Array:
        return np.tile(np.array([0, 1, 30], np.float32), (len(states), 1))

    for _ in range(400):
        collector.step(middle, memory)
    environments.close()
    return memory
