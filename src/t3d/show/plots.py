"""Pictures of learning curves: a line per setting, with an interval over seeds."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.base.extras import how_to_install
from t3d.base.output import no_warnings
from t3d.base.text import clean
from t3d.study.evaluations import Curve, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that people distinguish with any kind of sight (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def plot(runs: Sequence[str | Path], out: Path) -> list[Path]:
    """Draw the curves of runs, a panel per environment, as PNG and SVG; returns the files."""
    return draw(curves(runs), out)


def draw(panels: dict[str, list[Curve]], out: Path) -> list[Path]:
    """Draw curves, a panel per title, as PNG and SVG; returns the files."""
    figure = new_figure(6.4 * len(panels), 4.2)
    for number, (title, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        panel(axes, lines)
        several = any(len(line.returns) > 2 for line in lines)
        note = "mean over seeds, 95 % bootstrap interval" if several else "mean"
        axes.set(title=named(title), ylabel=f"evaluation return\n({note})")
    return save(figure, out)


def panel(axes: "Axes", lines: Sequence[Curve]) -> None:
    """Draw curves over steps: the mean over seeds, its interval, and each seed."""
    for line in lines:
        count = f"{len(line.seeds)} seeds" if len(line.seeds) > 1 else f"seed {line.seeds[0]}"
        (mean,) = axes.plot(line.step, line.mean(), label=f"{named(line.label)}, {count}", lw=2)
        if len(line.returns) > 2:  # the interval of two would be their range
            low, high = line.interval()
            axes.fill_between(line.step, low, high, color=mean.get_color(), alpha=0.2, lw=0)
        if len(line.returns) > 1:
            for row in line.returns:
                axes.plot(line.step, row, color=mean.get_color(), lw=0.7, alpha=0.4)
    axes.set(xlabel="environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture; width and height in inches."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise BadInput(f"plots need an extra: {how_to_install('plot')}") from error
    mpl.rcParams["text.parse_math"] = False  # a $ in a name is no formula
    mpl.rcParams["svg.hashsalt"] = "t3d"  # the same picture is the same file
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text, to search and to read aloud
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", out: Path) -> list[Path]:
    """Write a picture as PNG and SVG; returns the files."""
    png, svg = Path(f"{stem(out)}.png"), Path(f"{stem(out)}.svg")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_write(out, error) from error
    options: dict[Path, dict[str, Any]] = {png: {"dpi": 150}, svg: {"metadata": {"Date": None}}}
    for path, more in options.items():
        content = io.BytesIO()
        with no_warnings():  # of a name with signs that the font lacks, or too long
            figure.savefig(content, format=path.suffix[1:], **more)
        files.save(path, content.getvalue())
    return [png, svg]


def named(text: object) -> str:
    """A name from a file, short enough for a picture."""
    return clean(text, 100)


def stem(out: Path) -> Path:
    """A path without its suffix, if the suffix is one that we write."""
    return out.with_suffix("") if out.suffix in (".png", ".svg", ".json") else out
