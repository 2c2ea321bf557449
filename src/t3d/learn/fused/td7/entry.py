"""The compiled functions of TD7 that Python calls: see entry.py of TD3."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from t3d.base.compiling import compiled, entry
from t3d.base.numbers import Array
from t3d.learn.fused.entry import FOLDERS, source_key
from t3d.learn.fused.layers import outputs_of
from t3d.learn.fused.plan import Bounds, Draw, Knobs, Memory, Scaling, Scratch, Weights
from t3d.learn.fused.steps import normalized, to_action
from t3d.learn.fused.td7.plan import Networks, Sections
from t3d.learn.fused.td7.update import Job, update
from t3d.learn.fused.threads import end_update, wait_for_update


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
        fixed=job[11],
        limits=job[12],
    )


@compiled
def _select_action(
    parameters: Array,
    fixed: Array,
    f: Array,
    actor: Array,
    bounds: Bounds,
    scaling: Scaling,
    state: Array,
) -> Array:
    """The action for one state, which the actor sees beside its embedding."""
    x = state.astype(parameters.dtype)
    for i in range(x.size):
        x[i] = normalized(x[i], scaling, i)
    zs = x
    for i in range(len(f)):
        zs = outputs_of(fixed, f[i], zs)
    for i in range(len(actor)):
        x = outputs_of(parameters, actor[i], x)
        if i == 0:
            x = np.concatenate((x, zs))
    return to_action(x, bounds)


def _entry_points(version: str) -> tuple[Callable[..., Any], ...]:
    """The functions, kept for a version of the sources."""

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
        fixed: Array,
        f: Array,
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
            actions[i] = _select_action(parameters, fixed, f, actor, *names, states[i])

    return entry(work), entry(act)


work, act = _entry_points(source_key([*FOLDERS, Path(__file__).parent]))
