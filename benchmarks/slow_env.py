"""A pendulum with a slow simulator. Importing this module registers it with Gymnasium."""

import time
from functools import partial
from typing import Any

import gymnasium


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Every step sleeps for some milliseconds, as if another machine computed it."""

    def __init__(self, milliseconds: float) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self._seconds = milliseconds / 1000

    def step(self, action: Any) -> Any:
        """Wait, then play."""
        time.sleep(self._seconds)
        return self.env.step(action)


for milliseconds in (10, 100):
    gymnasium.register(f"Slow{milliseconds}-v0", partial(Slow, milliseconds))
