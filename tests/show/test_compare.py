import re
import sys
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

import t3d
from helpers.groups import group
from helpers.runs import read_json, trained
from t3d.base.extras import how_to_install
from t3d.show import compare as comparison
from t3d.study.compare import compare


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings, two environments and two seeds, trained for real."""
    folder = tmp_path_factory.mktemp("compare")
    for env in ("Pendulum-v1", "MountainCarContinuous-v0"):
        for seed in (0, 1):
            for tau in (0.01, 0.5):
                trained(folder / f"{env}-{seed}-{tau}", env, seed=seed, tau=tau)
    return folder


def printed(result: dict[str, Any], terminal: bool = False) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=140)
    comparison.show(result, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_table_is_plain_columns_or_a_rich_one(real: Path) -> None:
    result = compare([str(real)])
    assert result["steps"] == {"x": [0, 30, 60], "percent": False}
    plain = printed(result).splitlines()
    assert plain[0].startswith("MountainCarContinuous-v0, Pendulum-v1; score: mean return of")
    (head,) = [n for n, line in enumerate(plain) if line.startswith("group ")]
    columns = [plain[head].index(word) for word in ("runs", "IQM", "median", "mean", "P(better")]
    for line in plain[head + 1 : head + 3]:
        assert line.startswith("tau 0.")
        assert all(line[at - 2 : at] == "  " and line[at] != " " for at in columns)
    rich = printed(result, terminal=True)
    assert "───" in rich
    assert "IQM [95 %]" in rich
    iqm = result["groups"]["tau 0.5"]["IQM"]
    value, interval = f"{iqm['value']:,.3f}", f"[{iqm['low']:,.3f}, {iqm['high']:,.3f}]"
    assert f"{value} {interval}" in "\n".join(plain)
    assert f" {value}  " in rich
    assert f" {interval} " in rich


def test_pictures_and_numbers_are_written(real: Path, tmp_path: Path) -> None:
    result = compare([str(real)])
    assert read_json(comparison.write(result, tmp_path / "new" / "it.png")) == result
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it.json"]
    png, svg = comparison.draw(result, tmp_path / "new" / "it.png")
    with Image.open(png) as picture:
        assert picture.width > 1500
        assert picture.height > 1000
    drawn = ET.parse(svg).getroot()
    words = {text.strip() for node in drawn.iter() for text in (node.text, node.tail) if text}
    assert {"tau 0.01 (4 runs)", "tau 0.5 (4 runs)", "environment steps", "IQM"} <= words
    assert "not significantly different" in words
    again = comparison.draw(result, tmp_path / "again")[1]
    assert svg.read_text() == again.read_text()


def test_without_the_extra_it_says_what_to_install(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = compare([str(real)])
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    with pytest.raises(t3d.T3DError, match=re.escape(how_to_install("plot"))):
        comparison.draw(result, tmp_path / "it")


def test_verdicts_and_notes_are_printed(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0, 3.0])
    two = group(tmp_path / "two", [91.0, 92.0, 93.0])
    text = printed(compare([one, two]))
    assert "two against one: not significantly different (p = 0.1" in text
    assert "note: as few as 3 seeds per environment" in text


def test_one_run_each_gives_no_intervals(tmp_path: Path) -> None:
    one, two = group(tmp_path / "one", [1.0]), group(tmp_path / "two", [9.0])
    text = printed(compare([one, two]))
    (row,) = (line for line in text.splitlines() if line.startswith("two  "))
    assert row.split() == ["two", "1", "9.000", "9.000", "9.000", "1.00"]
    assert "note: one seed per environment cannot tell a better setting from luck; train" in text


def test_groups_that_do_not_overlap_have_no_interval_that_looks_certain(tmp_path: Path) -> None:
    one = group(tmp_path / "one", [1.0, 2.0, 3.0])
    two = group(tmp_path / "two", [91.0, 92.0, 93.0])
    (line,) = [x for x in printed(compare([one, two])).splitlines() if x.startswith("two  ")]
    assert line.endswith("]  1.00")
    three = group(tmp_path / "three", [2.5, 92.0, 93.0])
    (line,) = [x for x in printed(compare([one, three])).splitlines() if x.startswith("three  ")]
    assert re.search(r"  0\.89 \[0\.\d\d, 1\.00\]$", line)
