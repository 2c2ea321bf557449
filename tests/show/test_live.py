import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import t3d
from helpers.runs import TINY, trained
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.resume import resume
from t3d.show.live import LiveCurve, curve


class Notebook:
    """What IPython is to a watcher: a function that shows, and a handle that shows again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, inside: bool = True) -> None:
        self.pictures: list[str] = []
        ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: self if inside else None  # type: ignore[attr-defined]
        module.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", module)

    def display(self, shown: Any, display_id: bool) -> Any:
        self.update(shown)
        return SimpleNamespace(update=self.update)

    def update(self, shown: Any) -> None:
        self.pictures.append(shown._repr_html_())


def dots(picture: str) -> list[tuple[float, float]]:
    """The places of the dots of a picture, which is XML."""
    circles = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}circle")
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in circles]


def watched(run: Run) -> LiveCurve:
    live = LiveCurve()
    with closing(run):
        run.watchers.append(live)
        assert run.loop()
    return live


def test_the_curve_is_drawn_again_after_every_evaluation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notebook = Notebook(monkeypatch)
    config = t3d.Config(env="Pendulum-v1", **TINY)
    folder = RunFolder(tmp_path / "run")
    live = watched(Run.start(EnvMaker("Pendulum-v1", config), folder))
    assert [len(dots(each)) for each in notebook.pictures] == [0, 1, 2, 3]
    assert live.points == [(each.step, each.mean) for each in folder.records(t3d.Evaluation)]
    assert "60 steps" in notebook.pictures[-1]


def test_a_resumed_run_shows_its_curve_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notebook = Notebook(monkeypatch)
    path = trained(tmp_path / "run", steps=30)
    folder = RunFolder(path)
    config = t3d.Config.from_dict(vars(folder.config()) | {"steps": 60})
    live = watched(resume(EnvMaker("Pendulum-v1", config), folder))
    assert [step for step, _ in live.points] == [0, 30, 60]
    assert len(dots(notebook.pictures[0])) == 2


@pytest.mark.parametrize("installed", [False, True])
def test_without_a_notebook_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], installed: bool
) -> None:
    notebook = Notebook(monkeypatch, inside=False)
    if not installed:
        monkeypatch.setitem(sys.modules, "IPython", None)
    config = t3d.Config(env="Pendulum-v1", **TINY | {"steps": 5})
    live = watched(Run.start(EnvMaker("Pendulum-v1", config)))
    assert len(live.points) == 2
    assert notebook.pictures == []
    assert capfd.readouterr() == ("", "")


def test_a_point_is_where_its_numbers_say() -> None:
    picture = curve("a <b> & c", [(0, -10.0), (50, 0.0), (100, -5.0), (200, -10.0)], 100)
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = dots(picture)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.1)
    assert x3 == x2  # beyond the end
    assert y0 == y3 > y2 > y1
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert "a &lt;b&gt; &amp; c: -10.0 at step 200" in picture
    assert len(dots(curve("flat", [(0, 1.0), (1, 1.0)], 2))) == 2
