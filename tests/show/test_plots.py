import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import t3d
from helpers.runs import write_run
from t3d.base.extras import how_to_install
from t3d.show import plots


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of one setting, and another setting."""
    knobs: dict[str, dict[str, Any]] = {"a0": {}, "a1": {"seed": 1}, "b0": {"tau": 0.5}}
    records = [{"kind": "evaluation", "step": step, "mean": step / 2} for step in (0, 30, 60)]
    return [
        write_run(tmp_path / name, records, {"preset": "default"}, **({"tau": 0.01} | each))
        for name, each in knobs.items()
    ]


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
    with pytest.raises(t3d.T3DError, match=re.escape(how_to_install("plot"))):
        plots.plot(runs, tmp_path / "curve")
