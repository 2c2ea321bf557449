"""Environments that are seen in many ways."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Camera(gym.Env[Any, Any]):
    """A square moves over an image by as much as the action says, from left to right and back."""

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space: Any = gym.spaces.Box(0, 255, (32, 40, 3), np.uint8)

    def look(self) -> Any:
        image = np.zeros((32, 40, 3), np.uint8)
        image[10:20, self.place : self.place + 8] = (255, 200, 50)
        image[:2, : self.count] = 90  # no two frames of an episode are the same
        return image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.count = int(self.np_random.integers(0, 32)), 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        self.place = int(np.clip(self.place + round(8 * float(action[0])), 0, 32))
        reward = 1 - abs(self.place - 16) / 16
        return self.look(), reward, False, self.count >= 8, {}


class ChannelsFirst(Camera):
    observation_space = gym.spaces.Box(0, 255, (3, 32, 40), np.uint8)

    def look(self) -> Any:
        return np.moveaxis(super().look(), 2, 0)


class Grey(Camera):
    observation_space = gym.spaces.Box(0, 255, (32, 40), np.uint8)

    def look(self) -> Any:
        return super().look()[:, :, 0]


class Robot(Camera):
    """Two cameras, joints and a thermometer."""

    observation_space = gym.spaces.Dict(
        {
            "joints": gym.spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "front": gym.spaces.Box(0, 255, (32, 40, 3), np.uint8),
            "back": gym.spaces.Box(0, 255, (1, 36, 36), np.uint8),
            "warmth": gym.spaces.Box(0, 100, (), np.float32),
        }
    )

    def look(self) -> Any:
        joints = np.array([self.place, self.count, -1.5])
        back = np.full((1, 36, 36), self.count, np.uint8)
        return {"joints": joints, "front": super().look(), "back": back, "warmth": 20.5}


class Sensors(Camera):
    """Vectors alone, by name."""

    observation_space = gym.spaces.Dict(
        {
            "b": gym.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "a": gym.spaces.Box(0, 1000, (1,), np.int64),
        }
    )

    def look(self) -> Any:
        return {"b": np.array([self.place, self.count]), "a": np.array([self.count])}


class Pair(Camera):
    observation_space = gym.spaces.Tuple(
        (gym.spaces.Box(-1, 100, (2,), np.float32), gym.spaces.Box(-1, 100, (1,), np.float32))
    )

    def look(self) -> Any:
        return np.array([self.place, self.count], np.float32), np.array([7], np.float32)
