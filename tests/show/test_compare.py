import json
import shutil
import sys
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import t3d
from helpers.runs import TINY, read_json
from t3d.config import Config
from t3d.show import compare as comparison
from t3d.show.compare import compare


def run_folder(
    path: Path,
    means: list[float],
    env: str = "Pendulum-v1",
    seed: int = 0,
    every: int = 100,
    pace: float = 1.0,
    **knobs: Any,
) -> Path:
    """A run that was evaluated every so many steps, one second for each `pace` steps."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(Config(env=env, seed=seed, **knobs).to_json())
    (path / "run.json").write_text('{"preset": "default"}')
    records = [
        {"kind": "evaluation", "step": n * every, "mean": mean, "seconds": (n * every + 1) / pace}
        for n, mean in enumerate(means)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def group(
    folder: Path, finals: list[float], env: str = "Pendulum-v1", start: float = -100.0, **more: Any
) -> str:
    """Runs, a seed each, that go from the same start to these ends."""
    for seed, final in enumerate(finals):
        half = (start + final) / 2
        run_folder(folder / f"{env}-{seed}", [start, half, final], env, seed, **more)
    return str(folder)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings, two environments and two seeds, trained for real."""
    folder = tmp_path_factory.mktemp("compare")
    for env in ("Pendulum-v1", "MountainCarContinuous-v0"):
        for seed in (0, 1):
            for tau in (0.01, 0.5):
                name, knobs = f"{env}-{seed}-{tau}", TINY | {"seed": seed, "tau": tau}
                t3d.train(env, run=folder / name, preset="default", quiet=True, **knobs)
    return folder


def printed(found: dict[str, Any], terminal: bool = False) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=140)
    comparison.show(found, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_one_environment_is_compared_by_its_returns(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [10.0, 20.0, 30.0, 40.0, 50.0])
    two = group(tmp_path / "two", [110.0, 120.0, 130.0, 140.0, 150.0])
    found = compare([one, two])
    assert found["baseline"] == "one"
    assert list(found["groups"]) == ["one", "two"]
    first, second = found["groups"].values()
    assert first["scores"] == {"Pendulum-v1": {str(n): 10.0 + 10 * n for n in range(5)}}
    assert first["IQM"]["value"] == pytest.approx(30)
    assert second["median"]["value"] == pytest.approx(130)
    assert first["IQM"]["low"] < 30 < first["IQM"]["high"]
    assert found["improvement"]["two"]["value"] == 1
    assert found["improvement"]["two"]["verdict"] == "better"
    assert found["improvement"]["two"]["p"] == pytest.approx(2 / 252, abs=0.006)
    assert compare([two, one])["improvement"]["one"]["verdict"] == "worse"
    # The curves are at the evaluations; the profile falls from all runs to none.
    assert found["steps"] == {"x": [0, 100, 200], "percent": False}
    np.testing.assert_allclose(first["by_steps"]["value"], [-100, -35, 30])
    assert (first["profile"]["value"][0], second["profile"]["value"][-1]) == (1, 0)
    assert found["notes"] == []
    assert compare([one, two]) == found  # the same files, the same numbers


def test_the_score_is_the_mean_of_the_last_tenth_of_evaluations(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one", [999.0, *range(29)])  # 30 evaluations: the last three
    two = run_folder(tmp_path / "two", [0.0] * 30)
    found = compare([str(one), str(two)])
    assert found["environments"]["Pendulum-v1"]["scored_at"] == [2700, 2800, 2900]
    assert found["groups"]["one"]["scores"] == {"Pendulum-v1": {"0": 27.0}}


def test_several_environments_come_to_one_scale(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [0.0, 0.0])  # from -100
    group(tmp_path / "one", [2.0, 4.0], "Hopper-v5", start=1.0)
    two = group(tmp_path / "two", [-50.0, 100.0])
    group(tmp_path / "two", [6.0, 6.0], "Hopper-v5", start=1.0)
    found = compare([one, two])
    # Pendulum: 0 is -100 and 1 is 25; Hopper: 0 is 1 and 1 is 6.
    scores = {label: list(told["scores"].values()) for label, told in found["groups"].items()}
    assert scores["one"] == [{"0": 0.2, "1": 0.6}, {"0": 0.8, "1": 0.8}]
    assert scores["two"] == [{"0": 1.0, "1": 1.0}, {"0": 0.4, "1": 1.6}]
    assert found["groups"]["one"]["mean"]["value"] == pytest.approx((0.4 + 0.8) / 2)
    assert found["improvement"]["two"]["value"] == pytest.approx((1 + 0.5) / 2)
    assert "0 is the mean return before training" in printed(found)


def test_where_all_fall_below_their_start_the_worst_is_minus_one(tmp_path: Path) -> None:
    one, two = group(tmp_path / "one", [-110.0]), group(tmp_path / "two", [-300.0])
    for folder in (one, two):
        group(Path(folder), [5.0], "Hopper-v5")
    found = compare([one, two])["groups"]
    assert found["one"]["scores"]["Pendulum-v1"] == {"0": -0.05}
    assert found["two"]["scores"]["Pendulum-v1"] == {"0": -1.0}


def test_wall_clock_goes_to_the_shortest_run(tmp_path: Path) -> None:
    slow = group(tmp_path / "slow", [100.0, 100.0], pace=1.0)
    fast = group(tmp_path / "fast", [100.0, 100.0], pace=2.0)
    found = compare([slow, fast])
    x = found["seconds"]["x"]
    assert (x[0], x[-1]) == (0, pytest.approx(100.5))
    assert found["groups"]["fast"]["by_seconds"]["value"][-1] == pytest.approx(100)
    # At 100.5 seconds the slow one is at step 99.5, on its way from -100 to 0.
    assert found["groups"]["slow"]["by_seconds"]["value"][-1] == pytest.approx(-0.5)


def test_few_seeds_tell_nothing_apart_and_are_warned_of(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0, 3.0])
    two = group(tmp_path / "two", [91.0, 92.0, 93.0])
    found = compare([one, two])
    assert found["improvement"]["two"]["low"] == 1  # an interval that looks sure of itself
    assert found["improvement"]["two"]["verdict"] == "not told apart by these seeds"
    said = printed(found)
    assert "two against one: not told apart by these seeds (p = 0.1" in said
    assert "note: as few as 3 seeds per environment" in said


def test_what_is_left_out_cut_short_or_mixed_is_said(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0])
    group(tmp_path / "one", [1.0], "Hopper-v5")
    run_folder(tmp_path / "two" / "short", [0.0, 1.0])
    run_folder(tmp_path / "two" / "other", [0.0, 1.0, 2.0], seed=1, tau=0.5)
    notes = compare([one, str(tmp_path / "two")])["notes"]
    assert "left out, as not all groups have it: Hopper-v5" in notes
    assert "two mixes settings on Pendulum-v1: tau" in notes
    (cut,) = [note for note in notes if "up to step 100" in note]
    assert cut.endswith(f"the shortest is {tmp_path / 'two' / 'short'}")


