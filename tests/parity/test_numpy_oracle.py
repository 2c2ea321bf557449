"""T3D against one whole update written by hand in NumPy: same weights, batches and noise."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.numpy_td3 import NumpyTD3
from helpers.oracles import Oracle
from helpers.training import CASES, Case, any_case, assert_same_state, assert_same_training
from t3d import T3D, Batch, ReplayBuffer
from t3d.base.randomness import generator

# How far apart two arrays may be, as a share of the oracle's norm. Sums in another order cost
# the last digits: the runs below stay within 1e-13 in float64 and 1e-5 in float32. Other seeds
# may cost float32 more: 3e-3 where the rows of a batch nearly cancel in a bias's gradient, and
# 4e-2 in the rare run where rounding puts an input of a ReLU on the other side of 0.
FLOAT64 = 1e-9
FLOAT32 = 1e-3


def train_both(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    agent = case.agent(T3D, dtype)
    assert_same_training(case, (agent, Oracle(agent, case, NumpyTD3)), dtype, tolerance, updates)


@pytest.mark.parametrize("updates", [1, 2, 50])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float64_updates_agree_with_the_oracle(case: Case, updates: int) -> None:
    train_both(case, torch.float64, FLOAT64, updates)


@pytest.mark.parametrize("updates", [1, 2, 50])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float32_updates_agree_with_the_oracle(case: Case, updates: int) -> None:
    train_both(case, torch.float32, FLOAT32, updates)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=any_case(largest=6), updates=st.integers(1, 6))
def test_any_sizes_and_knobs_agree_with_the_oracle(case: Case, updates: int) -> None:
    train_both(case, torch.float64, FLOAT64, updates)


def test_train_feeds_sampled_rows_and_one_draw_per_row_and_dimension() -> None:
    case = Case(rows=32)
    agent, buffer = case.agent(T3D, torch.float64), ReplayBuffer(100, case.state_dim, 3)
    buffer.add(*next(case.batches(torch.float32))[0])
    oracle = Oracle(agent, case, NumpyTD3)
    sampling, smoothing = generator(3, "sampling"), generator(3, "smoothing")
    for _ in range(5):
        batch = buffer.sample(case.rows, sampling)
        noise = torch.from_numpy(smoothing.standard_normal((case.rows, 3), np.float32))
        expected = oracle.update(Batch(*batch), noise)
    measures = agent.train(buffer, 5)
    oracle.streams = {name: v for name, v in agent.state_dict().items() if "generator." in name}
    assert_same_state(agent, oracle, FLOAT64)
    assert math.isclose(float(measures["critic_loss"]), expected["critic_loss"], rel_tol=FLOAT64)
