import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import t3d
from helpers.runs import TINY
from t3d.show import plots


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("plots")
    made = []
    others: dict[str, dict[str, Any]] = {"a0": {}, "a1": {"seed": 1}, "b0": {"tau": 0.5}}
    for name, knobs in others.items():
        t3d.train("Pendulum-v1", run=folder / name, quiet=True, **(TINY | knobs))
        made.append(folder / name)
    return made


def test_seeds_share_a_curve_and_other_knobs_have_their_own(runs: list[Path]) -> None:
    (env,) = plots.curves(runs)
    first, second = plots.curves(runs)[env]
    assert (first.seeds, second.seeds) == ([0, 1], [0])
    assert first.step.tolist() == [0, 30, 60]
    assert first.returns.shape == (2, 3)
    low, high = first.interval()
    assert (low <= first.mean()).all()
    assert (first.mean() <= high).all()


def test_the_same_seed_twice_counts_once(runs: list[Path]) -> None:
    (line,) = plots.curves([runs[0], runs[0], runs[1]])["Pendulum-v1"]
    assert line.seeds == [0, 1]


def test_the_interval_is_the_bootstrap_of_the_mean() -> None:
    values = np.random.default_rng(1).normal(100, 10, (30, 1))
    low, high = plots.Curve("", list(range(30)), np.array([0]), values).interval()
    expected = 1.96 * values.std() / np.sqrt(30)
    assert (high - low)[0] / 2 == pytest.approx(expected, rel=0.1)


def test_png_and_svg_are_pictures_with_the_names_on_them(runs: list[Path], tmp_path: Path) -> None:
    png, svg = plots.plot(runs, tmp_path / "curve")
    with Image.open(png) as picture:
        assert picture.width > 800
        assert picture.height > 500
    drawn = ET.parse(svg).getroot()
    assert drawn.tag.endswith("svg")
    words = {text.strip() for node in drawn.iter() for text in (node.text, node.tail) if text}
    assert {"Pendulum-v1", "environment steps"} <= words
    assert any("2 seeds" in word and "tau 0.01" in word for word in words)
    assert any("seed 0" in word and "tau 0.5" in word for word in words)
    again = plots.plot(runs, tmp_path / "again")[1]
    assert svg.read_text() == again.read_text()


def test_without_the_extra_it_says_what_to_install(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    with pytest.raises(t3d.T3DError, match=r"pip install 't3d\[plot\]'"):
        plots.plot(runs, tmp_path / "curve")


def test_runs_without_evaluations_or_common_steps_are_named(
    runs: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    t3d.train("Pendulum-v1", run=other, quiet=True, **(TINY | {"seed": 9}))
    metrics = other / "metrics.jsonl"
    metrics.write_text('{"kind": "evaluation", "step": 7, "mean": 1.0}\n')
    with pytest.raises(t3d.T3DError, match="evaluated at different steps"):
        plots.plot([runs[0], other], tmp_path / "curve")
    metrics.write_text('{"kind": "evaluation", "step": 7, "mean": null}\n')
    with pytest.raises(t3d.T3DError, match="has an evaluation without a mean"):
        plots.plot([other], tmp_path / "curve")
    metrics.write_text("")
    with pytest.raises(t3d.T3DError, match="has no evaluation yet"):
        plots.plot([other], tmp_path / "curve")
    metrics.write_text("nonsense\n")
    with pytest.raises(t3d.T3DError, match="line 1 is no record"):
        plots.plot([other], tmp_path / "curve")