def test_labels_name_groups_and_add_to_them(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / f"run{n}", [0.0, float(n)], seed=n) for n in range(3)]
    found = compare([f"old={runs[0]}", f"old={runs[1]}", f"new={runs[2]}"])
    assert {label: told["scores"] for label, told in found["groups"].items()} == {
        "old": {"Pendulum-v1": {"0": 0.0, "1": 1.0}},
        "new": {"Pendulum-v1": {"2": 2.0}},
    }
    # A folder may have such a name; folders of one name go by what is above them.
    one, two = group(tmp_path / "a" / "tau=1", [1.0]), group(tmp_path / "b" / "tau=1", [2.0])
    assert list(compare([one, two])["groups"]) == ["a/tau=1", "b/tau=1"]


def test_one_folder_alone_is_compared_by_its_settings(real: Path) -> None:
    found = compare([str(real)])
    assert list(found["groups"]) == ["tau 0.01", "tau 0.5"]
    assert found["baseline"] == "tau 0.01"
    for told in found["groups"].values():
        assert {env: list(seeds) for env, seeds in told["scores"].items()} == {
            "MountainCarContinuous-v0": ["0", "1"],
            "Pendulum-v1": ["0", "1"],
        }
        assert told["IQM"]["low"] <= told["IQM"]["value"] <= told["IQM"]["high"]
    assert found["steps"] == {"x": [0, 30, 60], "percent": False}
    # As an environment's preset sets other knobs, only what differs on one counts.
    sweep = real.with_name("sweep")
    shutil.copytree(real, sweep)
    for path in sweep.glob("Pendulum*/config.json"):
        path.write_text(json.dumps(read_json(path) | {"discount": 0.9}))
    assert list(compare([str(sweep)])["groups"]) == ["tau 0.01", "tau 0.5"]


