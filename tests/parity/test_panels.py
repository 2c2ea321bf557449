"""The fused engine against its own update in plain NumPy, to the last bit."""

import platform

import numpy as np
import pytest
import torch
from llvmlite import binding

from helpers.panels import PanelsTD3, fma
from helpers.training import CASES, Case, assert_same_training
from t3d import FusedT3D

needs_fma = pytest.mark.skipif(
    platform.machine() != "aarch64" and not binding.get_host_cpu_features().get("fma"),
    reason="without fused multiply-add, products are rounded twice",
)


def assert_same_bits(case: Case, updates: int) -> None:
    agent = case.agent(FusedT3D, torch.float32)
    oracle = PanelsTD3(agent.state_dict(), case.low, case.high, case.config())
    assert_same_training(case, (agent, oracle), torch.float32, 0.0, updates)
    np.testing.assert_array_equal(agent.td_errors, oracle.td_errors)


@needs_fma
@pytest.mark.parametrize("policy_freq", [1, 2, 100], ids=lambda freq: f"actor at {freq}")
@pytest.mark.parametrize("hidden", [(7, 33), (16,), (20, 5, 18)], ids=str)
@pytest.mark.parametrize("rows", [1, 16, 37, 48])
def test_an_update_has_the_bits_of_its_panels(
    rows: int, hidden: tuple[int, ...], policy_freq: int
) -> None:
    knobs = {"hidden": hidden, "policy_freq": policy_freq}
    assert_same_bits(Case(state_dim=5, rows=rows, knobs=knobs), updates=3)


@needs_fma
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rows < 50])
def test_no_knob_changes_that(name: str) -> None:
    assert_same_bits(CASES[name], updates=4)


def test_the_fma_of_the_oracle_rounds_once() -> None:
    # Exactly between two floats, but for a part of c that float64 cannot hold beside the product.
    ulp = np.float32(2.0**-23)
    a, b = np.float32([1 + ulp, 1 + ulp]), np.float32([1 - ulp / 2, 1 + ulp])
    c = np.float32([2.0**-60, -(2.0**-80)])
    exact = [int(x * 2.0**40) for x in a], [int(y * 2.0**40) for y in b]
    for i, result in enumerate(fma(a, b, c)):
        total = exact[0][i] * exact[1][i] * 2**20 + int(float(c[i]) * 2.0**100)
        near = np.float32([result, np.nextafter(result, np.float32(9)), np.nextafter(result, 0)])
        errors = [abs(int(float(x) * 2.0**60) * 2**40 - total) for x in near]
        assert errors[0] == min(errors)
        assert errors[0] < errors[1]
        assert errors[0] < errors[2]
