"""Environments that misbehave, one way each, and some that behave."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple


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


class NestedObservations(Calm):
    observation_space = Dict({"a": Dict({"b": Box(-1, 1, (3,), np.float32)})})


class FloatImages(Calm):
    observation_space = Box(0, 1, (48, 48, 3), np.float32)


class MatrixObservations(Calm):
    observation_space = Box(-1, 1, (3, 3), np.float32)


def _answers(**changes: Any) -> Any:
    """A step of Calm with something else in it, from the third step of an episode on."""

    def step(self: Calm, action: Any) -> Any:
        names = ("observation", "reward", "terminated", "truncated", "info")
        answer = dict(zip(names, Calm.step(self, action)))
        return tuple((answer | (changes if self.count >= 3 else {})).values())

    return step


class NanReward(Calm):
    step = _answers(reward=float("nan"))


class RewardBeyondFloat32(Calm):
    step = _answers(reward=1e39)


class RewardOfTwo(Calm):
    step = _answers(reward=np.ones(2))


class NoReward(Calm):
    step = _answers(reward=None)


class InfiniteObservation(Calm):
    step = _answers(observation=np.array([0, np.inf, 0], np.float32))


class ObservationBeyondFloat32(Calm):
    step = _answers(observation=np.array([0, 1e300, 0]))


class LongObservation(Calm):
    step = _answers(observation=np.zeros(4, np.float32))


class ScalarObservation(Calm):
    step = _answers(observation=0.5)


class TextObservation(Calm):
    step = _answers(observation="left")


class NoObservation(Calm):
    step = _answers(observation=None)


class RaggedObservation(Calm):
    step = _answers(observation=[[1.0], [2.0, 3.0]])


class ObjectObservation(Calm):
    step = _answers(observation=np.array([object()] * 3))


class TwoEnds(Calm):
    step = _answers(terminated=np.array([True, False]))


class SixValues(Calm):
    step = _answers(more=1)


class StepReturnsNothing(Calm):
    def step(self, action: Any) -> Any:
        super().step(action)


class RaisesAtReset(Calm):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("the arm is not there")


class RaisesAtSecondReset(Calm):
    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        if self.resets == 2:
            raise RuntimeError("the arm is tired")
        return super().reset(seed=seed)


class ExitsPython(Calm):
    def step(self, action: Any) -> Any:
        raise SystemExit(3)


class ResetReturnsNothing(Calm):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)


class ResetReturnsThree(Calm):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return *super().reset(seed=seed), 1


class HalfBounded(Calm):
    action_space = Box(np.array([-1, -np.inf], np.float32), np.array([1, 1], np.float32))


class NoActions(Calm):
    action_space = Box(-1, 1, (0,), np.float32)


class DiscreteParts(Calm):
    observation_space = Tuple((Box(-1, 1, (3,), np.float32), Discrete(2)))


class Lottery(Calm):
    """Not deterministic: its observations come from nowhere."""

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32), *rest


class Numbered(Calm):
    """Says which episode it is in, and at which step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = (seed or 0) % 2**20
        return np.array([self.number, 0, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return np.array([self.number, self.count, 0], np.float32), *rest


class Stuck(Calm):
    """Hangs in its second step."""

    def step(self, action: Any) -> Any:
        if self.count == 1:
            time.sleep(600)
        return super().step(action)


class MadeOnce(Calm):
    """Can be created only once: it creates the file that MADE_ONCE names."""

    def __init__(self) -> None:
        Path(os.environ["MADE_ONCE"]).touch(exist_ok=False)


class Remembers(Calm):
    """Carries state over: how many episodes this object has played before."""

    episodes = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)


class RemembersInReward(Remembers):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward + 0.01 * self.episodes, *rest


class RemembersInEnds(Remembers):
    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, facts = super().step(action)
        return observation, reward, self.count == 3 + self.episodes % 2, truncated, facts


class RemembersLate(Remembers):
    """Wears out: its first twelve episodes are as they should be."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward - 0.01 * max(0, self.episodes - 12), *rest


class SharesMemory(Calm):
    """Carries state over from object to object, by its class."""

    steps = 0

    def step(self, action: Any) -> Any:
        SharesMemory.steps += 1
        observation, reward, *rest = super().step(action)
        return observation, reward + 0.01 * SharesMemory.steps, *rest


WELL_BEHAVED = (
    *(Calm, Lottery, Numbered, Stuck, MadeOnce),
    *(Remembers, RemembersInReward, RemembersInEnds, RemembersLate, SharesMemory),
)


def not_an_environment() -> int:
    return 7


gym.register("Calm-v0", "helpers.broken_envs:Calm")