def test_the_table_is_plain_columns_or_a_rich_one(real: Path) -> None:
    found = compare([str(real)])
    plain = printed(found).splitlines()
    assert plain[0].startswith("MountainCarContinuous-v0, Pendulum-v1; score: mean return of")
    (head,) = [n for n, line in enumerate(plain) if line.startswith("group ")]
    columns = [plain[head].index(word) for word in ("runs", "IQM", "median", "mean", "P(better")]
    for line in plain[head + 1 : head + 3]:
        assert line.startswith("tau 0.")
        assert all(line[at - 2 : at] == "  " and line[at] != " " for at in columns)
    rich = printed(found, terminal=True)
    assert "───" in rich
    assert "IQM [95 %]" in rich
    iqm = found["groups"]["tau 0.5"]["IQM"]
    value, interval = f"{iqm['value']:,.3f}", f"[{iqm['low']:,.3f}, {iqm['high']:,.3f}]"
    assert f"{value} {interval}" in "\n".join(plain)
    assert f" {value}  " in rich
    assert f" {interval} " in rich


def test_pictures_and_numbers_are_kept(real: Path, tmp_path: Path) -> None:
    found = compare([str(real)])
    assert read_json(comparison.write(found, tmp_path / "new" / "it.png")) == found
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it.json"]
    png, svg = comparison.draw(found, tmp_path / "new" / "it.png")
    with Image.open(png) as picture:
        assert picture.width > 1500
        assert picture.height > 1000
    drawn = ET.parse(svg).getroot()
    words = {text.strip() for node in drawn.iter() for text in (node.text, node.tail) if text}
    assert {"tau 0.01 (4 runs)", "tau 0.5 (4 runs)", "environment steps", "IQM"} <= words
    assert "not told apart by these seeds" in words
    again = comparison.draw(found, tmp_path / "again")[1]
    assert svg.read_text() == again.read_text()


def test_without_the_extra_it_says_what_to_install(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compare([str(real)])
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    with pytest.raises(t3d.T3DError, match=r"pip install 't3d\[plot\]'"):
        comparison.draw(found, tmp_path / "it")


def test_bad_input_is_named(tmp_path: Path) -> None:
    one, two = group(tmp_path / "one", [1.0, 2.0]), group(tmp_path / "two", [3.0])
    hopper = group(tmp_path / "hopper", [3.0], "Hopper-v5")
    odd = str(run_folder(tmp_path / "odd" / "run", [0.0, 1.0], every=70).parent)
    lone = str(run_folder(tmp_path / "lone", [0.0, 1.0]))
    late = str(run_folder(tmp_path / "late", [0.0]))
    mixed = group(tmp_path / "mixed", [1.0])
    run_folder(tmp_path / "mixed" / "other", [0.0, 1.0, 2.0], tau=0.5)
    (tmp_path / "empty").mkdir()
    timeless = run_folder(tmp_path / "timeless", [0.0, 1.0])
    records = '{"kind": "evaluation", "step": 0, "mean": 1}\n'
    (timeless / "metrics.jsonl").write_text(records + records.replace("0", "100"))
    nothing, broken = (run_folder(tmp_path / name, []) for name in ("nothing", "broken"))
    (broken / "metrics.jsonl").write_text("nonsense\n")
    bad = {
        ("nowhere", two): "no folder at nowhere",
        ("a=nowhere", two): "no folder at nowhere",
        (one, str(tmp_path / "empty")): "empty has no runs in it",
        (one, str(nothing)): "has no evaluation yet",
        (one, str(broken)): "line 1 is no record",
        (one, str(timeless)): "does not say when it was evaluated",
        (one, two, one): "is given twice",
        (one, f"x={one}"): "is given twice",
        (one,): "have one setting",
        (lone,): "have one setting",
        (one, mixed): "mixed has Pendulum-v1 with seed 0 twice",
        (one, hopper): "no environment is in all groups: one has Pendulum-v1; hopper has Hopper",
        (one, odd): "the runs on Pendulum-v1 share no evaluations at step 0 and later",
        (one, late): "the runs on Pendulum-v1 share no evaluations at step 0 and later",
    }
    for arguments, message in bad.items():
        with pytest.raises(t3d.T3DError) as error:
            compare(arguments)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
