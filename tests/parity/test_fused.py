"""The fused engine against the reference: same state, same batches, same noise."""

import copy
import dataclasses
import itertools
import math
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t3d import T3D, Batch, Config, FusedT3D, ReplayBuffer, T3DError

# How far apart two tensors may be, as a share of the reference's norm.
FLOAT64 = 1e-8
FLOAT32 = 1e-4


@dataclasses.dataclass(frozen=True)
class Case:
    state_dim: int = 3
    low: tuple[float, ...] = (-1.0, 0.0, -7.5)
    high: tuple[float, ...] = (1.0, 0.2, 20.0)
    done: float = 0.25  # the share of rows that are terminal
    rows: int = 24
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def agents(self, dtype: torch.dtype) -> tuple[T3D, FusedT3D]:
        own = {"hidden": (12, 9), "learning_rate": 1e-3, "tau": 0.05, "seed": 3}
        config = Config.from_dict({**own, "batch_size": self.rows, **self.knobs})
        shape = (self.state_dim, self.low, self.high, config)
        return T3D(*shape, dtype=dtype), FusedT3D(*shape, dtype=dtype)

    def batches(self, dtype: torch.dtype) -> Iterator[tuple[Batch, torch.Tensor]]:
        random = np.random.default_rng(0)
        shape = (self.rows, self.state_dim)
        while True:
            fields = (
                random.normal(size=shape),
                random.normal(size=shape),
                random.uniform(self.low, self.high, (self.rows, len(self.low))),
                random.normal(size=self.rows),
                random.random(self.rows) < self.done,
                random.integers(1, 4, self.rows),
            )
            noise = random.standard_normal((self.rows, len(self.low)))
            batch = Batch(*(torch.from_numpy(np.asarray(field)).to(dtype) for field in fields))
            yield batch, torch.from_numpy(noise).to(dtype)


def wide(*hidden: int, rows: int = 256, **sizes: Any) -> Case:
    return Case(rows=rows, knobs={"hidden": hidden, "learning_rate": 3e-4}, **sizes)


CASES = {
    "plain": Case(),
    "one hidden layer": Case(knobs={"hidden": (16,)}),
    "four hidden layers": Case(knobs={"hidden": (10, 7, 8, 33)}),
    "one unit": Case(state_dim=1, low=(-2.0,), high=(2.0,), knobs={"hidden": (1,)}),
    "one row": Case(rows=1),
    "whole panels": Case(rows=32),
    "the paper's batch": Case(rows=100),
    "whole tiles": Case(knobs={"hidden": (48, 96)}),
    "many actions": Case(low=(-1.0,) * 17, high=(0.5,) * 17, state_dim=40),
    "far from zero": Case(low=(100.0, -3.0), high=(101.0, -2.5)),
    "actor at every update": Case(knobs={"policy_freq": 1}),
    "actor at every third update": Case(knobs={"policy_freq": 3}),
    "all rows terminal": Case(done=1.0),
    "no row terminal": Case(done=0.0),
    "no smoothing": Case(knobs={"policy_noise": 0.0}),
    "the noise clip bites": Case(knobs={"policy_noise": 2.0, "noise_clip": 0.3}),
    "the action range bites": Case(knobs={"policy_noise": 5.0, "noise_clip": 10.0}),
    "targets are copies": Case(knobs={"tau": 1.0}),
    "targets stand still": Case(knobs={"tau": 1e-6}),
    "blind to the future": Case(knobs={"discount": 0.0}),
    "no discount": Case(knobs={"discount": 1.0}),
    "fast": Case(knobs={"learning_rate": 3e-2}),
}


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        error = (found[name].double() - value.double()).norm()
        assert error <= tolerance * value.double().norm(), (name, float(error))


