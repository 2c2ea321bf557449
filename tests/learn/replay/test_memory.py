"""The ring: what is stored, what is overwritten, what is refused; every observation once."""

import subprocess
import sys
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memories import FIELDS, chain, contents, frames, numbered, numbered_memory, one
from t3d import ReplayBuffer, T3DError


def test_one_transition_is_stored_unchanged() -> None:
    buffer = numbered_memory(3, [7])
    assert len(buffer) == 1
    assert contents(buffer) == [7]


def test_a_batch_is_stored_in_its_order() -> None:
    buffer = numbered_memory(5)
    buffer.add(**numbered([4, 5, 6]))
    assert contents(buffer) == [4, 5, 6]


def test_an_empty_batch_changes_nothing() -> None:
    buffer = numbered_memory(5, [1])
    buffer.add(**numbered([]))
    assert contents(buffer) == [1]


def test_a_full_memory_overwrites_the_oldest_first() -> None:
    buffer = numbered_memory(3)
    seen = []
    for number in range(7):
        buffer.add(**one(number))
        seen.append(contents(buffer))
    assert seen[2:] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert len(buffer) == 3


def test_a_batch_may_run_over_the_end() -> None:
    buffer = numbered_memory(5, [0, 1, 2])
    buffer.add(**numbered([3, 4, 5, 6]))
    assert contents(buffer) == [2, 3, 4, 5, 6]
    buffer.add(**one(7))
    assert contents(buffer) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("before", [0, 2, 5])
def test_of_a_batch_larger_than_the_memory_the_last_rows_stay(before: int) -> None:
    buffer = numbered_memory(4, list(range(100, 100 + before)))
    buffer.add(**numbered(list(range(11))))
    assert contents(buffer) == [7, 8, 9, 10]
    buffer.add(**one(11))
    assert contents(buffer) == [8, 9, 10, 11]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(capacity=st.integers(1, 8), sizes=st.lists(st.none() | st.integers(0, 20), max_size=12))
def test_the_memory_is_a_deque_with_a_maximal_length(
    capacity: int, sizes: list[int | None]
) -> None:
    buffer, model, number = numbered_memory(capacity), deque[int](maxlen=capacity), 0
    for size in sizes:
        added = list(range(number, number + (1 if size is None else size)))
        if size is None:
            buffer.add(**one(number))
        else:
            buffer.add(**numbered(added))
        model.extend(added)
        number += len(added)
        assert contents(buffer) == list(model)
        assert len(buffer) == len(model)


@pytest.mark.parametrize("stack", [1, 3])
def test_the_live_rows_are_the_last_ones_oldest_first(stack: int) -> None:
    """Stacked frames need more room than `capacity`: then not every row is live."""
    memory = ReplayBuffer(4, frames(1, stack), 1, num_envs=2)
    nothing = np.zeros((2, stack), np.uint8)
    assert memory.live_rows().tolist() == []
    for i in range(0, 20, 2):
        memory.add(nothing, nothing, np.zeros((2, 1)), [i, i + 1], np.zeros(2))
        numbers = list(range(i + 2))
        assert memory.reward[memory.live_rows()].tolist() == numbers[-4:]
        assert memory.reward[memory.newest(3)].tolist() == numbers[-3:]


def test_an_observation_is_stored_once() -> None:
    memory = ReplayBuffer(1000, 1, 1)
    for _ in range(10):
        chain(memory, list(range(51)), "truncated")
    assert len(memory) == 500
    assert memory.facts()["ends"] == 10
    chain(memory, [7, 8])
    assert memory.facts()["ends"] == 11
    # A memory that has gone round many times needs no more places than its episodes have ends.
    for _ in range(100):
        chain(memory, list(range(51)), "truncated")
    assert memory.facts()["ends"] <= 22


def test_a_state_that_does_not_continue_the_episode_begins_another() -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    chain(memory, [5, 6])
    batch = memory.batch(np.arange(3), n_step=3)
    assert batch.next_state.flatten().tolist() == [2, 2, 6]


def test_a_memory_needs_room_for_one_transition_and_one_number() -> None:
    assert ReplayBuffer(1e3, 3, 1).capacity == 1000
    with pytest.raises(T3DError, match=r"capacity is 1\.5; expected a whole number at least 1"):
        ReplayBuffer(1.5, 3, 1)
    with pytest.raises(T3DError, match="capacity is 0"):
        ReplayBuffer(0, 2, 3)
    with pytest.raises(T3DError, match="state_dim is 0; expected at least 1"):
        ReplayBuffer(3, 0, 3)


def test_images_stay_bytes() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 90), np.uint8)
    buffer = ReplayBuffer(10, frames(90), 1)
    buffer.add(images[:3], images[1:], np.zeros((3, 1)), np.arange(3), np.zeros(3))
    batch = buffer.sample(20, np.random.default_rng(0))
    assert batch.state.dtype == batch.next_state.dtype == torch.uint8
    rows = batch.reward.numpy().astype(int)
    np.testing.assert_array_equal(batch.state, images[rows])
    np.testing.assert_array_equal(batch.next_state, images[rows + 1])
    moved = batch.to(torch.device("cpu"), torch.float64)
    assert [field.dtype for field in moved] == [torch.uint8] * 2 + [torch.float64] * 4
    np.testing.assert_array_equal(moved.state, images[rows])


