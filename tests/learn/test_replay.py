import contextlib
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from t3d import ReplayBuffer, T3DError
from t3d.learn.replay.memory import Batch

FIELDS = ("state", "next_state", "action", "reward", "done")
Fields = dict[str, NDArray[Any]]


def transitions(numbers: list[int]) -> Fields:
    """Transitions that can be told apart: every field is made from the transition's number."""
    n = np.array(numbers, np.float32).reshape(-1)
    return {
        "state": np.stack([n, -n], axis=1),
        "next_state": np.stack([n + 0.5, -n - 0.5], axis=1),
        "action": np.stack([n * 2, n * 3, n * 4], axis=1),
        "reward": n * 10,
        "done": n % 2,
    }


def one(number: int) -> Fields:
    return {name: values[0] for name, values in transitions([number]).items()}


def memory(capacity: int, numbers: list[int] | None = None) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, 2, 3)
    for number in numbers or []:
        buffer.add(**one(number))
    return buffer


def contents(buffer: ReplayBuffer) -> list[int]:
    """The numbers of the stored transitions, oldest first; every field must tell the same."""
    oldest = buffer.position if len(buffer) == buffer.capacity else 0
    stored = {name: getattr(buffer, name)[: len(buffer)] for name in FIELDS}
    by_age = {name: np.roll(values, -oldest, axis=0) for name, values in stored.items()}
    numbers = [round(float(reward) / 10) for reward in by_age["reward"]]
    for name, expected in transitions(numbers).items():
        np.testing.assert_array_equal(by_age[name], expected)
    return numbers


def sampled(buffer: ReplayBuffer, count: int, seed: int = 0) -> Batch:
    return buffer.sample(count, np.random.default_rng(seed))


def test_one_transition_is_kept_as_given() -> None:
    buffer = memory(3, [7])
    assert len(buffer) == 1
    assert contents(buffer) == [7]


def test_a_batch_is_kept_in_its_order() -> None:
    buffer = memory(5)
    buffer.add(**transitions([4, 5, 6]))
    assert contents(buffer) == [4, 5, 6]


def test_an_empty_batch_changes_nothing() -> None:
    buffer = memory(5, [1])
    buffer.add(**transitions([]))
    assert contents(buffer) == [1]


def test_a_full_memory_overwrites_the_oldest_first() -> None:
    buffer = memory(3)
    seen = []
    for number in range(7):
        buffer.add(**one(number))
        seen.append(contents(buffer))
    assert seen[2:] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert len(buffer) == 3


def test_a_batch_may_run_over_the_end() -> None:
    buffer = memory(5, [0, 1, 2])
    buffer.add(**transitions([3, 4, 5, 6]))
    assert contents(buffer) == [2, 3, 4, 5, 6]
    buffer.add(**one(7))
    assert contents(buffer) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("before", [0, 2, 5])
def test_of_a_batch_larger_than_the_memory_the_last_rows_stay(before: int) -> None:
    buffer = memory(4, list(range(100, 100 + before)))
    buffer.add(**transitions(list(range(11))))
    assert contents(buffer) == [7, 8, 9, 10]
    buffer.add(**one(11))
    assert contents(buffer) == [8, 9, 10, 11]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(capacity=st.integers(1, 8), sizes=st.lists(st.none() | st.integers(0, 20), max_size=12))
def test_the_memory_is_a_deque_with_a_maximal_length(
    capacity: int, sizes: list[int | None]
) -> None:
    buffer, model, number = memory(capacity), deque[int](maxlen=capacity), 0
    for size in sizes:
        added = list(range(number, number + (1 if size is None else size)))
        if size is None:
            buffer.add(**one(number))
        else:
            buffer.add(**transitions(added))
        model.extend(added)
        number += len(added)
        assert contents(buffer) == list(model)
        assert len(buffer) == len(model)


def test_a_sample_has_whole_transitions_and_only_stored_ones() -> None:
    numbers = [3, 4, 5, 6, 7]
    batch = sampled(memory(100, numbers), 500)
    drawn = [round(float(reward) / 10) for reward in batch.reward]
    assert set(drawn) == set(numbers)
    for name, expected in transitions(drawn).items():
        np.testing.assert_array_equal(getattr(batch, name), expected)


def test_a_sample_of_a_wrapped_memory_has_no_overwritten_transition() -> None:
    batch = sampled(memory(4, list(range(10))), 200)
    assert set(batch.reward.tolist()) == {60, 70, 80, 90}


def test_a_sample_does_not_change_when_the_memory_does() -> None:
    buffer = memory(2, [1, 2])
    batch = sampled(buffer, 10)
    before = batch.state.clone()
    buffer.add(**transitions([3, 4]))
    assert torch.equal(batch.state, before)


@pytest.mark.parametrize("stored", [20, 33])
def test_every_stored_transition_is_equally_likely(stored: int) -> None:
    rows, draws = 20, 100_000
    batch = sampled(memory(rows, list(range(stored))), draws)
    _, counts = np.unique(batch.reward.numpy(), return_counts=True)
    assert len(counts) == rows
    chi_square = float(((counts - draws / rows) ** 2).sum() / (draws / rows))
    # Chi-square with 19 degrees of freedom: one fair draw in a thousand is above 43.8, and
    # one in a thousand below 5.4, as a memory that deals its rows out in turn would be.
    assert 5.4 < chi_square < 43.8


