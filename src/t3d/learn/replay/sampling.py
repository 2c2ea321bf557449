"""Step 1: which rows to learn from, and the transitions that begin there."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from t3d.base.compiling import entry
from t3d.base.errors import BadInput
from t3d.base.numbers import Array

if TYPE_CHECKING:
    from t3d.learn.replay.memory import ReplayBuffer

Rows = NDArray[np.int64]


class Transitions(NamedTuple):
    """A batch as it is stored: row i of every field belongs to the same transition."""

    state: Tensor  # (batch, state_dim)
    next_state: Tensor  # (batch, state_dim), `steps` later
    action: Tensor  # (batch, action_dim), in the environment's units
    reward: Tensor  # (batch,): discounted, and summed over `steps`
    done: Tensor  # (batch,): 1 where the episode terminated, 0 elsewhere, a time limit included
    steps: Tensor  # (batch,): 1; with n-step returns up to n, fewer where the episode ended

    def to(self, device: torch.device, dtype: torch.dtype) -> "Transitions":
        """The same transitions on a device, as floats of type `dtype`; images stay bytes."""
        bytes_, kind = torch.uint8, dtype
        return Transitions(*(f.to(device, bytes_ if f.dtype == bytes_ else kind) for f in self))


class Sampler:
    """Chooses the rows that an agent learns from, for both engines: see `agent.sampler`."""

    wants_td_errors = False  # whether agents should call `learned` after each update

    def draw(self, memory: "ReplayBuffer", count: int, stream: np.random.Generator) -> Rows:
        """Choose `count` rows of a memory, as int64. All randomness comes from the stream."""
        raise NotImplementedError

    def learned(self, rows: Rows, td_errors: Array) -> None:
        """Called after an update: the absolute TD error of each row, the larger of two critics'."""

    def state_dict(self) -> dict[str, Array]:
        """Everything that the next draw depends on, except the memory and the stream."""
        return {}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Restore what `state_dict` returned."""
        if arrays:
            names = ", ".join(sorted(arrays))
            raise BadInput(f"the state of a sampler has {names}; {type(self).__name__} has none")


class Uniform(Sampler):
    """Every stored transition is equally likely, with replacement."""

    def draw(self, memory: "ReplayBuffer", count: int, stream: np.random.Generator) -> Rows:
        """Choose `count` rows of a memory, as int64."""
        if memory.added == 0:
            raise BadInput("the replay memory is empty; add transitions before sampling")
        if count < 1:
            raise BadInput(f"batch_size is {count}; expected at least 1")
        size = memory.size
        ages = (stream.random(count) * size).astype(np.int64)
        if memory.room == memory.capacity:  # then every stored row is live, in any order
            return ages
        return (ages + memory.added - size) % memory.room


def check_rows(memory: "ReplayBuffer", rows: Rows) -> Rows:
    """Refuse rows that are not stored: compiled code does not check its indices."""
    rows = np.ascontiguousarray(rows, np.int64)
    stored = min(memory.added, memory.room)
    inside = fast(count_inside)(rows, stored)
    if inside < len(rows):
        raise BadInput(f"row {rows[inside]} is not stored; expected rows from 0 to {stored - 1}")
    return rows


def count_inside(rows: Rows, stored: int) -> int:
    """How many rows come before the first that is not stored. NumPy would need five calls."""
    for i in range(len(rows)):
        if not 0 <= rows[i] < stored:
            return i
    return len(rows)


def transitions(memory: "ReplayBuffer", rows: Rows, n_step: int, discount: float) -> Transitions:
    """Read the transitions that begin at some rows; see `ReplayBuffer.batch`."""
    rows = check_rows(memory, rows)
    discounts = np.array([discount**step for step in range(n_step)], np.float32)
    last = np.empty(len(rows), np.int64)
    reward, steps = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    fast(walk)(rows, memory.next_at, memory.reward, discounts, last, reward, steps)
    fields = (
        memory.states_at(rows),
        memory.next_states_at(last),
        memory.action[rows],
        reward,
        memory.done[last],
        steps,
    )
    return Transitions(*map(torch.from_numpy, fields))


def walk(
    rows: Rows,
    next_at: Array,
    reward: Array,
    discounts: Array,
    last: Array,
    total: Array,
    steps: Array,
) -> None:
    """Follow the steps after each row, up to `len(discounts)` in all: n-step returns.

    A walk stops at the end of the episode, terminated or truncated, and at the newest row. It fills
    `last` (the row of the last step), `total` (the discounted sum of the rewards) and `steps`
    (their number). Both engines compile this function; it must stay scalar code.
    """
    for i in range(len(rows)):
        row, count = rows[i], 1
        summed = reward[row]
        while count < len(discounts) and next_at[row] < len(reward):
            row = next_at[row]
            summed += reward.dtype.type(discounts[count]) * reward[row]
            count += 1
        last[i], total[i], steps[i] = row, summed, count


@cache
def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled where Numba is installed: the same bits, a hundred times faster."""
    try:
        return entry(function)
    except ImportError:
        return function
