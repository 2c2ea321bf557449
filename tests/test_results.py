"""The published figures are those of the kept curves, and their commands give the runs again."""

import json
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from t3d.cli import _parse_knobs
from t3d.config import Config
from t3d.presets import train_command

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
KEPT = sorted([*(RESULTS / "campaign").glob("*.json"), *(RESULTS / "ablation").glob("*.json")])


def typed(line: str) -> tuple[str, Config]:
    """The preset and the config of a `t3d train` command."""
    words = shlex.split(line)
    assert words[:2] == ["t3d", "train"]
    _, preset, config = _parse_knobs(words[2:], "train", "")
    return preset, config


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return runpy.run_path(str(ROOT / "benchmarks/draw_results.py"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_command_of_a_kept_run_gives_its_config(path: Path) -> None:
    run = json.loads(path.read_text())
    assert typed(run["command"]) == (run["preset"], Config.from_dict(run["config"]))


@pytest.mark.parametrize(
    ("preset", "config"),
    [
        ("Pendulum-v1", Config(env="Pendulum-v1")),
        ("default", Config(env="Pendulum-v1", seed=3, twins=False, hidden=(400, 300))),
        ("default", Config(env="my env:Odd-v0", pixels=True, exploration_noise=(0.1, 0.2))),
        ("paper-2018", Config(env="Hopper-v5", tau=1e-5, collectors=3, reward_scale=0.1)),
    ],
)
def test_a_config_is_what_its_command_gives(preset: str, config: Config) -> None:
    assert typed(train_command(config, preset)) == (preset, config)


def test_the_page_and_the_packaged_curves_are_of_the_kept_ones(script: dict[str, Any]) -> None:
    stale = "run python benchmarks/draw_results.py"
    assert script["page"]() == (ROOT / "docs/results.md").read_text(), stale
    assert script["known"]() == (ROOT / "src/t3d/show/curves.json").read_text(), stale


def test_a_run_counts_by_its_last_tenth(script: dict[str, Any]) -> None:
    step = np.array([0, 50, 90, 95, 100, 105])
    returns = np.array([[9.0, 9.0, 9.0, 1.0, 3.0, 9.0], [0.0, 0.0, 0.0, 5.0, 7.0, 0.0]])
    assert script["score_at"](step, returns, 100).tolist() == [2.0, 6.0]


def test_the_permutation_test_is_scipys(script: dict[str, Any]) -> None:
    stream = np.random.default_rng(0)
    one, two = stream.normal(size=5), stream.normal(1.0, size=3)

    def apart(a: Any, b: Any) -> Any:
        return abs(a.mean() - b.mean())

    expected = stats.permutation_test(
        (one, two), apart, vectorized=False, n_resamples=np.inf, alternative="greater"
    )
    assert script["p_value"](one, two) == pytest.approx(expected.pvalue)
