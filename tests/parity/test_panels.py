"""The fused engine against its own update in plain NumPy, to the last bit."""

import platform
from fractions import Fraction

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
    assert torch.equal(agent.td_errors, torch.from_numpy(oracle.td_errors))


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
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_knob_changes_that(case: Case) -> None:
    assert_same_bits(case, updates=4)


@pytest.mark.parametrize("c", [2.0**-80, -(2.0**-80)])
def test_the_fma_of_the_oracle_rounds_once(c: float) -> None:
    """A product just between two floats, and a number that decides, but that float64 would lose."""
    a = np.full(1, 1 + 2.0**-12, np.float32)
    result = float(fma(a, a, np.full(1, c, np.float32))[0])
    assert result == 1 + 2.0**-11 + (2.0**-23 if c > 0 else 0)


def test_the_fma_of_the_oracle_gives_the_nearest_float() -> None:
    random = np.random.default_rng(0)
    a, b, c = (random.normal(size=(3, 500)) * 2.0 ** random.integers(-20, 20, (3, 500))).astype(
        "f4"
    )
    results = fma(a, b, c)
    for *factors, result in zip(a, b, c, results):
        x, y, z = (Fraction(float(factor)) for factor in factors)
        error = abs(Fraction(float(result)) - (x * y + z))
        for other in (np.nextafter(result, np.float32(side)) for side in (-np.inf, np.inf)):
            assert error <= abs(Fraction(float(other)) - (x * y + z))
