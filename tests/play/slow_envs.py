"""Environments that take their time."""

import os
import time

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv


def uneven() -> gym.Env[np.ndarray, np.ndarray]:
    """A pendulum that is ten times as slow in some processes as in others."""
    return _Uneven()


class _Uneven(PendulumEnv):
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        time.sleep(0.01 if os.getpid() % 2 else 0.001)
        return super().step(action)
