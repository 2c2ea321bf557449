from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.runs import write_run
from t3d.study.evaluations import Curve, curves


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of one setting, and another setting."""
    knobs: dict[str, dict[str, Any]] = {
        "a0": {"seed": 0},
        "a1": {"seed": 1},
        "b0": {"seed": 0, "tau": 0.5},
    }
    runs = []
    for number, (name, each) in enumerate(knobs.items()):
        means = {0: -9.0, 30: -5.0 + number, 60: -3.0 * number}
        records = [{"kind": "evaluation", "step": s, "mean": mean} for s, mean in means.items()]
        runs.append(write_run(tmp_path / name, records, {"preset": "default"}, **each))
    return runs


def test_seeds_share_a_curve_and_other_knobs_have_their_own(runs: list[Path]) -> None:
    (env,) = curves(runs)
    first, second = curves(runs)[env]
    assert (first.seeds, second.seeds) == ([0, 1], [0])
    assert first.step.tolist() == [0, 30, 60]
    assert first.returns.shape == (2, 3)
    low, high = first.interval()
    assert (low <= first.mean()).all()
    assert (first.mean() <= high).all()


def test_the_same_seed_twice_counts_once(runs: list[Path]) -> None:
    (line,) = curves([runs[0], runs[0], runs[1]])["Pendulum-v1"]
    assert line.seeds == [0, 1]


def test_the_interval_is_the_bootstrap_of_the_mean() -> None:
    values = np.random.default_rng(1).normal(100, 10, (30, 1))
    low, high = Curve("", list(range(30)), np.array([0]), values).interval()
    expected = 1.96 * values.std() / np.sqrt(30)
    assert (high - low)[0] / 2 == pytest.approx(expected, rel=0.1)


def test_runs_without_evaluations_or_common_steps_are_named(
    runs: list[Path], tmp_path: Path
) -> None:
    other = write_run(tmp_path / "other", [], {"preset": "default"}, seed=9)
    metrics = other / "metrics.jsonl"
    metrics.write_text('{"kind": "evaluation", "step": 7, "mean": 1.0}\n')
    with pytest.raises(t3d.T3DError, match="evaluated at different steps"):
        curves([runs[0], other])
    metrics.write_text('{"kind": "evaluation", "step": 7, "mean": null}\n')
    with pytest.raises(
        t3d.T3DError, match=r"line 1 is no record: its mean is None; expected a finite number"
    ):
        curves([other])
    metrics.write_text("")
    with pytest.raises(t3d.T3DError, match="has no evaluation yet"):
        curves([other])
    metrics.write_text("nonsense\n")
    with pytest.raises(t3d.T3DError, match="line 1 is no record"):
        curves([other])
