"""A search with several trials at a time, each in a process that runs one after another."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t3d.base.errors import RunFailed
from t3d.base.machine import cores
from t3d.run.signals import StopSignal
from t3d.run.watchers import Watcher
from t3d.study.plan import Plan
from t3d.study.storage import open_study, optuna
from t3d.study.sweep import train_runs
from t3d.study.tune import Observer, Result, results, search
from t3d.study.workers import Process

_LOOK_EVERY = 1.0  # seconds between looks at the study


@dataclass
class Searcher:
    """A process that searches, and its state."""

    log: Path
    state: str = "waiting"  # then training, and then finished, stopped or failed
    why: str = ""  # it failed


def search_in_parallel(
    plan: Plan, study: optuna.Study, stop: Callable[[], bool], observer: Observer
) -> None:
    """Run `plan.jobs` trials at a time until there are enough, or until `stop` returns True."""
    jobs = min(plan.jobs, plan.trials)
    threads = plan.base.threads or max(1, cores() // jobs)
    base = dataclasses.replace(plan.base, threads=threads)
    line = dataclasses.replace(plan, base=base).to_json()
    searchers = [Searcher(plan.out / f"search-{os.getpid()}-{n}.log") for n in range(jobs)]
    looked = time.monotonic()

    def stopping() -> bool:
        return stop() or any(each.state == "failed" for each in searchers)

    def look() -> None:
        nonlocal looked
        if time.monotonic() - looked > _LOOK_EVERY:
            observer.update(results(plan, study))
            looked = time.monotonic()

    train_runs(searchers, jobs, lambda each: Process(line, each.log, threads), stopping, look)
    observer.update(results(plan, study))
    for each in searchers:
        if each.state == "failed":
            raise RunFailed(each.why)


class _Silent:
    """An observer in a process without a terminal: the parent reads the study."""

    def watch(self, number: int) -> Watcher:
        """See `Observer`."""
        return Watcher()

    def compiling(self) -> None:
        """See `Observer`."""

    def update(self, results: Sequence[Result]) -> None:
        """See `Observer`."""


def search_here(job: dict[str, Any]) -> bool:
    """What a searcher does: whether it ended by itself, as there are enough trials."""
    plan = Plan.from_json(job)
    with StopSignal().caught() as stop:
        search(plan, open_study(plan), stop, _Silent())
    return not stop()
