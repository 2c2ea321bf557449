"""TD7 against one whole update written by hand in NumPy: same weights, batches and noise."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.numpy_td7 import NumpyTD7
from helpers.oracles import Oracle
from helpers.td7 import CASES, any_td7_case
from helpers.training import Case, assert_same_training
from t3d import TD7

# How far apart two arrays may be, as a share of the oracle's norm; see test_numpy_oracle.py.
FLOAT64 = 1e-9
FLOAT32 = 2e-3


def train_both(case: Case, dtype: torch.dtype, tolerance: float, updates: int) -> None:
    agent = case.agent(TD7, dtype)
    oracle = Oracle(agent, case, NumpyTD7)
    assert_same_training(case, (agent, oracle), dtype, tolerance, updates)
    errors = torch.from_numpy(oracle.learner.td_errors).to(dtype)
    torch.testing.assert_close(agent.td_errors, errors, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("updates", [1, 2, 50])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float64_updates_agree_with_the_oracle(case: Case, updates: int) -> None:
    train_both(case, torch.float64, FLOAT64, updates)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_float32_updates_agree_with_the_oracle(case: Case) -> None:
    train_both(case, torch.float32, FLOAT32, 8)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=any_td7_case(largest=7), updates=st.integers(1, 6))
def test_any_sizes_and_knobs_agree_with_the_oracle(case: Case, updates: int) -> None:
    train_both(case, torch.float64, FLOAT64, updates)


def test_it_acts_as_the_oracle_does() -> None:
    one = CASES["plain"]
    agent = one.agent(TD7, torch.float64)
    oracle = Oracle(agent, one, NumpyTD7)
    for batch, noise in itertools.islice(one.batches(torch.float64), 9):
        agent.update(batch, noise)
        oracle.update(batch, noise)
    states = np.random.default_rng(5).normal(size=(7, one.state_dim)).astype(np.float32)
    expected = oracle.learner.act(states.astype(np.float64))
    np.testing.assert_allclose(agent.select_action(states), expected, rtol=1e-6, atol=1e-6)
    action = agent.select_action(states[0])
    np.testing.assert_allclose(action, expected[0], rtol=1e-6, atol=1e-6)
