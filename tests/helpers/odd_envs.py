"""Environments that follow the rules and still cause trouble.

In some, one instance differs from the others, whichever process creates it.
"""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from helpers.broken_envs import Calm


def _number(folder: str) -> int:
    """The number of instances before this one."""
    for number in itertools.count():
        try:
            os.close(os.open(Path(folder) / str(number), os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            continue
    raise AssertionError


def one_is_slow(folder: str) -> gym.Env[Any, Any]:
    """A pendulum; the second instance is ten times as slow as the others."""
    return _Slow(0.01 if _number(folder) == 1 else 0.001)


def one_breaks(folder: str) -> gym.Env[Any, Any]:
    """A pendulum; the second instance breaks at its 31st step."""
    return _Breaks() if _number(folder) == 1 else gym.make("Pendulum-v1")


def one_dies(folder: str) -> gym.Env[Any, Any]:
    """A pendulum; the process of the second instance ends at its 41st step."""
    return _Fails(os._exit, 3) if _number(folder) == 1 else gym.make("Pendulum-v1")


def one_hangs(folder: str) -> gym.Env[Any, Any]:
    """A pendulum; the second instance hangs at its 41st step."""
    return _Fails(time.sleep, 600) if _number(folder) == 1 else gym.make("Pendulum-v1")


class _Fails(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, failure: Callable[[int], object], how: int) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self._failure, self._how, self._left = failure, how, 40

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._left -= 1
        if self._left < 0:
            self._failure(self._how)
        return self.env.step(action)


class _Slow(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, seconds: float) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self._seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        return self.env.step(action)


class _Breaks(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self._left = 30

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("out of order")
        return self.env.step(action)


class HugeReward(Calm):
    """A reward that is finite, as the rules demand, but too large for any critic."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, 3e38, *rest


class HugeObservation(Calm):
    """Observations whose squares are beyond float32."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return 2.0**70 * observation, *rest
