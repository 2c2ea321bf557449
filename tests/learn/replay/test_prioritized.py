"""Prioritised rows, beside a naive store of priorities."""

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memories import filled_memory, numbered, numbered_memory
from helpers.runs import resumed, same_bits_and_records, trained
from t3d import T3D, BadInput, Config, FusedT3D, ReplayBuffer
from t3d.base.observation import Image, Layout
from t3d.learn.replay.prioritized import ALPHA, Prioritized, find_leaves, set_leaves
from t3d.run.folder import RunFolder


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Naive:
    """A dict of priorities by the number of the transition."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.largest = capacity, np.float32(1)
        self.priority: dict[int, np.float32] = {}

    def add(self, number: int) -> None:
        self.priority[number] = self.largest
        self.priority.pop(number - self.capacity, None)

    def learned(self, numbers: list[int], errors: list[float]) -> None:
        priorities = [np.float32(max(abs(error), 1) ** ALPHA) for error in errors]
        for number, priority in zip(numbers, priorities):
            self.priority[number] = priority
        self.largest = max(self.largest, *priorities)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), capacity=st.integers(1, 20))
def test_priorities_are_those_of_a_naive_store(data: st.DataObject, capacity: int) -> None:
    """Whatever is added and learned, in any order, and across a save."""
    memory = numbered_memory(capacity, [])
    sampler, naive = Prioritized(), Naive(capacity)
    for _ in range(data.draw(st.integers(1, 10))):
        for number in range(memory.added, memory.added + data.draw(st.integers(1, 25))):
            memory.add(**{name: field[0] for name, field in numbered([number]).items()})
            naive.add(number)
        rows = sampler.draw(memory, data.draw(st.integers(1, 8)), stream(memory.added))
        numbers = [round(float(reward) / 10) for reward in memory.reward[rows]]
        assert set(numbers) <= naive.priority.keys()
        errors = data.draw(st.lists(st.floats(0, 1e6, width=32), min_size=8, max_size=8))
        sampler.learned(rows, np.array(errors[: len(rows)], np.float32))
        naive.learned(numbers, errors[: len(rows)])
        if data.draw(st.booleans()):
            state = sampler.state_dict()
            sampler = Prioritized()
            sampler.load_state_dict(state)
        stored = sampler.state_dict()["priority"]
        expected = np.zeros(len(stored))
        for number, priority in naive.priority.items():
            expected[number % capacity] = priority
        np.testing.assert_allclose(stored, expected, rtol=1e-6)
        assert sampler.largest == pytest.approx(naive.largest, rel=1e-6)


def test_rows_are_drawn_in_proportion_to_their_priorities() -> None:
    memory, sampler = numbered_memory(20, list(range(33))), Prioritized()
    sampler.draw(memory, 1, stream())
    errors = np.linspace(0.5, 300, 20).astype(np.float32)
    sampler.learned(np.arange(20), errors)
    draws = 100_000
    counts = np.bincount(sampler.draw(memory, draws, stream(1)), minlength=20)
    priorities = np.maximum(errors, 1) ** ALPHA
    expected = draws * priorities / priorities.sum()
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # Chi-square with 19 degrees of freedom: see test_every_stored_transition_is_equally_likely.
    assert 5.4 < chi_square < 43.8


def test_a_row_without_priority_is_never_drawn() -> None:
    """Not even where rounding leads to the very end of a sum."""
    tree = np.zeros(16)
    set_leaves(tree, np.array([1, 4, 6]), np.array([0.1, 0.2, 0.7], np.float32))
    shares = np.concatenate([stream().random(10_000), [0.0, np.nextafter(1.0, 0.0), 1.0]])
    rows = np.empty(len(shares), np.int64)
    find_leaves(tree, shares, rows)
    assert set(rows.tolist()) == {1, 4, 6}
    np.testing.assert_array_equal(rows[-3:], [1, 6, 6])


def test_rows_that_only_serve_stacked_frames_are_not_drawn() -> None:
    """Such a memory has more rows than transitions that may be drawn."""
    layout = Layout(0, (Image(1, 2, 2),), frame_stack=3)
    memory = ReplayBuffer(5, layout, 1)
    sampler, draw = Prioritized(), stream()
    state = np.zeros(layout.size, np.uint8)
    for number in range(30):
        memory.add(state, state, [0.0], float(number), False, truncated=True)
        drawn = memory.reward[sampler.draw(memory, 50, draw)]
        assert set(drawn.tolist()) == set(range(max(0, number - 4), number + 1))


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
def test_an_agent_learns_the_priorities_of_its_rows(kind: type[T3D]) -> None:
    agent = kind(3, [-1.0], [1.0], Config(sampling="lap", batch_size=16, hidden=(8,)))
    memory = filled_memory(100, 3)
    memory.reward[:] *= 100
    agent.train(memory, 1)
    assert agent.rows is not None
    expected = np.ones(100, np.float32)
    for row, error in zip(agent.rows, agent.td_errors.float().numpy()):
        expected[row] = max(error, 1) ** ALPHA
    stored = agent.sampler.state_dict()["priority"]
    assert stored.max() > 2
    np.testing.assert_allclose(stored, expected, rtol=1e-5)
    agent.train(memory, 20)
    other = kind(3, [-1.0], [1.0], Config(sampling="lap", batch_size=16, hidden=(8,)))
    other.load_state_dict(agent.state_dict())
    for each in (agent, other):
        each.train(memory, 5)
    ends = zip(agent.state_dict().values(), other.state_dict().values())
    assert all(torch.equal(*pair) for pair in ends)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"engine": "reference", "n_step": 3},
        {"capacity": 25, "num_envs": 2},
        {"overlap": True, "replay_on_disk": True},
        {"train_after": "episode", "capacity": 31},
    ],
)
def test_a_resumed_run_has_the_same_bits(tmp_path: Any, knobs: dict[str, Any]) -> None:
    trained(tmp_path / "uninterrupted", sampling="lap", **knobs)
    run = trained(tmp_path / "stopped", sampling="lap", **knobs)
    for checkpoint in RunFolder(run).all_checkpoints()[1:]:
        shutil.rmtree(checkpoint)  # what a kill before the later ones leaves
    assert resumed(run) == []
    assert same_bits_and_records(tmp_path / "uninterrupted", run)
    assert not same_bits_and_records(run, trained(tmp_path / "uniform", **knobs))


def edited(**changes: Any) -> dict[str, Any]:
    """The state of a sampler of three rows, with something wrong."""
    sampler = Prioritized()
    sampler.draw(numbered_memory(9, [1, 2, 3]), 1, stream())
    return sampler.state_dict() | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": np.array([1.0, -1.0, 1.0], np.float32)},
        {"priority": np.array([1.0, np.nan, 1.0], np.float32)},
        {"priority": np.array([1.0, np.inf, 1.0], np.float32)},
        {"priority": np.ones(3)},
        {"priority": np.ones((3, 1), np.float32)},
        {"largest": np.array(np.nan)},
        {"largest": np.array(0.5)},
        {"counts": np.array([2, 3])},
        {"counts": np.array([3, 4])},
        {"counts": np.array([-1, -1])},
        {"counts": np.array([3.0, 3.0])},
    ],
)
def test_a_state_from_a_file_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the priorities of the replay memory"):
        Prioritized().load_state_dict(edited(**changes))


def test_priorities_of_another_memory_are_refused() -> None:
    sampler = Prioritized()
    sampler.load_state_dict(edited())
    for other in (numbered_memory(2, [1, 2, 3]), numbered_memory(9, [1, 2])):
        with pytest.raises(BadInput, match="another memory; make a new agent"):
            sampler.draw(other, 1, stream())
    with pytest.raises(BadInput, match="the replay memory is empty"):
        Prioritized().draw(ReplayBuffer(5, 3, 1), 1, stream())


def test_rows_that_were_not_drawn_are_refused() -> None:
    error = np.ones(1, np.float32)
    sampler = Prioritized()
    with pytest.raises(BadInput, match="row 0 has no priority; learn from rows that were drawn"):
        sampler.learned(np.array([0]), error)
    sampler.draw(numbered_memory(9, [1, 2, 3]), 1, stream())
    for row in (-1, 3, 10**9):
        with pytest.raises(BadInput, match=f"row {row} has no priority"):
            sampler.learned(np.array([row]), error)


def test_the_largest_priority_can_be_that_of_the_rows_now() -> None:
    memory, sampler = numbered_memory(9, [1, 2, 3]), Prioritized()
    sampler.draw(memory, 1, stream())
    sampler.learned(np.array([0]), np.array([1e5], np.float32))
    sampler.learned(np.array([0]), np.array([32.0], np.float32))
    sampler.forget_largest()
    assert sampler.largest == pytest.approx(4.0)


@pytest.mark.parametrize("error", [np.nan, np.inf, 3e38])
def test_errors_that_are_not_finite_leave_all_rows_in_their_range(error: float) -> None:
    memory, sampler = numbered_memory(9, [1, 2, 3]), Prioritized()
    sampler.draw(memory, 1, stream())
    sampler.learned(np.array([1]), np.array([error], np.float32))
    assert set(sampler.draw(memory, 1000, stream()).tolist()) <= {0, 1, 2}
    assert np.isfinite(sampler.largest)