@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_shape_is_refused_by_name_and_nothing_is_stored(field: str) -> None:
    buffer = numbered_memory(4, [1, 2])
    with pytest.raises(T3DError, match=rf"^{field} has shape \(3, 9\); expected \(3"):
        buffer.add(**{**numbered([3, 4, 5]), field: np.zeros((3, 9))})
    with pytest.raises(T3DError, match="has shape"):
        buffer.add(**{**numbered([3, 4, 5]), field: numbered([3, 4])[field]})
    with pytest.raises(T3DError, match="has shape"):
        buffer.add(**{**one(3), field: np.zeros(9)})
    assert contents(buffer) == [1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", FIELDS)
def test_what_is_not_finite_is_refused_by_name_and_nothing_is_stored(
    field: str, bad: float
) -> None:
    buffer = numbered_memory(4, [1, 2])
    rows, row = numbered([3, 4, 5]), one(3)
    rows[field] = rows[field].copy()
    rows[field][1] = bad
    row[field] = np.full_like(row[field], bad)
    for wrong in (rows, row):
        with pytest.raises(T3DError, match=f"^{field} holds"):
            buffer.add(**wrong)
        assert contents(buffer) == [1, 2]


# A float64 number may be finite and still not fit into the float32 that is stored.
@pytest.mark.parametrize("field", FIELDS)
def test_what_is_not_finite_once_stored_is_refused(field: str) -> None:
    buffer = numbered_memory(4, [1, 2])
    row = one(3)
    row[field] = np.full(np.shape(row[field]), 1e39)
    with pytest.raises(T3DError, match=f"^{field} holds"):
        buffer.add(**row)
    assert contents(buffer) == [1, 2]


def test_environments_that_do_not_exist_are_refused() -> None:
    memory = ReplayBuffer(10, 1, 1, num_envs=2)
    rows = [[0], [1]], [[1], [2]], [[0], [0]], [0, 0], [False, False]
    for envs in ([0, 2], [-1, 0], [0]):
        with pytest.raises(T3DError, match="expected 2 numbers below num_envs, 2"):
            memory.add(*rows, envs=envs)
    with pytest.raises(T3DError, match=r"truncated has shape \(3,\); expected \(2,\)"):
        memory.add(*rows, truncated=[False] * 3)
    assert len(memory) == 0


def test_one_transition_may_name_its_environment() -> None:
    memory = ReplayBuffer(10, 1, 1, num_envs=2)
    for state in range(3):
        memory.add([state], [state + 1], [0], state, False, envs=1)
        memory.add([state], [state + 1], [0], state, False, envs=[0])
    assert memory.batch(np.array([0, 1]), n_step=3).steps.tolist() == [3, 3]


def test_room_that_nobody_has_is_refused() -> None:
    with pytest.raises(T3DError, match=r"no room for a memory of .*; lower --capacity"):
        ReplayBuffer(10**9, frames(10**9), 1)


def test_a_memory_in_a_file_holds_the_same(tmp_path: Path) -> None:
    with (tmp_path / "memory").open("w+b") as file:
        here, there = ReplayBuffer(20, 1, 1), ReplayBuffer(20, 1, 1, file=file)
    for memory in (here, there):
        for start in range(5):
            chain(memory, list(range(start, start + 7)), "truncated")
    one, two = (memory.batch(np.arange(20), n_step=3) for memory in (here, there))
    assert all(np.array_equal(a, b) for a, b in zip(one, two))
    assert (tmp_path / "memory").stat().st_size == 2 * 20 * 4


RESIDENT = """
import numpy as np
from t3d import ReplayBuffer

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

rows = 500
batch = [np.ones((rows, n), np.float32) for n in (376, 376, 17)] + [np.ones(rows)] * 2
ReplayBuffer(10, 376, 17).add(*(field[:5] for field in batch))  # all code is loaded now
before = resident()
buffer = ReplayBuffer(1_000_000, 376, 17)
empty = resident()
for _ in range(40):
    buffer.add(*batch)
print(empty - before, resident() - empty)
"""


def test_a_memory_takes_room_only_for_what_is_stored() -> None:
    command = [sys.executable, "-c", RESIDENT]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    empty, grown = (int(kilobytes) / 1024 for kilobytes in out.split())
    assert empty < 3
    stored = 20_000 * (2 * 376 + 17 + 2) * 4 / 2**20
    assert 0.9 * stored < grown < 1.3 * stored


def test_arguments_in_another_order_are_refused_where_their_sizes_show_it() -> None:
    expected = r"action_dim is 1,000,000 and capacity 3; expected ReplayBuffer\(capacity, state_dim"
    with pytest.raises(T3DError, match=expected):
        ReplayBuffer(3, 1, 1_000_000)
    memory = ReplayBuffer(10, 3, 1)
    expected = r"next_state has shape \(1,\); expected \(3,\); the order is state, next_state, act"
    with pytest.raises(T3DError, match=expected):
        memory.add(np.zeros(3), np.zeros(1), np.zeros(3), 0.0, 0.0)
    assert len(memory) == 0
