"""A control rate: steps begin at the ticks of a clock, and those that begin late are counted."""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

clock: Callable[[], float] = time.monotonic  # seconds
sleep: Callable[[float], None] = time.sleep
_TOLERANCE = 0.1  # of a period; a step that begins later after its tick is late


class Lateness:
    """How many steps were played at a control rate, how many of them late, and by how much."""

    def __init__(self) -> None:
        self.steps = self.late = 0
        self.worst = 0.0  # seconds
        self._taken = 0, 0  # steps and late ones by the last `take`
        self._recent = 0.0  # the worst since then

    def add(self, seconds: float) -> None:
        """Count a step that was this late; 0 if it was in time."""
        self.steps += 1
        self.late += seconds > 0
        self.worst, self._recent = max(self.worst, seconds), max(self._recent, seconds)

    def take(self) -> dict[str, float]:
        """The measures of the steps since the last call; none if there were no such steps."""
        steps, late = self._taken
        self._taken = self.steps, self.late
        worst, self._recent = self._recent, 0.0
        if self.steps == steps:
            return {}
        return {"late_steps": float(self.late - late), "late_ms": round(1000 * worst, 3)}

    def __str__(self) -> str:
        count = f"{self.late:,} of {self.steps:,} steps were late"
        return f"{count}, by up to {1000 * self.worst:,.1f} ms" if self.late else count


class Paced(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps begin at a control rate, counted from the first after a reset.

    After a late step the ticks start again from it: hardware gets no burst of actions.
    """

    def __init__(self, env: gym.Env[Any, Any], rate: float, lateness: Lateness) -> None:
        super().__init__(env)
        self._period = 1 / rate
        self._lateness = lateness
        self._tick: float | None = None  # when the next step is due

    def reset(self, **arguments: Any) -> Any:
        """Start an episode. Its first step is in time whenever it begins."""
        self._tick = None
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Wait for the tick, then play."""
        now = clock()
        tick = now if self._tick is None else self._tick
        if now < tick:
            sleep(tick - now)
            now = clock()
        late = now - tick > _TOLERANCE * self._period
        self._lateness.add(now - tick if late else 0.0)
        self._tick = (now if late else tick) + self._period
        return self.env.step(action)
