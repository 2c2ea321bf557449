"""Replay memories, filled."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t3d import ReplayBuffer
from t3d.base.observation import Image, Layout

FIELDS = ("state", "next_state", "action", "reward", "done")
Fields = dict[str, NDArray[Any]]


def filled_memory(
    rows: int = 100,
    state_dim: int = 3,
    low: Sequence[float] = (-1.0,),
    high: Sequence[float] = (1.0,),
) -> ReplayBuffer:
    """Random episodes of a few steps each, of which half terminate and half are cut off."""
    random = np.random.default_rng(0)
    state, after = random.normal(size=(2, rows, state_dim))
    done, truncated = random.random((2, rows)) < 0.1
    goes_on = ~(done | truncated)[:-1]
    state[1:][goes_on] = after[:-1][goes_on]
    memory = ReplayBuffer(rows, state_dim, len(low))
    action = random.uniform(low, high, (rows, len(low)))
    memory.add(state, after, action, random.normal(size=rows), done, truncated)
    return memory


def numbered(numbers: list[int]) -> Fields:
    """Transitions that can be recognised: every field follows from the transition's number."""
    n = np.array(numbers, np.float32).reshape(-1)
    return {
        "state": np.stack([n, -n], axis=1),
        "next_state": np.stack([n + 0.5, -n - 0.5], axis=1),
        "action": np.stack([n * 2, n * 3, n * 4], axis=1),
        "reward": n * 10,
        "done": n % 2,
    }


def one(number: int) -> Fields:
    """One of them, without the leading axis."""
    return {name: values[0] for name, values in numbered([number]).items()}


def numbered_memory(capacity: int, numbers: list[int] | None = None) -> ReplayBuffer:
    """A memory to which numbered transitions were added, one by one."""
    memory = ReplayBuffer(capacity, 2, 3)
    for number in numbers or []:
        memory.add(**one(number))
    return memory


def contents(memory: ReplayBuffer) -> list[int]:
    """The numbers of the stored transitions, oldest first; every field must say the same."""
    live = memory.live_rows()
    numbers = [round(float(reward) / 10) for reward in memory.reward[live]]
    for name, expected in numbered(numbers).items():
        np.testing.assert_array_equal(getattr(memory, name)[live], expected)
    return numbers


def chain(memory: ReplayBuffer, states: Sequence[int], ends: str = "") -> None:
    """Steps 0 -> 1 -> 2 ... whose reward is the next state; `ends` says how the last one ends."""
    for state, after in itertools.pairwise(states):
        last = after == states[-1]
        done, truncated = last and ends == "terminated", last and ends == "truncated"
        memory.add([state], [after], [0], after, done, truncated)


def frames(size: int, stack: int = 1, vector: int = 0) -> Layout:
    """States of a stack of frames of so many bytes each, and of a vector."""
    return Layout(vector, (Image(1, 1, size),), stack)
