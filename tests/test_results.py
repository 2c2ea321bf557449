"""The published figures are those of the stored curves; their commands reproduce the runs."""

import importlib
import json
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.runs import TINY, read_json
from t3d.cli.knobs import read_knobs
from t3d.config import Config
from t3d.presets import resolve, train_command
from t3d.run.agents import keep_score
from t3d.run.folder import RunFolder
from t3d.study.evaluations import Curve

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
STORED = sorted(
    path
    for group in ("campaign", "ablation", "settings")
    for path in (RESULTS / group).glob("*.json")
)


def typed(line: str) -> Config:
    """The config of a `t3d train` command."""
    words = shlex.split(line)
    assert words[:2] == ["t3d", "train"]
    return read_knobs("train", "", [], words[2:]).config


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return runpy.run_path(str(ROOT / "benchmarks/draw_results.py"))


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("measures")


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_command_of_a_stored_run_gives_its_config(path: Path) -> None:
    run = json.loads(path.read_text())
    assert typed(run["command"]) == Config.from_dict(run["config"])


@pytest.mark.parametrize(
    "config",
    [
        Config(env="Pendulum-v1"),
        resolve("Pendulum-v1")[1],
        Config(env="Pendulum-v1", seed=3, twins=False, hidden=(400, 300)),
        Config(env="my env:Odd-v0", pixels=True, exploration_noise=(0.1, 0.2)),
        Config(env="Hopper-v5", tau=1e-5, collectors=3, ray="ray://a host:1?x=1&y=$(date)"),
    ],
)
def test_a_config_is_what_its_command_gives(config: Config) -> None:
    assert typed(train_command(config)) == config


def test_the_page_and_the_packaged_curves_match_the_stored_runs(script: dict[str, Any]) -> None:
    stale = "run python benchmarks/draw_results.py"
    assert script["page"]() == (ROOT / "docs/results.md").read_text(), stale
    assert script["readme"]() == (ROOT / "README.md").read_text(), stale
    assert script["known_runs"]() == (ROOT / "src/t3d/study/curves.json").read_text(), stale


def test_a_result_without_a_place_in_the_template_is_named(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    template = script["TEMPLATE"].read_text()
    cut = tmp_path / "results.template.md"
    cut.write_text(template.replace("{{ settings Hopper-v5 }}", ""))
    monkeypatch.setitem(script["page"].__globals__, "TEMPLATE", cut)
    with pytest.raises(SystemExit, match=r"has no \{\{ settings Hopper-v5 \}\}"):
        script["page"]()


def test_a_run_counts_by_its_last_tenth(measures: Any) -> None:
    step = np.array([0, 50, 90, 95, 100, 105])
    returns = np.array([[9.0, 9.0, 9.0, 1.0, 3.0, 9.0], [0.0, 0.0, 0.0, 5.0, 7.0, 0.0]])
    line = Curve("", [0, 1], step, returns)
    assert measures.score_at(line, 100).tolist() == [2.0, 6.0]
    assert measures.overall(line).tolist() == [6.2, 2.4]


def test_only_groups_that_do_not_overlap_are_significantly_different(measures: Any) -> None:
    low, high = np.arange(5.0), np.arange(10.0, 15.0)
    # In two of the 252 splits of ten runs the means differ as much.
    assert measures.p_value(low, high) == pytest.approx(2 / 252)
    assert measures.verdict(low, high, ("one", "other")) == "p = 0.008: other is higher"
    assert measures.verdict(high, low, ("one", "other")) == "p = 0.008: one is higher"
    assert "not significantly different" in measures.verdict(low, low + 0.5, ("one", "other"))
    assert "too few for a test" in measures.verdict(low[:2], high[:2], ("one", "other"))


def test_a_run_repeated_elsewhere_is_compared_with_the_stored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    results: Any = importlib.import_module("results")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "AGAIN", tmp_path / "again.json")
    first, second = tmp_path / "first", tmp_path / "second"
    for run in (first, second):
        t3d.train("Pendulum-v1", run=run, engine="fused", quiet=True, **TINY)
    keep_score(RunFolder.open(first), t3d.evaluate(first, episodes=1))
    (stored,) = results.add("campaign", first)
    # On the same processor the digest decides, so there is no row for it.
    with pytest.raises(t3d.T3DError, match="expected another processor"):
        results.again(second)
    monkeypatch.setattr(results, "processor", lambda: "another")
    with pytest.raises(t3d.T3DError, match="is the stored run itself"):
        results.again(first)
    results.again(second)
    # Change one evaluation of the stored run, and add one that only it has.
    there = read_json(stored)
    there["evaluations"]["mean"][1] += 0.5
    for values in there["evaluations"].values():
        values.append(90)
    stored.write_text(json.dumps(there))
    monkeypatch.setattr(results, "processor", lambda: "a third")
    results.again(second)
    same, other = read_json(tmp_path / "again.json")[::-1]
    assert (same["again"], same["same"], same["evaluations"]) == ("another", 3, 3)
    assert (same["apart"], same["digest"]) == (0, True)
    assert (other["again"], other["same"], other["evaluations"]) == ("a third", 2, 3)
    assert (other["apart"], other["step"]) == (0.5, 60)
    # A stored run is not replaced by a shorter one.
    there["config"]["steps"] = 90
    stored.write_text(json.dumps(there))
    with pytest.raises(t3d.T3DError, match="has more steps than"):
        results.add("campaign", first)
