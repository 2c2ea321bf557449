"""The fused engine against the reference: same state, same batches, same noise."""

import copy
import dataclasses
import itertools
import math
import pickle
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fences import Fenced
from helpers.memories import filled_memory
from helpers.training import (
    CASES,
    PANEL_CASES,
    Case,
    any_case,
    assert_same_measures,
    assert_same_state,
    assert_same_training,
)
from t3d import T3D, FusedT3D, ReplayBuffer, T3DError

# How far apart two tensors may be, as a share of the reference's norm.
FLOAT64 = 1e-8
FLOAT32 = 1e-4
ALL_CASES = CASES | PANEL_CASES


def agents(case: Case, dtype: torch.dtype) -> tuple[T3D, FusedT3D]:
    return case.agent(T3D, dtype), case.agent(FusedT3D, dtype)


def train_both(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    reference, fused = agents(case, dtype)
    assert_same_training(case, (fused, reference), dtype, tolerance, updates)


def wide(*hidden: int, rows: int = 256, **sizes: Any) -> Case:
    return Case(rows=rows, knobs={"hidden": hidden, "learning_rate": 3e-4}, **sizes)


@pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES)
def test_float64_agrees_over_200_updates(case: Case) -> None:
    """Beyond the end of every schedule, and long enough for what adds up."""
    train_both(case, torch.float64, FLOAT64, updates=200)


@pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES)
def test_float32_agrees_over_20_updates(case: Case) -> None:
    train_both(case, torch.float32, FLOAT32, updates=20)


@pytest.mark.parametrize(
    "case",
    [
        wide(256, 256, state_dim=17, low=(-1.0,) * 6, high=(1.0,) * 6),
        wide(400, 300, state_dim=11, rows=100),
        wide(256, 256, state_dim=348, low=(-0.4,) * 17, high=(0.4,) * 17, rows=64),
    ],
    ids=["HalfCheetah", "the paper", "Humanoid"],
)
def test_sizes_of_real_tasks_agree(case: Case) -> None:
    train_both(case, torch.float64, FLOAT64, updates=6)
    train_both(case, torch.float32, FLOAT32, updates=4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=any_case(largest=40), updates=st.integers(1, 12))
def test_any_sizes_and_knobs_agree_and_nothing_is_written_elsewhere(
    case: Case, updates: int
) -> None:
    fenced = Fenced()
    with mock.patch("t3d.learn.fused.agent.new_scratch", fenced):
        train_both(case, torch.float64, FLOAT64, updates)
    assert fenced.arrays
    assert fenced.is_whole()


def test_td_errors_agree() -> None:
    case = Case(rows=37)
    reference, fused = agents(case, torch.float64)
    for batch, noise in itertools.islice(case.batches(torch.float64), 3):
        reference.update(batch, noise)
        fused.update(batch, noise)
        torch.testing.assert_close(fused.td_errors, reference.td_errors, rtol=FLOAT64, atol=FLOAT64)


def test_the_state_has_the_types_of_the_reference() -> None:
    reference, fused = agents(Case(), torch.float32)
    types = {name: value.dtype for name, value in reference.state_dict().items()}
    assert {name: value.dtype for name, value in fused.state_dict().items()} == types


def memory_of(case: Case, rows: int = 200) -> ReplayBuffer:
    return filled_memory(rows, case.state_dim, case.low, case.high)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"n_step": 3},
        {"reward_scale": 0.1},
        {"normalize_observations": True},
        {"n_step": 5, "reward_scale": 3.0, "normalize_observations": True, "policy_freq": 3},
    ],
)
def test_train_draws_the_same_rows_and_noise(knobs: dict[str, Any]) -> None:
    case = Case(knobs=knobs)
    reference, fused = agents(case, torch.float64)
    memory = memory_of(case)
    for agent in (reference, fused):
        agent.observe(100 + 10 * memory.state[:150])
    expected, measures = reference.train(memory, 50), fused.train(memory, 50)
    states = 100 + 10 * memory.state[:20]
    np.testing.assert_allclose(
        fused.select_action(states), reference.select_action(states), rtol=1e-5
    )
    assert_same_state(fused, reference, FLOAT64)
    assert_same_measures(measures, expected, FLOAT64)


def test_lanes_without_a_transition_stay_out_of_it() -> None:
    """A batch of 17 leaves 15 lanes of its second panel empty, update after update."""
    case = Case(low=(100.0,), high=(100.5,), rows=17, knobs={"policy_freq": 10_000})
    reference, fused = agents(case, torch.float64)
    memory = memory_of(case)
    reference.train(memory, 1500)
    fused.train(memory, 1500)
    assert_same_state(fused, reference, FLOAT64)


def test_the_same_action_for_one_state_and_for_many() -> None:
    reference, fused = agents(Case(), torch.float32)
    states = np.random.default_rng(0).normal(size=(50, 3)) * 100
    np.testing.assert_allclose(
        fused.select_action(states), reference.select_action(states), rtol=1e-5, atol=1e-5
    )
    alone = [fused.select_action(state) for state in states]
    np.testing.assert_array_equal(fused.select_action(states), alone)
    assert fused.select_action(states).dtype == np.float32
    low, high = (np.asarray(bound, np.float32) for bound in (Case().low, Case().high))
    actions = fused.select_action(states * 1e6)
    assert ((low <= actions) & (actions <= high)).all()


