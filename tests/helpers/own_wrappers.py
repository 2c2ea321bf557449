"""Wrappers, and an environment that takes arguments."""

from typing import Any

import gymnasium as gym
import numpy as np

from helpers.broken_envs import Calm


class Scale(gym.RewardWrapper[Any, Any]):
    """Multiplies rewards, then adds to them."""

    def __init__(self, env: gym.Env[Any, Any], factor: float = 1.0, plus: float = 0.0) -> None:
        super().__init__(env)
        self.factor, self.plus = factor, plus

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor + self.plus


def not_a_wrapper(env: gym.Env[Any, Any]) -> str:
    return "nothing"


def pendulum(**arguments: Any) -> gym.Env[Any, Any]:
    return gym.make("Pendulum-v1", **arguments)


class Robot(Calm):
    """Its third number is its mass; its size may be another."""

    def __init__(self, mass: float, size: int = 3, parts: Any = ()) -> None:
        self.mass, self.parts = mass, parts
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def _seen(self, observation: Any) -> Any:
        size = self.observation_space.shape[0]  # type: ignore[index]
        return np.resize(np.append(observation[:2], self.mass), size).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        if isinstance(self.parts, list):
            self.parts.append(1)  # its own, not the config's
        return self._seen(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        action[:] = 7  # its own, too
        return self._seen(observation), *rest
