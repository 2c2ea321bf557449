"""Threads that do one update together and meet between its parts."""

import os
import platform
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from t3d.base.compiling import compiled
from t3d.base.numbers import Array

# Where things stand on the board, each in a cache line of its own.
_ARRIVED, _ROUND, _CALL, _TAKEN, OPEN, BOARD = 0, 8, 16, 24, 32, 40
_TEAMS = 4096  # a call is its number times this, and the size of the team that it is for
_SPINS = 2_000  # looks at the board, some 50 microseconds, before a thread gives way
_YIELDS = 6_000  # times that it gives way, some 3 milliseconds, before it naps
_LONGEST_NAP = 2_000  # microseconds

if os.name == "posix":
    _give_way = numba.types.ExternalFunction("sched_yield", numba.int32())
    _nap = numba.types.ExternalFunction("usleep", numba.int32(numba.uint32))
else:  # pragma: no cover, the engine then uses one thread, which never waits

    @compiled
    def _give_way() -> None:
        pass

    @compiled
    def _nap(microseconds: int) -> None:
        pass


@intrinsic  # type: ignore[untyped-decorator]
def _add(typing: Any, board: Any, index: Any, value: Any) -> Any:
    """Add to a number on the board; no thread sees a half of it. Returns the number before."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(board)(context, builder, values[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [values[1]]), values[2], "seq_cst")

    return numba.int64(board, numba.intp, numba.int64), generate


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
def meet(board: Array, team: int) -> None:
    """Go on when all threads of the team are here."""
    if team == 1:
        return
    current = _add(board, _ROUND, 0)
    if _add(board, _ARRIVED, 1) == team - 1:
        _add(board, _ARRIVED, -team)
        _add(board, _ROUND, 1)
        return
    looks = 0
    while _add(board, _ROUND, 0) == current:
        looks = _wait(looks)


@compiled
def _wait(looks: int) -> int:
    """Wait a little before the next look; returns how many there were."""
    if looks < _SPINS:
        _pause()
    elif looks < _SPINS + _YIELDS:  # the thread that is waited for may need this core
        _give_way()
    else:  # the environment, or an evaluation, takes long: come back about a tenth too late
        _nap(min(50 + 5 * (looks - _SPINS - _YIELDS), _LONGEST_NAP))
    return looks + 1


@compiled
def take(board: Array) -> int:
    """The next piece of work that no thread has taken yet: who is early takes more of them."""
    return int(_add(board, _TAKEN, 1))


@compiled
def call(board: Array, team: int) -> int:
    """Have the other threads of a team begin; returns its size, 1 if they were sent home."""
    last = _add(board, _CALL, 0)
    _add(board, _TAKEN, -_add(board, _TAKEN, 0))
    team = 1 if last < 0 else team
    _add(board, OPEN, team - _add(board, OPEN, 0))
    if last < 0:
        return 1
    _add(board, _CALL, (last // _TEAMS + 1) * _TEAMS + team - last)
    return team


@compiled
def wait_for_call(board: Array, last: int) -> tuple[int, int]:
    """Wait until the call is another than the last; returns it, and its team: -1 to go home."""
    looks = 0
    while True:
        now = _add(board, _CALL, 0)
        if now < 0:
            return last, -1
        if now != last:
            return now, now % _TEAMS
        looks = _wait(looks)


@compiled
def close(board: Array) -> None:
    """Note that the update which was called for is done."""
    _add(board, OPEN, -_add(board, OPEN, 0))


def dismiss(board: Array) -> None:
    """Send the other threads home."""
    board[_CALL] = -1
