"""The fused TD7 against the reference: same state, same batches, same noise."""

import dataclasses
import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fences import Fenced
from helpers.memories import filled_memory
from helpers.td7 import CASES, any_td7_case, case
from helpers.training import (
    Case,
    assert_same_measures,
    assert_same_state,
    assert_same_training,
)
from t3d import TD7, ReplayBuffer
from t3d.learn.fused.td7.agent import FusedTD7

# How far apart two tensors may be, as a share of the reference's norm.
FLOAT64 = 1e-8
FLOAT32 = 1e-4

PANELS = {
    "full panels": case(rows=32),
    "three panels, the last one not full": case(rows=37),
    "full tiles": case(hidden=(48, 96), embedding=48),
    "one unit in a hidden layer": case(hidden=(9, 1), encoder_hidden=(1,)),
    "slim": case(hidden=(128, 128), embedding=128, rows=64),
}


def train_both(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    fused, reference = case.agent(FusedTD7, dtype), case.agent(TD7, dtype)
    assert_same_training(case, (fused, reference), dtype, tolerance, updates)
    errors = fused.td_errors, reference.td_errors
    torch.testing.assert_close(*errors, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("case", (CASES | PANELS).values(), ids=CASES | PANELS)
def test_float64_agrees_over_40_updates(case: Case) -> None:
    train_both(case, torch.float64, FLOAT64, 40)


@pytest.mark.parametrize("case", (CASES | PANELS).values(), ids=CASES | PANELS)
def test_float32_agrees_over_6_updates(case: Case) -> None:
    train_both(case, torch.float32, FLOAT32, 6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=any_td7_case(largest=30), updates=st.integers(1, 10))
def test_any_sizes_and_knobs_agree_and_nothing_is_written_elsewhere(
    case: Case, updates: int
) -> None:
    fenced = Fenced()
    with mock.patch("t3d.learn.fused.td7.agent.new_scratch", fenced):
        train_both(case, torch.float64, FLOAT64, updates)
    assert fenced.arrays
    assert fenced.is_whole()


def memory_of(case: Case, rows: int = 200) -> ReplayBuffer:
    return filled_memory(rows, case.state_dim, case.low, case.high)


@pytest.mark.parametrize(
    "knobs",
    [{}, {"sampling": "uniform"}, {"normalize_observations": True, "reward_scale": 0.1}],
    ids=["lap", "uniform", "normalised and scaled"],
)
def test_train_draws_the_same_rows_and_noise(knobs: dict[str, Any]) -> None:
    one = case(rows=37, target_every=3, **knobs)
    memory = memory_of(one)
    fused, reference = one.agent(FusedTD7, torch.float32), one.agent(TD7, torch.float32)
    for agent in (fused, reference):
        agent.observe(memory.observation[:50])
    for updates in (1, 2, 4):
        measures = fused.train(memory, updates), reference.train(memory, updates)
        assert_same_measures(*measures, 10 * FLOAT32)
    assert_same_state(fused, reference, FLOAT32)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    one = case(rows=100, hidden=(40, 33), embedding=21, gradient_clip=0.3)
    states = []
    for threads in (1, 2, 3, 4):
        knobs = one.knobs | {"threads": threads}
        agent = dataclasses.replace(one, knobs=knobs).agent(FusedTD7, torch.float32)
        agent.train(memory_of(one), 20)
        states.append(agent.state_dict())
    for state in states[1:]:
        for name, value in states[0].items():
            assert value.numpy().tobytes() == state[name].numpy().tobytes(), name


def test_an_update_in_the_background_leaves_the_policy_alone_until_it_ends() -> None:
    """Every update that may begin is one after which actions are the same."""
    one = case(rows=64, target_every=3, threads=2)
    memory, states = memory_of(one), np.zeros((4, one.state_dim), np.float32)
    agent, expected = one.agent(FusedTD7, torch.float32), one.agent(FusedTD7, torch.float32)
    begun = 0
    for _ in range(24):
        before = agent.select_action(states)
        finish = agent.begin(memory)
        if finish is None:
            agent.train(memory, 1)
        else:
            begun += 1
            finish()
            np.testing.assert_array_equal(agent.select_action(states), before)
        expected.train(memory, 1)
    assert begun in (0, 8)  # 0 while the size of the team is tried out
    for name, value in expected.state_dict().items():
        assert value.numpy().tobytes() == agent.state_dict()[name].numpy().tobytes(), name


def test_it_acts_like_the_reference() -> None:
    one = CASES["encoders of their own"]
    fused, reference = one.agent(FusedTD7, torch.float64), one.agent(TD7, torch.float64)
    for batch, noise in itertools.islice(one.batches(torch.float64), 9):
        fused.update(batch, noise)
        reference.update(batch, noise)
    states = np.random.default_rng(5).normal(size=(7, one.state_dim)).astype(np.float32)
    for some in (states, states[0]):
        expected = reference.select_action(some)
        np.testing.assert_allclose(fused.select_action(some), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fused.value(some), reference.value(some), rtol=1e-5, atol=1e-6)


def test_either_engine_loads_the_other(tmp_path: Any) -> None:
    one = CASES["plain"]
    fused = one.agent(FusedTD7, torch.float32)
    fused.train(memory_of(one), 6)
    fused.save(tmp_path / "agent.safetensors")
    reference = TD7.load(tmp_path / "agent.safetensors")
    reference.save(tmp_path / "again.safetensors")
    again = FusedTD7.load(tmp_path / "again.safetensors")
    for agent in (fused, again):
        agent.train(memory_of(one), 7)
    for name, value in fused.state_dict().items():
        assert value.numpy().tobytes() == again.state_dict()[name].numpy().tobytes(), name
