"""Environments that take their time."""

import os
import time
from typing import Any

import gymnasium as gym


def uneven() -> gym.Env[Any, Any]:
    """A pendulum that is ten times as slow in some processes as in others."""
    return _Uneven(gym.make("Pendulum-v1"))


class _Uneven(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(0.01 if os.getpid() % 2 else 0.001)
        return self.env.step(action)
