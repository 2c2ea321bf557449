"""How threads do one update together: shared counters, a barrier, and the next task.

Only atomic additions touch the counters, so that no thread sees a half-written number. A
thread waits by spinning, then by yielding its core, then by sleeping: several runs on one
machine slow each other down, but none stands still.
"""

import os
import platform
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from t3d.base.compiling import compiled
from t3d.base.numbers import Array

# The counters, each in a cache line of its own. UPDATING is the team's size during an update.
_ARRIVED, _ROUND, _CALL, _TASK, UPDATING, COUNTERS = 0, 8, 16, 24, 32, 40
LARGEST_TEAM = 1024
_TEAMS = 4096  # a call is its number times this, plus the size of the team that it is for
_SPINS = 2_000  # looks at a counter, some 50 microseconds, before a thread yields its core
_YIELDS = 6_000  # times that it yields, some 3 milliseconds, before it sleeps
_LONGEST_SLEEP = 2_000  # microseconds

if os.name == "posix":
    _yield_core = numba.types.ExternalFunction("sched_yield", numba.int32())
    _sleep = numba.types.ExternalFunction("usleep", numba.int32(numba.uint32))
else:  # pragma: no cover, the engine then uses one thread, which never waits

    @compiled
    def _yield_core() -> None:
        pass

    @compiled
    def _sleep(microseconds: int) -> None:
        pass


@intrinsic  # type: ignore[untyped-decorator]
def _add(typing: Any, counters: Any, index: Any, value: Any) -> Any:
    """Add to a counter, atomically; returns its value before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(counters)(context, builder, values[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [values[1]]), values[2], "seq_cst")

    return numba.int64(counters, numba.intp, numba.int64), generate


@compiled
def _read(counters: Array, index: int) -> int:
    return int(_add(counters, index, 0))


@compiled
def _write(counters: Array, index: int, value: int) -> None:
    """Set a counter that no other thread changes now."""
    _add(counters, index, value - _read(counters, index))


@intrinsic  # type: ignore[untyped-decorator]
def _pause(typing: Any) -> Any:
    """Tell the processor that this thread waits."""
    x86 = platform.machine() in ("x86_64", "AMD64")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if x86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return numba.void(), generate


@compiled
def _wait(looks: int) -> int:
    """Wait a little before the next look at a counter; returns how many there were."""
    if looks < _SPINS:
        _pause()
    elif looks < _SPINS + _YIELDS:  # the thread that is waited for may need this core
        _yield_core()
    else:  # the environment, or an evaluation, takes long: wake up about a tenth too late
        _sleep(min(50 + 5 * (looks - _SPINS - _YIELDS), _LONGEST_SLEEP))
    return looks + 1


@compiled
def barrier(counters: Array, team: int) -> None:
    """Wait until all threads of the team are here."""
    if team == 1:
        return
    current = _read(counters, _ROUND)
    if _add(counters, _ARRIVED, 1) == team - 1:
        _add(counters, _ARRIVED, -team)
        _add(counters, _ROUND, 1)
        return
    looks = 0
    while _read(counters, _ROUND) == current:
        looks = _wait(looks)


@compiled
def next_task(counters: Array) -> int:
    """The number of the next task that no thread has yet: an early thread does more of them."""
    return int(_add(counters, _TASK, 1))


@compiled
def start_update(counters: Array, team: int) -> int:
    """Have the other threads of a team start; returns its size, 1 if they were shut down."""
    last = _read(counters, _CALL)
    _write(counters, _TASK, 0)
    team = 1 if last < 0 else team
    _write(counters, UPDATING, team)
    if last >= 0:
        _write(counters, _CALL, (last // _TEAMS + 1) * _TEAMS + team)
    return team


@compiled
def wait_for_update(counters: Array, last: int) -> tuple[int, int]:
    """Wait for another call than the last; returns it and its team, which is -1 at the shutdown."""
    looks = 0
    while True:
        call = _read(counters, _CALL)
        if call < 0:
            return last, -1
        if call != last:
            return call, call % _TEAMS
        looks = _wait(looks)


@compiled
def end_update(counters: Array) -> None:
    """Note that the update is done."""
    _write(counters, UPDATING, 0)


def shut_down(counters: Array) -> None:
    """Have the other threads end."""
    counters[_CALL] = -1
