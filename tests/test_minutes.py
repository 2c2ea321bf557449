"""The page about minutes says what was measured."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_table_is_of_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = module("draw_minutes", monkeypatch)
    page = (ROOT / "docs" / "minutes.md").read_text()
    assert draw.with_table(page, draw.table(draw.groups())) == page


def test_a_score_counts_once_three_evaluations_in_a_row_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = module("time_to_score", monkeypatch).passed
    curve = [[k, 0.0, 1000 * k, value] for k, value in enumerate([9, 12, 8, 9, 11, 11, 2])]
    assert passed(curve, 10) == [5, 0.0, 5000, 11]
    assert passed(curve, 10.4) is None
    for path in (ROOT / "benchmarks" / "results" / "minutes").glob("*.json"):
        run = json.loads(path.read_text())
        assert passed(run["curve"], run["score"]) == run["passed"]
