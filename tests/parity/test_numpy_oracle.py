"""T3D against one whole update written by hand in NumPy: same weights, batches and noise."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.numpy_td3 import NumpyTD3
from t3d import T3D, Batch, Config, ReplayBuffer
from t3d.base.randomness import generator

ROWS = 16

# How far apart two arrays may be, as a share of the oracle's norm. Sums in another order cost
# the last digits: the runs below stay within 1e-13 in float64 and 2e-5 in float32. Other seeds
# may cost float32 more: 3e-3 where the rows of a batch nearly cancel in a bias's gradient, and
# 4e-2 in the rare run where rounding puts an input of a ReLU on the other side of 0.
FLOAT64 = 1e-9
FLOAT32 = 1e-3


@dataclasses.dataclass(frozen=True)
class Case:
    state_dim: int = 3
    low: tuple[float, ...] = (-1.0, 0.0, -7.5)
    high: tuple[float, ...] = (1.0, 0.2, 20.0)
    done: float = 0.25  # the share of rows that are terminal
    rows: int = ROWS
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def config(self) -> Config:
        settings = {"hidden": (12, 9), "learning_rate": 1e-3, "tau": 0.05, "seed": 3}
        return Config.from_dict({**settings, "batch_size": self.rows, **self.knobs})

    def agent(self, dtype: torch.dtype) -> T3D:
        return T3D(self.state_dim, self.low, self.high, self.config(), dtype=dtype)

    def batch(self, random: np.random.Generator) -> Batch:
        fields = (
            random.normal(size=(self.rows, self.state_dim)),
            random.normal(size=(self.rows, self.state_dim)),
            random.uniform(self.low, self.high, (self.rows, len(self.low))),
            random.normal(size=self.rows),
            random.random(self.rows) < self.done,
            random.integers(1, 4, self.rows),
        )
        # Numbers that float32 holds exactly, so that both precisions learn from the same.
        return Batch(*(torch.from_numpy(np.float32(field)) for field in fields))

    def noise(self, random: np.random.Generator) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal((self.rows, len(self.low)), np.float32))


CASES = {
    "plain": Case(),
    "one hidden layer": Case(knobs={"hidden": (16,)}),
    "three hidden layers": Case(knobs={"hidden": (10, 7, 8)}),
    "one action": Case(state_dim=1, low=(-2.0,), high=(2.0,)),
    "far from zero": Case(low=(100.0, -3.0), high=(101.0, -2.5)),
    "actor at every update": Case(knobs={"policy_freq": 1}),
    "actor at every third update": Case(knobs={"policy_freq": 3}),
    "all rows terminal": Case(done=1.0),
    "no row terminal": Case(done=0.0),
    "no smoothing": Case(knobs={"policy_noise": 0.0}),
    "the noise clip bites": Case(knobs={"policy_noise": 2.0, "noise_clip": 0.3}),
    "the action range bites": Case(knobs={"policy_noise": 5.0, "noise_clip": 10.0}),
    "targets are copies": Case(knobs={"tau": 1.0}),
    "blind to the future": Case(knobs={"discount": 0.0}),
    "no discount": Case(knobs={"discount": 1.0}),
    "fast": Case(knobs={"learning_rate": 3e-2}),
    "one row": Case(rows=1),
}


def to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.numpy().astype(np.float64)


def oracle_of(agent: T3D, case: Case) -> NumpyTD3:
    weights = {key: to_numpy(value) for key, value in agent.state_dict().items()}
    return NumpyTD3(weights, case.low, case.high, case.config())


def assert_same_measures(
    found: Mapping[str, SupportsFloat], expected: dict[str, float], tolerance: float
) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # Values of either sign may have a mean near 0; it is as exact as they are.
        close = math.isclose(float(found[name]), value, rel_tol=tolerance, abs_tol=tolerance / 100)
        assert close, name


def assert_same_agents(agent: T3D, oracle: NumpyTD3, tolerance: float) -> None:
    found, expected = agent.state_dict(), oracle.state_dict()
    streams = {"generator.sampling", "generator.smoothing"}
    assert found.keys() - streams == expected.keys()
    for name, value in expected.items():
        error = np.linalg.norm(to_numpy(found[name]) - value)
        assert error <= tolerance * np.linalg.norm(value), name


def assert_same_training(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    agent, random = case.agent(dtype), np.random.default_rng(0)
    oracle = oracle_of(agent, case)
    for _ in range(updates):
        batch, noise = case.batch(random), case.noise(random)
        measured = agent.update(Batch(*(f.to(dtype) for f in batch)), noise.to(dtype))
        expected = oracle.update(map(to_numpy, batch), to_numpy(noise))
        assert_same_measures(measured, expected, tolerance)
    assert_same_agents(agent, oracle, tolerance)


@pytest.mark.parametrize("updates", [1, 2, 50])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float64_updates_agree_with_the_oracle(case: Case, updates: int) -> None:
    assert_same_training(case, torch.float64, FLOAT64, updates)


@pytest.mark.parametrize("updates", [1, 2, 50])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float32_updates_agree_with_the_oracle(case: Case, updates: int) -> None:
    assert_same_training(case, torch.float32, FLOAT32, updates)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_sizes_and_knobs_agree_with_the_oracle(data: st.DataObject) -> None:
    numbers = st.floats(-10, 10, width=32)
    widths = st.floats(0.125, 20, width=32)
    bounds = data.draw(st.lists(st.tuples(numbers, widths), min_size=1, max_size=3))
    knobs = st.fixed_dictionaries(
        {
            "hidden": st.lists(st.integers(1, 6), min_size=1, max_size=3),
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
        state_dim=data.draw(st.integers(1, 4)),
        low=tuple(low for low, _ in bounds),
        high=tuple(low + width for low, width in bounds),
        done=data.draw(st.floats(0, 1)),
        rows=data.draw(st.integers(1, 6)),
        knobs=data.draw(knobs),
    )
    assert_same_training(case, torch.float64, FLOAT64, data.draw(st.integers(1, 6)))


def test_train_feeds_sampled_rows_and_one_draw_per_row_and_dimension() -> None:
    case = Case(rows=32)
    agent, buffer = case.agent(torch.float64), ReplayBuffer(100, case.state_dim, len(case.low))
    buffer.add(*case.batch(np.random.default_rng(0)))
    oracle = oracle_of(agent, case)
    sampling, smoothing = generator(3, "sampling"), generator(3, "smoothing")
    for _ in range(5):
        batch, noise = buffer.sample(case.rows, sampling), case.noise(smoothing)
        expected = oracle.update(map(to_numpy, batch), to_numpy(noise))
    measured = agent.train(buffer, 5)
    assert_same_agents(agent, oracle, FLOAT64)
    assert math.isclose(float(measured["critic_loss"]), expected["critic_loss"], rel_tol=FLOAT64)