def assert_same_training(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    reference, fused = case.agents(dtype)
    for batch, noise in itertools.islice(case.batches(dtype), updates):
        expected, found = reference.update(batch, noise), fused.update(batch, noise)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            # Values of either sign may have a mean near 0; it is as exact as they are.
            near = {"rel_tol": tolerance, "abs_tol": tolerance / 100}
            assert math.isclose(float(found[name]), float(value), **near), name
    assert_same(fused.state_dict(), reference.state_dict(), tolerance)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float64_agrees_over_500_updates(case: Case) -> None:
    assert_same_training(case, torch.float64, FLOAT64, updates=500)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float32_agrees_over_20_updates(case: Case) -> None:
    assert_same_training(case, torch.float32, FLOAT32, updates=20)


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
    assert_same_training(case, torch.float64, FLOAT64, updates=6)
    assert_same_training(case, torch.float32, FLOAT32, updates=4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_sizes_and_knobs_agree(data: st.DataObject) -> None:
    numbers = st.floats(-10, 10, width=32)
    widths = st.floats(0.125, 20, width=32)
    bounds = data.draw(st.lists(st.tuples(numbers, widths), min_size=1, max_size=9))
    knobs = st.fixed_dictionaries(
        {
            "hidden": st.lists(st.integers(1, 40), min_size=1, max_size=4),
            "learning_rate": st.floats(1e-4, 1e-2),
            "discount": st.floats(0, 1),
            "tau": st.floats(1e-3, 1),
            "policy_noise": st.floats(0, 2),
            "noise_clip": st.floats(0, 2),
            "policy_freq": st.integers(1, 3),
            "seed": st.integers(0, 2**32 - 1),
        }
    )
    case = Case(
        state_dim=data.draw(st.integers(1, 40)),
        low=tuple(low for low, _ in bounds),
        high=tuple(low + width for low, width in bounds),
        done=data.draw(st.floats(0, 1)),
        rows=data.draw(st.integers(1, 70)),
        knobs=data.draw(knobs),
    )
    assert_same_training(case, torch.float64, FLOAT64, data.draw(st.integers(1, 12)))


def memory_of(case: Case, rows: int = 200) -> ReplayBuffer:
    memory = ReplayBuffer(rows, case.state_dim, len(case.low))
    many = dataclasses.replace(case, rows=rows)
    batch, _ = next(many.batches(torch.float32))
    state, after, action, reward, done, steps = batch
    cut = steps > 2
    for i in range(rows - 1):  # episodes, of which some are cut off
        if not done[i] and not cut[i]:
            state[i + 1] = after[i]
    memory.add(state, after, action, reward, done, cut)
    return memory


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
    reference, fused = case.agents(torch.float64)
    memory = memory_of(case)
    for agent in (reference, fused):
        agent.observe(100 + 10 * memory.state[:150])
    expected, found = reference.train(memory, 50), fused.train(memory, 50)
    states = 100 + 10 * memory.state[:20]
    np.testing.assert_allclose(
        fused.select_action(states), reference.select_action(states), rtol=1e-5
    )
    assert_same(fused.state_dict(), reference.state_dict(), FLOAT64)
    for name, value in expected.items():
        assert math.isclose(float(found[name]), float(value), rel_tol=FLOAT64), name


def test_lanes_without_a_transition_stay_out_of_it() -> None:
    """A batch of 17 leaves 15 lanes of its second panel empty, update after update."""
    case = Case(low=(100.0,), high=(100.5,), rows=17, knobs={"policy_freq": 10_000})
    reference, fused = case.agents(torch.float64)
    memory = memory_of(case)
    reference.train(memory, 1500)
    fused.train(memory, 1500)
    assert_same(fused.state_dict(), reference.state_dict(), FLOAT64)


def test_the_same_action_for_one_state_and_for_many() -> None:
    reference, fused = Case().agents(torch.float32)
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
def test_a_checkpoint_goes_on_with_the_other_engine(start: str, tmp_path: Any) -> None:
    case = Case()
    memory = memory_of(case)
    reference, fused = case.agents(torch.float64)
    undisturbed, _ = case.agents(torch.float64)
    first, kind = (reference, FusedT3D) if start == "reference" else (fused, T3D)
    first.train(memory, 25)
    first.save(tmp_path / "agent.safetensors")
    second = kind.load(tmp_path / "agent.safetensors")
    assert type(second) is kind
    second.train(memory, 26)
    undisturbed.train(memory, 51)
    assert_same(second.state_dict(), undisturbed.state_dict(), FLOAT64)


def test_modules_see_every_update() -> None:
    """The networks of the agent are PyTorch's, and never a copy that lags behind."""
    _, fused = Case().agents(torch.float32)
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
        dataclasses.replace(case, knobs=case.knobs | {"threads": n}).agents(torch.float32)[1]
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
    _, one = case.agents(torch.float32)
    _, two = case.agents(torch.float32)
    _, undisturbed = case.agents(torch.float32)
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
    reference, fused = case.agents(torch.float32)
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
    _, fused = Case(knobs={"threads": 2}).agents(torch.float32)
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
    _, fused = Case().agents(torch.float32)
    batch, noise = next(Case().batches(torch.float32))
    with pytest.raises(T3DError, match=r"state has shape \(24, 3\); expected \(23, 3\)"):
        fused.update(batch, noise[1:])
    with pytest.raises(T3DError, match=r"action has shape \(24, 4\); expected \(24, 3\)"):
        fused.update(batch._replace(action=torch.zeros(24, 4)), noise)
    with pytest.raises(T3DError, match=r"noise has shape \(24, 2\)"):
        fused.update(batch, noise[:, 1:])


def test_dead_units_leave_no_denormal_numbers() -> None:
    case = Case(knobs={"hidden": (4,), "learning_rate": 1e-6})
    _, fused = case.agents(torch.float32)
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
