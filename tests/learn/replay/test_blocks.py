"""What checkpoints and files store of a memory, and what is refused of what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.memories import chain, contents, frames, numbered_memory, one
from t3d import ReplayBuffer, T3DError
from t3d.learn.replay.blocks import Block


@pytest.mark.parametrize("count", [0, 3, 5, 12])
def test_a_saved_memory_comes_back_and_continues_as_if_never_saved(
    tmp_path: Path, count: int
) -> None:
    buffer, loaded = (
        numbered_memory(5, list(range(count))),
        numbered_memory(5, [90, 91, 92, 93, 94, 95, 96]),
    )
    buffer.save(tmp_path / "memory.safetensors")
    loaded.load(tmp_path / "memory.safetensors")
    assert contents(loaded) == contents(buffer)
    for number in range(20, 28):
        for each in (buffer, loaded):
            each.add(**one(number))
        assert contents(loaded) == contents(buffer)
        assert loaded.position == buffer.position


def test_saved_images_come_back_as_bytes(tmp_path: Path) -> None:
    buffer, loaded = (ReplayBuffer(4, frames(4), 1) for _ in range(2))
    dark, light = (np.full(4, value, np.uint8) for value in (200, 255))
    buffer.add(dark, light, [0.5], 1.0, 0.0)
    with pytest.raises(T3DError, match="state has type float64; expected uint8"):
        buffer.add(np.full(4, 0.7), light, [0.5], 1.0, 0.0)
    buffer.save(tmp_path / "memory.safetensors")
    loaded.load(tmp_path / "memory.safetensors")
    batch = loaded.batch(np.array([0]))
    assert batch.state.dtype == torch.uint8
    assert batch.state.tolist() == [[200] * 4]
    assert batch.next_state.tolist() == [[255] * 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReplayBuffer(5, 3, 3),
        lambda: ReplayBuffer(5, 2, 4),
        lambda: ReplayBuffer(2, 2, 3),
        lambda: ReplayBuffer(5, frames(2), 3),
    ],
    ids=["state_dim", "action_dim", "capacity", "dtype"],
)
def test_a_memory_of_another_kind_is_not_loaded(
    tmp_path: Path, make: Callable[[], ReplayBuffer]
) -> None:
    numbered_memory(5, [1, 2, 3]).save(tmp_path / "memory.safetensors")
    other = make()
    with pytest.raises(T3DError, match="expected"):
        other.load(tmp_path / "memory.safetensors")
    assert len(other) == other.position == 0
    assert not other.reward.any()


def test_a_memory_of_another_capacity_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    numbered_memory(4, list(range(6))).save(tmp_path / "memory.safetensors")
    larger = numbered_memory(8)
    with pytest.raises(T3DError, match="the stored memory has capacity 4; expected 8"):
        larger.load(tmp_path / "memory.safetensors")
    larger.add(**one(6))
    assert contents(larger) == [6]


def test_a_file_that_is_no_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.safetensors"
    path.write_bytes(b"not a memory")
    for bad in (path, tmp_path / "absent"):
        with pytest.raises(T3DError):
            numbered_memory(4).load(bad)


@pytest.mark.parametrize(
    "change",
    [
        {"changed": []},
        {"changed": {"rows": [0, 0], "ends": [0]}},
        {"changed": {"rows": [0]}},
        {"changed": {"rows": [float("inf")], "ends": []}},
        {"changed": {"other": [1]}},
        {"last": [0, 0]},
        {"last": [5]},
        {"last": [0]},
        {"last": 3},
        {"added": 2**64},
        {"added": True},
        {"added": -1},
        {"ends": 1.0},
        {"ends": 100},
        {"capacity": 7},
    ],
)
def test_facts_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    with pytest.raises(T3DError, match="the stored memory"):
        ReplayBuffer(10, 1, 1).restore(memory.facts() | change, memory.read)


def test_a_block_says_that_it_changed_if_and_only_if_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("t3d.learn.replay.blocks.BLOCK_BYTES", 2 * 20)  # two rows, ten ends
    memory = ReplayBuffer(40, 1, 1)
    assert memory.row_bytes == 20
    before: dict[tuple[str, int], tuple[Block, dict[str, Any]]] = {}
    random, state, outcomes = np.random.default_rng(0), 1, set()
    for _ in range(60):
        steps = int(random.integers(1, 5))
        # No number comes twice, so that whatever is written differs from what was there.
        ends = bool(random.integers(2))  # or the episode continues, and changes its last row
        chain(memory, range(state, state + steps + 1), "truncated" if ends else "")
        state += steps + ends
        for block in memory.blocks():
            arrays = {name: array.copy() for name, array in memory.read(block).items()}
            old, old_arrays = before.get((block.table, block.low), (None, {}))
            same = arrays.keys() == old_arrays.keys() and all(
                np.array_equal(array, old_arrays[name]) for name, array in arrays.items()
            )
            assert (block == old) == same, block
            outcomes.add((block.table, same))
            before[block.table, block.low] = block, arrays
    assert len(outcomes) == 4  # both tables had both


def test_a_memory_that_was_loaded_has_changed_everywhere() -> None:
    memory, other = numbered_memory(5, [1, 2, 3]), numbered_memory(5, [7, 8, 9])
    assert [block.changed for block in memory.blocks()] == [3, 3]
    memory.add(**one(4))
    other.load_state_dict({name: array.copy() for name, array in memory.state_dict().items()})
    assert [block.changed for block in other.blocks()] == [4, 4]


@pytest.mark.parametrize(
    ("name", "value"), [("next_at", 22), ("next_at", -1), ("before", 11), ("before", -2)]
)
def test_a_stored_memory_that_points_outside_is_refused(name: str, value: int) -> None:
    memory, other = (ReplayBuffer(10, frames(1, stack=2), 1) for _ in range(2))
    memory.add(np.zeros(2, np.uint8), np.zeros(2, np.uint8), [0], 0, False)
    stored = {key: array.copy() for key, array in memory.state_dict().items()}
    stored[name][0] = value
    with pytest.raises(T3DError, match=f"stored {name} points outside of the memory"):
        other.load_state_dict(stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"added": None}, "the stored memory lacks added"),
        ({"reward": None}, "the stored memory lacks reward"),
        ({"last": np.array(0)}, "stored last has 0 axes; expected 1"),
        ({"capacity": np.array(np.inf)}, "stored capacity is float64; expected int64"),
        ({"reward": np.zeros(2)}, r"stored reward is float64\(2,\); expected float32\(2,\)"),
    ],
)
def test_arrays_that_are_no_memory_are_refused(change: dict[str, Any], message: str) -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    arrays = {k: v for k, v in (memory.state_dict() | change).items() if v is not None}
    with pytest.raises(T3DError, match=f"^{message}$"):
        ReplayBuffer(10, 1, 1).load_state_dict(arrays)
