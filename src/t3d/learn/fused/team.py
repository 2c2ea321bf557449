"""The threads that learn from one memory."""

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from t3d.base.machine import cores
from t3d.learn.fused import entry
from t3d.learn.fused.pace import TeamSize, doubling
from t3d.learn.fused.threads import LARGEST_TEAM, UPDATING, shut_down
from t3d.learn.replay.memory import ReplayBuffer

AnyJob = Any  # the Job of update.py, or another agent's
Work = Callable[[tuple[Any, ...], int, int, int], None]  # `work` of entry.py, or another agent's


class ThreadTeam:
    """The thread that calls, and helpers that wait for the next update of a job."""

    def __init__(
        self, job: AnyJob, work: Work, memory: ReplayBuffer, threads: int, policy_freq: int
    ) -> None:
        """Start the helpers, which do `work`; with 0 threads, use as many as are worth it."""
        self.job = job
        self._work = work
        self._unnamed = entry.unnamed(job)
        self._memory = memory
        self._process = os.getpid()
        limit = LARGEST_TEAM if os.name == "posix" else 1
        limit = min(threads or cores(), len(job.scratch.panels), limit)
        helpers: list[threading.Thread] = []
        # At exit too: a thread that outlives the interpreter would crash the process.
        weakref.finalize(self, _shut_down, self._unnamed, work, helpers, self._process)
        # All start before the first update, so that no interrupt can leave a team that waits for
        # a thread which was never started.
        for me in range(1, limit):
            name, its = f"t3d update {me}", (self._unnamed, me, 0, 0)
            helpers.append(threading.Thread(None, work, name, its, daemon=True))
            try:
                helpers[-1].start()
            except RuntimeError:  # the system gives no more threads; fewer do the same
                helpers.pop()
                break
        team = len(helpers) + 1
        self._size = TeamSize([team] if threads else doubling(team), policy_freq)
        self._began = 0.0

    def serves(self, memory: ReplayBuffer) -> bool:
        """Whether this team learns from a memory; a forked process has none of its threads."""
        return memory is self._memory and os.getpid() == self._process

    def has_helpers(self) -> bool:
        """Whether helpers will work on an update while this thread does something else."""
        return self._size.current > 1 and self._size.settled

    def begin(self) -> None:
        """Have the helpers begin an update."""
        self._began = time.perf_counter()
        entry.begin(self.job.counters, self._size.current)

    def finish(self) -> None:
        """Take part in the update until it is done."""
        self.join()
        self._size.record(time.perf_counter() - self._began)

    def join(self) -> None:
        """Take part in an update, if one is running."""
        _join(self._unnamed, self._work)


def _join(unnamed: tuple[Any, ...], work: Work) -> None:
    # The shared counters know of an update: an interrupt could leave a variable of Python wrong.
    team = int(unnamed[0][UPDATING])
    if team:
        work(unnamed, 0, team, 0)


def _shut_down(
    unnamed: tuple[Any, ...], work: Work, helpers: list[threading.Thread], process: int
) -> None:
    if os.getpid() == process:
        _join(unnamed, work)
    shut_down(unnamed[0])
    for helper in helpers:
        if helper.ident is not None:  # an interrupt may have come before it started
            helper.join()
