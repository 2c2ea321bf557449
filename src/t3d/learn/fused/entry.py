"""The compiled functions that Python calls: they are kept on disk, and compiled once."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from t3d.base.compiling import compiled, entry
from t3d.base.numbers import Array
from t3d.learn.fused.layers import select_action
from t3d.learn.fused.plan import (
    Bounds,
    Draw,
    Knobs,
    Memory,
    Networks,
    Scaling,
    Scratch,
    Sections,
    Weights,
)
from t3d.learn.fused.threads import end_update, start_update, wait_for_update
from t3d.learn.fused.update import Job, update


def source_key(folders: Iterable[Path]) -> str:
    """A key that changes with every source file of some folders."""
    key = hashlib.sha256()
    for folder in folders:
        for source in sorted(folder.glob("*.py")):
            key.update(source.read_bytes())
    return key.hexdigest()


def unnamed(job: Job) -> tuple[Any, ...]:
    """A job as plain tuples, which Numba takes over from Python three times faster."""
    return tuple(tuple(part) if isinstance(part, tuple) else part for part in job)


@compiled
def _named(job: tuple[Any, ...]) -> Job:
    """A job with its names."""
    return Job(
        counters=job[0],
        schedule=job[1],
        memory=Memory(*job[2]),
        batch=Draw(*job[3]),
        bounds=Bounds(*job[4]),
        scaling=Scaling(*job[5]),
        networks=Networks(*job[6]),
        sections=Sections(*job[7]),
        weights=Weights(*job[8]),
        scratch=Scratch(*job[9]),
        knobs=Knobs(*job[10]),
    )


def _entry_points(version: str) -> tuple[Callable[..., Any], ...]:
    """The functions, kept for a version of the sources.

    By itself Numba keeps compiled code for as long as this file stays the same. The functions
    close over `version`, which makes it a part of the key, for all other files.
    """

    def begin(counters: Array, team: int) -> int:
        """Have threads 1 and up begin an update, which thread 0 is to join."""
        _ = version
        return start_update(counters, team)

    def work(arguments: tuple[Any, ...], me: int, team: int, call: int) -> None:
        """Thread 0 joins one update; the others take part in all, until they are shut down."""
        _ = version
        job = _named(arguments)
        if me == 0:
            update(job, 0, team)
            end_update(job.counters)
            return
        while True:
            call, team = wait_for_update(job.counters, call)
            if team < 0:
                return
            if me < team:
                update(job, me, team)

    def act(
        parameters: Array,
        actor: Array,
        bounds: tuple[Array, ...],
        scaling: tuple[Array, ...],
        states: Array,
        actions: Array,
    ) -> None:
        """The policy's action for every state."""
        _ = version
        names = Bounds(*bounds), Scaling(*scaling)
        for i in range(len(states)):
            actions[i] = select_action(parameters, actor, *names, states[i])

    return entry(begin), entry(work), entry(act)


# The folders whose functions may be compiled into these.
_here = Path(__file__).parent
FOLDERS = _here, _here.with_name("replay"), _here.parents[1] / "base"
begin, work, act = _entry_points(source_key(FOLDERS))
