"""Environments that tell something in `info`."""

from typing import Any

import numpy as np

from helpers.broken_envs import Calm


class Telling(Calm):
    """Two numbers, and a success if the last action was large enough; five steps."""

    def step(self, action: Any) -> Any:
        observation, reward, *ends, _ = super().step(action)
        info = {"cost": float(action[0]), "count": self.count, "near": action[1] > 0, "text": "x"}
        return observation, reward, *ends, info | {"is_success": bool(action[0] > 0)}


class Goals(Calm):
    """A success in every second episode, as its seed decides, in NumPy's types as in robotics."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.wins = (seed or 0) % 2
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"is_success": np.float32(self.wins)}


class Winner(Calm):
    """Every episode is a success."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"success": True}
