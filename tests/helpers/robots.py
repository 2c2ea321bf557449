"""Hardware, as far as software can tell: there is one, and it counts what it is made to do."""

from typing import Any, ClassVar

import numpy as np

from helpers.broken_envs import Calm

LENGTH = 7  # steps of an episode


class Robot(Calm):
    """Refuses to be made twice, or used after its end; `forget` begins another process's life."""

    made: ClassVar = 0
    closed: ClassVar = 0
    resets: ClassVar = 0
    actions: ClassVar[list[Any]] = []

    @classmethod
    def forget(cls) -> None:
        cls.made = cls.closed = cls.resets = 0
        cls.actions = []

    def __init__(self) -> None:
        if Robot.made:
            raise RuntimeError("the robot is in use")
        Robot.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert not Robot.closed
        Robot.resets += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        assert not Robot.closed
        Robot.actions.append(np.copy(action))
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.count >= LENGTH, info

    def close(self) -> None:
        Robot.closed += 1
