from pathlib import Path

import numpy as np
import pytest

from helpers.groups import group, run_folder
from t3d.study.compare import compare


def test_one_environment_is_compared_by_its_returns(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [10.0, 20.0, 30.0, 40.0, 50.0])
    two = group(tmp_path / "two", [110.0, 120.0, 130.0, 140.0, 150.0])
    result = compare([one, two])
    assert result["baseline"] == "one"
    assert list(result["groups"]) == ["one", "two"]
    first, second = result["groups"].values()
    assert first["scores"] == {"Pendulum-v1": {str(n): 10.0 + 10 * n for n in range(5)}}
    assert first["IQM"]["value"] == pytest.approx(30)
    assert second["median"]["value"] == pytest.approx(130)
    assert first["IQM"]["low"] < 30 < first["IQM"]["high"]
    assert result["improvement"]["two"]["value"] == 1
    assert result["improvement"]["two"]["verdict"] == "better"
    assert result["improvement"]["two"]["p"] == pytest.approx(2 / 252, abs=0.006)
    assert compare([two, one])["improvement"]["one"]["verdict"] == "worse"
    # The curves are at the evaluations; the profile falls from all runs to none.
    assert result["steps"] == {"x": [0, 100, 200], "percent": False}
    np.testing.assert_allclose(first["by_steps"]["value"], [-100, -35, 30])
    assert (first["profile"]["value"][0], second["profile"]["value"][-1]) == (1, 0)
    assert result["notes"] == []
    assert compare([one, two]) == result  # the same files, the same numbers


def test_the_score_is_the_mean_of_the_last_tenth_of_evaluations(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one", [999.0, *range(29)])  # 30 evaluations: the last three
    two = run_folder(tmp_path / "two", [0.0] * 30)
    result = compare([str(one), str(two)])
    assert result["environments"]["Pendulum-v1"]["scored_at"] == [2700, 2800, 2900]
    assert result["groups"]["one"]["scores"] == {"Pendulum-v1": {"0": 27.0}}


def test_several_environments_come_to_one_scale(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [0.0, 0.0])  # from -100
    group(tmp_path / "one", [2.0, 4.0], "Hopper-v5", start=1.0)
    two = group(tmp_path / "two", [-50.0, 100.0])
    group(tmp_path / "two", [6.0, 6.0], "Hopper-v5", start=1.0)
    result = compare([one, two])
    # Pendulum: 0 is -100 and 1 is 25; Hopper: 0 is 1 and 1 is 6.
    scores = {
        label: list(numbers["scores"].values()) for label, numbers in result["groups"].items()
    }
    assert scores["one"] == [{"0": 0.2, "1": 0.6}, {"0": 0.8, "1": 0.8}]
    assert scores["two"] == [{"0": 1.0, "1": 1.0}, {"0": 0.4, "1": 1.6}]
    assert result["groups"]["one"]["mean"]["value"] == pytest.approx((0.4 + 0.8) / 2)
    assert result["improvement"]["two"]["value"] == pytest.approx((1 + 0.5) / 2)
    assert result["scale"].startswith("0 is the mean return before training")


def test_where_all_fall_below_their_start_the_worst_is_minus_one(tmp_path: Path) -> None:
    one, two = group(tmp_path / "one", [-110.0]), group(tmp_path / "two", [-300.0])
    for folder in (one, two):
        group(Path(folder), [5.0], "Hopper-v5")
    result = compare([one, two])["groups"]
    assert result["one"]["scores"]["Pendulum-v1"] == {"0": -0.05}
    assert result["two"]["scores"]["Pendulum-v1"] == {"0": -1.0}


def test_wall_clock_goes_to_the_shortest_run(tmp_path: Path) -> None:
    slow = group(tmp_path / "slow", [100.0, 100.0], pace=1.0)
    fast = group(tmp_path / "fast", [100.0, 100.0], pace=2.0)
    result = compare([slow, fast])
    x = result["seconds"]["x"]
    assert (x[0], x[-1]) == (0, pytest.approx(100.5))
    assert result["groups"]["fast"]["by_seconds"]["value"][-1] == pytest.approx(100)
    # At 100.5 seconds the slow one is at step 99.5, on its way from -100 to 0.
    assert result["groups"]["slow"]["by_seconds"]["value"][-1] == pytest.approx(-0.5)


def test_few_seeds_are_never_significantly_different_and_are_noted(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0, 3.0])
    two = group(tmp_path / "two", [91.0, 92.0, 93.0])
    result = compare([one, two])
    assert result["improvement"]["two"]["low"] == 1  # an interval that looks sure of itself
    assert result["improvement"]["two"]["verdict"] == "not significantly different"
    assert result["improvement"]["two"]["p"] == pytest.approx(0.1, abs=0.03)
    assert result["notes"][0].startswith("as few as 3 seeds per environment")
