"""The journal of a run: its records, with step and time, for the store and the watchers."""

import time
from typing import Any, TypeVar

from t3d.play.collecting import Collecting
from t3d.run.records import Record
from t3d.run.store import Store
from t3d.run.watchers import Watchers

Kind = TypeVar("Kind", bound=Record)


class Journal:
    """Writes records, and measures the time that goes into them."""

    def __init__(
        self, store: Store, watchers: Watchers, collector: Collecting, seconds: float
    ) -> None:
        """`seconds` were spent by the processes before this one."""
        self._store, self._watchers, self._collector = store, watchers, collector
        now = time.monotonic()
        self._started = now - seconds
        self._measured = now, collector.steps

    def write(self, kind: type[Kind], **facts: Any) -> Kind:
        """Write a record of this step, and show it to the watchers."""
        record = kind(**facts, **self.now())
        self.add(record)
        return record

    def add(self, record: Record) -> None:
        """Write a record, and show it to the watchers."""
        self._store.write(record)
        self._watchers.record(record)

    def now(self) -> dict[str, Any]:
        """Step and time of a record."""
        return {"step": self._collector.steps, "seconds": round(self.seconds, 3)}

    @property
    def seconds(self) -> float:
        """Seconds of training so far, over all processes of the run."""
        return time.monotonic() - self._started

    def steps_per_second(self) -> float:
        """The speed since the last call."""
        then, steps_then = self._measured
        self._measured = now, steps = time.monotonic(), self._collector.steps
        return (steps - steps_then) / max(now - then, 1e-9)
