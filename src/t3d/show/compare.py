"""`t3d compare` as a table, a picture and a file."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from t3d.base import files
from t3d.base.text import clean
from t3d.run.records import Json
from t3d.show import plots
from t3d.show.terminal import say
from t3d.study.compare import ESTIMATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = "osD^vPX*"


def show(comparison: Json, console: Console) -> None:
    """Print the table: a rich one on a terminal, plain columns elsewhere."""
    say(console, f"{', '.join(comparison['environments'])}; score: {comparison['score']}")
    say(console, f"scale: {comparison['scale']}")
    head, *rows = _rows(comparison)
    if console.is_terminal:
        table = Table(box=SIMPLE, show_lines=True, padding=(0, 1, 0, 0))
        for name in head:
            table.add_column(Text(name))  # brackets are no markup in a Text
        for row in rows:
            table.add_row(*(Text(clean(field).replace(" [", "\n[")) for field in row))
        console.print(table)
    else:
        widths = [max(map(len, column)) for column in zip(head, *rows)]
        for row in [head, *rows]:
            say(console, "  ".join(f"{c:<{w}}" for c, w in zip(row, widths)).rstrip())
    for label, beats in comparison["improvement"].items():
        against = f"{label} against {comparison['baseline']}"
        say(console, f"{against}: {beats['verdict']} (p = {beats['p']:.2g})")
    for note in comparison["notes"]:
        say(console, f"note: {note}")


def _rows(comparison: Json) -> list[list[str]]:
    """The fields of the table, the head first."""
    largest = max(abs(group["mean"]["value"]) for group in comparison["groups"].values())
    digits = 1 if largest >= 100 else 3
    first = comparison["groups"][comparison["baseline"]]["scores"]
    baseline = max(len(seeds) for seeds in first.values())
    rows = [["group", "runs", *(f"{n} [95 %]" for n in ESTIMATES), "P(better)"]]
    for label, group in comparison["groups"].items():
        beats = comparison["improvement"].get(label)
        runs = max(len(seeds) for seeds in group["scores"].values())
        fields = [_interval(group[name], digits, runs) for name in ESTIMATES]
        better = "baseline"
        if beats:
            # Resamples of groups that do not overlap are all alike: that is no certainty.
            of_both = max(runs, baseline) if beats["low"] < beats["high"] else 1
            better = _interval(beats, 2, of_both)
        rows.append([label, f"{_count(group)}", *fields, better])
    return rows


def _interval(estimate: Json, digits: int, runs: int) -> str:
    """A value and its interval. One run gives none."""
    value, low, high = (f"{estimate[k]:,.{digits}f}" for k in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if runs > 1 else value


def _count(group: Json) -> int:
    """How many runs a group has."""
    return sum(len(seeds) for seeds in group["scores"].values())


def write(comparison: Json, out: Path) -> Path:
    """Write all numbers as JSON; returns the file."""
    path = Path(f"{plots.stem(out)}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_write(path, error) from error
    files.save(path, (json.dumps(comparison, indent=1) + "\n").encode())
    return path


def draw(comparison: Json, out: Path) -> list[Path]:
    """Draw the comparison as PNG and SVG; returns the files."""
    figure = plots.new_figure(13, 7.4)
    panels = figure.subplot_mosaic(
        [["estimates", "profile", "improvement"], ["steps", "seconds", "key"]]
    )
    for number, label in enumerate(comparison["groups"]):
        _draw_group(panels, comparison, number, label)
    several = len(comparison["environments"]) > 1
    score = "score (0 untrained, 1 best group)" if several else "evaluation return"
    _title_estimates(panels, comparison, score)
    _title_curves(panels, comparison, score)
    envs = plots.named(", ".join(comparison["environments"]))
    note = f"{envs}. Score: {comparison['score']}. Bands and bars: 95 % bootstrap intervals."
    key = panels["key"].legend(loc="upper left", frameon=False, borderaxespad=0, alignment="left")
    key.set_title(textwrap.fill(note, 54) + "\n")
    key.get_title().set_fontsize(9)
    for axes in panels.values():
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels["key"].axis("off")
    return plots.save(figure, out)


def _draw_group(panels: dict[str, Any], comparison: Json, number: int, label: str) -> None:
    """One group, in every panel."""
    group, count = comparison["groups"][label], len(comparison["groups"])
    style: Json = {"color": plots.COLOURS[number % len(plots.COLOURS)]}
    style["marker"] = _MARKS[number % len(_MARKS)]
    for row, name in enumerate(ESTIMATES):
        _bar(panels["estimates"], row + 0.7 * ((number + 0.5) / count - 0.5), group[name], style)
    _line(panels["profile"], comparison["taus"], group["profile"], style, "mid")
    _line(panels["steps"], comparison["steps"]["x"], group["by_steps"], style)
    _line(panels["seconds"], comparison["seconds"]["x"], group["by_seconds"], style)
    if label != comparison["baseline"]:
        beats = comparison["improvement"][label]
        _bar(panels["improvement"], number, beats, style)
        text = panels["improvement"].text(0.5, number - 0.15, beats["verdict"])
        text.set(ha="center", va="bottom", size=9, zorder=1)
        text.set_bbox({"fc": "white", "ec": "none", "pad": 1})
    name = textwrap.fill(f"{plots.named(label)} ({_count(group)} runs)", 44)
    panels["key"].plot([], [], label=name, lw=2, **style)


def _title_estimates(panels: dict[str, Any], comparison: Json, score: str) -> None:
    """Name what the upper panels show."""
    panels["estimates"].set(title="final score", xlabel=score)
    panels["estimates"].set_yticks(range(len(ESTIMATES)), list(ESTIMATES))
    panels["estimates"].invert_yaxis()
    panels["profile"].set(title="performance profile", xlabel=f"{score}, τ")
    panels["profile"].set_ylabel("share of runs above τ")
    panels["improvement"].set(title="probability of improvement", xlim=(-0.03, 1.03), yticks=[])
    panels["improvement"].set(ylim=(len(comparison["groups"]) - 0.4, 0.4))
    beaten = f"P(a run beats one of {plots.named(comparison['baseline'])})"
    panels["improvement"].set_xlabel(textwrap.fill(beaten, 44))
    panels["improvement"].axvline(0.5, color="grey", lw=1, ls="--", zorder=0)


def _title_curves(panels: dict[str, Any], comparison: Json, score: str) -> None:
    """Name what the lower panels show."""
    units = {"steps": "environment steps", "seconds": "wall-clock seconds"}
    shares = {"steps": "% of the steps", "seconds": "% of the shortest run's time"}
    for name, title in (("steps", "sample efficiency"), ("seconds", "wall clock")):
        percent = comparison[name]["percent"]
        unit = f"{shares[name]}, on each environment" if percent else units[name]
        panels[name].set(title=title, xlabel=unit, ylabel=f"IQM of {score}")
        panels[name].yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _bar(axes: "Axes", y: float, estimate: Json, style: Json) -> None:
    """A value and its interval, horizontally."""
    axes.hlines(y, estimate["low"], estimate["high"], color=style["color"], lw=5, alpha=0.35)
    axes.plot([estimate["value"]], [y], ls="", ms=7, **style)


def _line(
    axes: "Axes",
    x: Sequence[float],
    curve: Json,
    style: Json,
    step: Literal["mid"] | None = None,
) -> None:
    """A curve and its band; in steps, if it moves in steps."""
    drawstyle = "steps-mid" if step else "default"
    every = max(1, len(x) // 5)
    axes.plot(x, curve["value"], lw=2, ms=5, markevery=every, drawstyle=drawstyle, **style)
    band = {"color": style["color"], "alpha": 0.18, "lw": 0}
    axes.fill_between(x, curve["low"], curve["high"], step=step, **band)