@pytest.mark.parametrize("start", ["reference", "fused"])
def test_a_checkpoint_resumes_with_the_other_engine(start: str, tmp_path: Any) -> None:
    case = Case()
    memory = memory_of(case)
    reference, fused = agents(case, torch.float64)
    undisturbed, _ = agents(case, torch.float64)
    first, kind = (reference, FusedT3D) if start == "reference" else (fused, T3D)
    first.train(memory, 25)
    first.save(tmp_path / "agent.safetensors")
    second = kind.load(tmp_path / "agent.safetensors")
    assert type(second) is kind
    second.train(memory, 26)
    undisturbed.train(memory, 51)
    assert_same_state(second, undisturbed, FLOAT64)


def test_modules_see_every_update() -> None:
    """The networks of the agent are PyTorch's, and never a copy that lags behind."""
    _, fused = agents(Case(), torch.float32)
    states = torch.ones(5, 3)
    before = fused.actor(states)
    fused.train(memory_of(Case()), 10)
    after = fused.actor(states)
    assert not torch.equal(before, after)
    np.testing.assert_allclose(after.detach(), fused.select_action(states), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7, 0])
@pytest.mark.parametrize("hidden", [(12, 9), (64, 64), (5,)])
def test_any_number_of_threads_gives_the_same_bits(threads: int, hidden: tuple[int, ...]) -> None:
    case = Case(rows=100, knobs={"hidden": hidden})
    alone, team = (
        agents(dataclasses.replace(case, knobs=case.knobs | {"threads": n}), torch.float32)[1]
        for n in (1, threads)
    )
    memory = memory_of(case)
    alone.train(memory, 60)
    for _ in range(60):
        team.train(memory, 1)
    for name, value in alone.state_dict().items():
        assert torch.equal(team.state_dict()[name], value), name


def test_agents_do_not_disturb_each_other() -> None:
    """Two agents with teams of their own take turns, and one changes memories."""
    case = Case(knobs={"threads": 2})
    memories = memory_of(case), memory_of(case, rows=300)
    _, one = agents(case, torch.float32)
    _, two = agents(case, torch.float32)
    _, undisturbed = agents(case, torch.float32)
    for memory in memories * 3:
        one.train(memory, 5)
        two.train(memories[0], 5)
    for memory in memories * 3:
        undisturbed.train(memory, 5)
    for name, value in undisturbed.state_dict().items():
        assert torch.equal(one.state_dict()[name], value), name


@pytest.mark.parametrize("where", ["critic.twin1", "critic.twin2", "critic_target.twin2", "actor"])
def test_what_is_not_a_number_spreads_as_in_the_reference(where: str) -> None:
    case = Case(done=0.0)
    memory = memory_of(case)
    reference, fused = agents(case, torch.float32)
    for learner in (reference, fused):
        network = learner
        for name in where.split("."):
            network = getattr(network, name)
        assert isinstance(network, torch.nn.Module)
        with torch.no_grad():
            next(network.parameters())[0, 0] = math.nan
        learner.train(memory, 2)
    expected = {name: value.isnan().all() for name, value in reference.state_dict().items()}
    for name, value in fused.state_dict().items():
        assert value.isnan().all() == expected[name], name
    assert any(expected.values())


def test_a_copy_is_an_agent_of_its_own() -> None:
    memory = memory_of(Case())
    _, fused = agents(Case(knobs={"threads": 2}), torch.float32)
    fused.train(memory, 5)
    for twin in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        before = fused.state_dict()
        twin.train(memory, 5)
        assert all(torch.equal(value, before[name]) for name, value in fused.state_dict().items())
        weight = "actor.layers.0.weight"
        assert not torch.equal(twin.state_dict()[weight], before[weight])
    fused.train(memory, 5)
    for name, value in fused.state_dict().items():
        assert torch.equal(twin.state_dict()[name], value), name


def test_a_batch_of_another_shape_is_refused() -> None:
    _, fused = agents(Case(), torch.float32)
    batch, noise = next(Case().batches(torch.float32))
    with pytest.raises(T3DError, match=r"state has shape \(24, 3\); expected \(23, 3\)"):
        fused.update(batch, noise[1:])
    with pytest.raises(T3DError, match=r"action has shape \(24, 4\); expected \(24, 3\)"):
        fused.update(batch._replace(action=torch.zeros(24, 4)), noise)
    with pytest.raises(T3DError, match=r"noise has shape \(24, 2\)"):
        fused.update(batch, noise[:, 1:])


def test_dead_units_leave_no_denormal_numbers() -> None:
    case = Case(knobs={"hidden": (4,), "learning_rate": 1e-6})
    _, fused = agents(case, torch.float32)
    memory = memory_of(case)
    fused.train(memory, 1)
    with torch.no_grad():
        for twin in (fused.critic.twin1, fused.critic.twin2):
            layer = next(twin.children())
            assert isinstance(layer, torch.nn.Linear)
            layer.bias.fill_(-1e4)  # every unit is dead now, and its moments decay
    fused.train(memory, 1200)
    moments = fused.state_dict()["critic_optimizer.twin1.0.weight.exp_avg"]
    assert (moments == 0).all()
