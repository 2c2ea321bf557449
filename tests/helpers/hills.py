"""An environment whose slope can be set from outside.

Workers import it: a module without PyTorch saves each of them a second.
"""

from typing import Any

import gymnasium as gym


class Hill(gym.Env[Any, Any]):
    """A number that falls by `slope` at each step: the observation shows which slope it had."""

    observation_space = gym.spaces.Box(-100, 100, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.slope = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.height = float(self.np_random.uniform(5, 6))
        return [self.height, self.slope], {}

    def step(self, action: Any) -> Any:
        self.height -= self.slope * (1.5 + float(action[0]))
        return [self.height, self.slope], -abs(self.height), self.height < 0, False, {}
