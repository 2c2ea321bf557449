"""Environments that misbehave, one way each, and some that behave."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Calm(gym.Env[Any, Any]):
    """Three numbers, five steps, no surprise. The others break one thing each."""

    observation_space: gym.Space[Any] = Box(-1, 1, (3,), np.float32)
    action_space: gym.Space[Any] = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        observation = np.clip(np.append(action, 0.1 * self.count), -1, 1).astype(np.float32)
        return observation, float(-np.sum(action**2)), False, self.count >= 5, {}


class NanObservation(Calm):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        if self.count == 3:
            observation[1] = np.nan
        return observation, *rest


class InfiniteReward(Calm):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("inf") if self.count == 3 else 0.0, *rest


class NanAtReset(Calm):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(3, np.nan), {}


class WrongShape(Calm):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation[:2], *rest


class TextReward(Calm):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, "much", *rest


class FourValues(Calm):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class BareReset(Calm):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class Raises(Calm):
    def step(self, action: Any) -> Any:
        if self.count == 2:
            raise ZeroDivisionError("the arm fell off")
        return super().step(action)


class RaisesWhenMade(Calm):
    def __init__(self) -> None:
        raise OSError("no robot on /dev/arm")


class DiscreteActions(Calm):
    action_space = Discrete(3)


class UnboundedActions(Calm):
    action_space = Box(-np.inf, np.inf, (2,), np.float32)


class EmptyRange(Calm):
    action_space = Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32))


class MatrixActions(Calm):
    action_space = Box(-1, 1, (2, 2), np.float32)


class WholeNumberActions(Calm):
    action_space = Box(-1, 1, (2,), np.int64)


class DictObservations(Calm):
    observation_space = Dict({"a": Box(-1, 1, (3,), np.float32)})


class ImageObservations(Calm):
    observation_space = Box(0, 255, (48, 48, 3), np.uint8)


class MatrixObservations(Calm):
    observation_space = Box(-1, 1, (3, 3), np.float32)


class Lottery(Calm):
    """Not deterministic: its observations come from nowhere."""

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32), *rest


def not_an_environment() -> int:
    return 7


gym.register("Calm-v0", "broken_envs:Calm")
