"""The learning curve of a run in a notebook, drawn again after every evaluation."""

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from t3d.base.text import clean
from t3d.run.records import Evaluation, Record
from t3d.run.watchers import Watcher

if TYPE_CHECKING:
    from t3d.run.loop import Run

_WIDTH, _HEIGHT, _LEFT, _EDGE = 560, 220, 70, 24
_BLUE = "#0072B2"


class LiveCurve(Watcher):
    """Draws the evaluations below the cell of a notebook while the run trains.

    Where there is no notebook, it does nothing.
    """

    optional = True

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []  # step and mean return of each evaluation
        self._shown: Any = None

    def on_start(self, run: "Run") -> None:
        """Show the curve so far, if there is a notebook to show it in."""
        self._title = f"{run.config.env}, seed {run.config.seed}"
        self._steps = run.config.steps
        folder = run.store.folder
        earlier = list(folder.records(Evaluation)) if folder else []
        self.points = [(each.step, each.mean) for each in earlier]
        self._display = _display()
        self._shown = self._display(self, display_id=True) if self._display else None

    def on_record(self, record: Record) -> None:
        """Draw the curve again after an evaluation."""
        if isinstance(record, Evaluation):
            self.points.append((record.step, record.mean))
            if self._shown is not None:
                self._shown.update(self)

    def _repr_html_(self) -> str:
        """The curve as a picture of vectors."""
        return curve(self._title, self.points, self._steps)


def _display() -> Any:
    """The function that shows something in a notebook; None where there is none."""
    try:
        notebook = import_module("IPython")
    except ModuleNotFoundError:
        return None
    return import_module("IPython.display").display if notebook.get_ipython() else None


def curve(title: str, points: list[tuple[int, float]], steps: int) -> str:
    """Mean returns over environment steps as SVG, with the ranges of both at the edges."""
    lowest = min((mean for _, mean in points), default=0.0)
    highest = max((mean for _, mean in points), default=0.0)
    height = highest - lowest or 1.0

    def place(step: int, mean: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _EDGE) * min(1.0, step / steps)
        y = _EDGE + (_HEIGHT - 2 * _EDGE) * (1 - (mean - lowest) / height)
        return f"{x:.1f},{y:.1f}"

    places = [place(*each) for each in points]
    dots = (each.split(",") for each in places)
    marks = "".join(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{_BLUE}"/>' for x, y in dots)
    last = f": {points[-1][1]:,.1f} at step {points[-1][0]:,}" if points else ""
    texts = {
        (_LEFT, 15, "start"): f"{title}{last}",
        (_LEFT - 8, _EDGE + 5, "end"): f"{highest:,.0f}" if points else "",
        (_LEFT - 8, _HEIGHT - _EDGE + 5, "end"): f"{lowest:,.0f}" if points else "",
        (_LEFT, _HEIGHT - 5, "start"): "0",
        (_WIDTH - _EDGE, _HEIGHT - 5, "end"): f"{steps:,} steps",
    }
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(clean(text, 100))}</text>'
        for (x, y, anchor), text in texts.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="currentColor" role="img">'
        f"{labels}"
        f'<polyline points="{" ".join(places)}" fill="none" stroke="{_BLUE}" stroke-width="2"/>'
        f"{marks}</svg>"
    )
