"""The journal of a run: its records, with step and time, for the store and the watchers."""

import time
from collections.abc import Mapping
from math import isfinite
from typing import Any, SupportsFloat, TypeVar

from t3d.learn.agent import Agent
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play import collecting
from t3d.play.collecting import Collecting
from t3d.play.explore import mean_noise
from t3d.run import health
from t3d.run.checkpoint import Progress
from t3d.run.records import Episode, HealthWarning, Json, Record, Training, record_of
from t3d.run.store import Store
from t3d.run.watchers import Watchers

Kind = TypeVar("Kind", bound=Record)
_RECENT = 100  # training episodes whose successes make a rate


class Journal:
    """Writes records, and measures the time that goes into them."""

    def __init__(
        self, store: Store, watchers: Watchers, collector: Collecting, progress: Progress
    ) -> None:
        self._store, self._watchers = store, watchers
        self._collector, self._progress = collector, progress
        now = time.monotonic()
        self._started = now - progress.seconds
        self._measured = now, collector.steps

    @property
    def seconds(self) -> float:
        """Seconds of training so far, over all processes of the run."""
        return time.monotonic() - self._started

    def write(self, kind: type[Kind], **facts: Any) -> Kind:
        """Write a record of this step, and show it to the watchers."""
        record = kind(**facts, **self._now())
        self._add(record)
        return record

    def _add(self, record: Record) -> None:
        self._store.write(record)
        self._watchers.record(record)

    def _now(self) -> Json:
        return {"step": self._collector.steps, "seconds": round(self.seconds, 3)}

    def write_events(self, events: list[collecting.Event]) -> None:
        """Write what went wrong and was repaired."""
        for kind, facts, text in events:
            self._add(record_of({"kind": kind, **facts, **self._now()}))
            self._progress.not_bit_exact.append(f"at step {self._collector.steps:,} {text}")

    def write_playing(self, ended: list[collecting.Episode]) -> None:
        """Write what went wrong and was repaired, and the episodes that ended."""
        self.write_events(self._collector.take_events())
        for env, number, length, total, (success, means) in ended:
            facts: Json = {"env": env, "episode": number, "length": length, "return_": total}
            if success is not None:
                facts["success"] = int(success)
                self._progress.successes = [*self._progress.successes, success][-_RECENT:]
            self.write(Episode, **facts, info=means)

    def write_learning(
        self, agent: Agent, memory: ReplayBuffer, measured: Mapping[str, SupportsFloat]
    ) -> None:
        """Write how learning goes, and new warnings."""
        config, successes = agent.config, self._progress.successes
        values = {name: float(value) for name, value in measured.items()}
        # JSON has no number that is not finite, only null.
        measures: Json = {name: v if isfinite(v) else None for name, v in values.items()}
        training = self.write(
            Training,
            updates=agent.updates,
            memory=len(memory),
            measures=measures | self._collector.measures(),
            exploration=mean_noise(config, self._collector.steps),
            saturation=health.saturation(agent, memory),
            steps_per_second=self._steps_per_second(),
            success_rate=sum(successes) / len(successes) if successes else None,
        )
        if agent.updates:
            facts = measures | {"saturation": training.saturation}
            for name, text in health.warnings(agent, memory, config, facts):
                if name not in self._progress.warned:
                    self._progress.warned.append(name)
                    self.write(HealthWarning, name=name, text=text)

    def _steps_per_second(self) -> float:
        """The speed since the last call."""
        then, steps_then = self._measured
        self._measured = now, steps = time.monotonic(), self._collector.steps
        return (steps - steps_then) / max(now - then, 1e-9)