def test_the_same_generator_state_gives_the_same_sample() -> None:
    buffer = memory(50, list(range(50)))
    first, again, other = (sampled(buffer, 30, seed).reward for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_empty_memory_cannot_be_sampled() -> None:
    with pytest.raises(T3DError, match="empty"):
        sampled(memory(3), 1)


def test_a_memory_needs_room_for_one_transition() -> None:
    with pytest.raises(T3DError, match="capacity is 0"):
        ReplayBuffer(0, 2, 3)


def test_images_stay_bytes() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    buffer = ReplayBuffer(10, (6, 5, 3), 1, np.uint8)
    buffer.add(images[:3], images[1:], np.zeros((3, 1)), np.arange(3), np.zeros(3))
    batch = sampled(buffer, 20)
    assert batch.state.dtype == batch.next_state.dtype == torch.uint8
    rows = batch.reward.numpy().astype(int)
    np.testing.assert_array_equal(batch.state, images[rows])
    np.testing.assert_array_equal(batch.next_state, images[rows + 1])
    moved = batch.to(torch.device("cpu"), torch.float64)
    assert [field.dtype for field in moved] == [torch.uint8] * 2 + [torch.float64] * 4
    np.testing.assert_array_equal(moved.state, images[rows])


@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_shape_is_refused_by_name_and_nothing_is_stored(field: str) -> None:
    buffer = memory(4, [1, 2])
    with pytest.raises(T3DError, match=rf"^{field} has shape \(3, 9\); expected \(3"):
        buffer.add(**{**transitions([3, 4, 5]), field: np.zeros((3, 9))})
    with pytest.raises(T3DError, match="has shape"):
        buffer.add(**{**transitions([3, 4, 5]), field: transitions([3, 4])[field]})
    with pytest.raises(T3DError, match="has shape"):
        buffer.add(**{**one(3), field: np.zeros(9)})
    assert contents(buffer) == [1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", FIELDS)
def test_what_is_not_finite_is_refused_by_name_and_nothing_is_stored(
    field: str, bad: float
) -> None:
    buffer = memory(4, [1, 2])
    rows, row = transitions([3, 4, 5]), one(3)
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
    buffer = memory(4, [1, 2])
    row = one(3)
    row[field] = np.full(np.shape(row[field]), 1e39)
    with pytest.raises(T3DError, match=f"^{field} holds"):
        buffer.add(**row)
    assert contents(buffer) == [1, 2]


@pytest.mark.parametrize("count", [0, 3, 5, 12])
def test_a_saved_memory_comes_back_and_goes_on_as_if_never_saved(
    tmp_path: Path, count: int
) -> None:
    buffer, loaded = memory(5, list(range(count))), memory(5, [90, 91, 92, 93, 94, 95, 96])
    buffer.save(tmp_path / "memory.safetensors")
    loaded.load(tmp_path / "memory.safetensors")
    assert contents(loaded) == contents(buffer)
    for number in range(20, 28):
        for each in (buffer, loaded):
            each.add(**one(number))
        assert contents(loaded) == contents(buffer)
        assert loaded.position == buffer.position


def test_saved_images_come_back_as_bytes(tmp_path: Path) -> None:
    buffer, loaded = (ReplayBuffer(4, (2, 2), 1, np.uint8) for _ in range(2))
    dark, light = (np.full((2, 2), value, np.uint8) for value in (200, 255))
    buffer.add(dark, light, [0.5], 1.0, 0.0)
    with pytest.raises(T3DError, match="state has type float64; expected uint8"):
        buffer.add(np.full((2, 2), 0.7), light, [0.5], 1.0, 0.0)
    buffer.save(tmp_path / "memory.safetensors")
    loaded.load(tmp_path / "memory.safetensors")
    batch = sampled(loaded, 1)
    assert batch.state.dtype == torch.uint8
    np.testing.assert_array_equal(batch.state, np.full((1, 2, 2), 200))
    np.testing.assert_array_equal(batch.next_state, np.full((1, 2, 2), 255))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReplayBuffer(5, 3, 3),
        lambda: ReplayBuffer(5, 2, 4),
        lambda: ReplayBuffer(2, 2, 3),
        lambda: ReplayBuffer(5, 2, 3, np.uint8),
    ],
    ids=["state_dim", "action_dim", "capacity", "dtype"],
)
def test_a_memory_of_another_kind_is_not_loaded(
    tmp_path: Path, make: Callable[[], ReplayBuffer]
) -> None:
    memory(5, [1, 2, 3]).save(tmp_path / "memory.safetensors")
    other = make()
    with pytest.raises(T3DError, match="expected"):
        other.load(tmp_path / "memory.safetensors")
    assert len(other) == other.position == 0
    assert not other.reward.any()


def test_a_full_memory_never_gives_a_larger_one_what_was_not_stored(tmp_path: Path) -> None:
    memory(4, list(range(6))).save(tmp_path / "memory.safetensors")
    larger = memory(8)
    with contextlib.suppress(T3DError):  # it may refuse, but not carry on wrongly
        larger.load(tmp_path / "memory.safetensors")
    larger.add(**one(6))
    assert contents(larger) in ([6], [2, 3, 4, 5, 6])


def test_a_file_that_is_no_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.safetensors"
    path.write_bytes(b"not a memory")
    for bad in (path, tmp_path / "absent"):
        with pytest.raises(T3DError):
            memory(4).load(bad)


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
