"""Learning curves: one line per environment and preset, with an interval over seeds."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from t3d.errors import T3DError
from t3d.run.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]


class Curve:
    """The evaluations of runs that differ in their seed alone."""

    def __init__(self, label: str, seeds: list[int], step: Array, returns: Array) -> None:
        self.label = label
        self.seeds = seeds
        self.step = step  # (points,)
        self.returns = returns  # (runs, points)

    def mean(self) -> Array:
        """The mean over seeds at each step."""
        return np.asarray(self.returns.mean(axis=0))

    def interval(self, resamples: int = 2000) -> tuple[Array, Array]:
        """The 95 % bootstrap interval of the mean over seeds at each step."""
        draws = np.random.default_rng(0).integers(
            len(self.returns), size=(resamples, len(self.returns))
        )
        means = self.returns[draws].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5], axis=0)
        return low, high


# Knobs that say what to write and where to compute, and leave the curve as it is.
_NO_MATTER = {
    *("env", "seed", "steps", "log_every", "checkpoint_every", "keep_checkpoints"),
    *("env_backend", "engine", "device", "threads", "overlap"),
}


def curves(runs: Sequence[str | Path]) -> dict[str, list[Curve]]:
    """Curves by environment. Runs with equal knobs, the seed aside, share a curve."""
    # By environment, preset and knobs: the points of every seed. The same seed twice is the
    # same run twice, and counts once.
    groups: dict[str, dict[Any, dict[int, dict[int, float]]]] = defaultdict(dict)
    for path in runs:
        folder = RunFolder.open(path)
        config = folder.config()
        records = list(folder.metrics("evaluation"))
        try:
            points = {int(r["step"]): float(r["mean"]) for r in records}
        except (KeyError, TypeError, ValueError) as error:
            raise T3DError(f"{folder.metrics_path} has an evaluation without a mean") from error
        if not points:
            raise T3DError(f"{path} has no evaluation yet; let it train longer")
        knobs = tuple((k, v) for k, v in vars(config).items() if k not in _NO_MATTER)
        group = groups[config.env].setdefault((folder.about().get("preset"), knobs), {})
        if len(points) > len(group.get(config.seed, {})):
            group[config.seed] = points
    return {env: _curves_of(env, members) for env, members in groups.items()}


def _curves_of(env: str, groups: dict[Any, dict[int, dict[int, float]]]) -> list[Curve]:
    """One curve per preset and knobs, labelled by what sets it apart from the others."""
    shared = set.intersection(*(set(knobs) for _, knobs in groups))
    lines = []
    for (preset, knobs), seeds in groups.items():
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        if len(steps) < 2 <= max(len(points) for points in seeds.values()):
            raise T3DError(f"the runs on {env} were evaluated at different steps; plot them apart")
        returns = np.array([[points[step] for step in steps] for points in seeds.values()])
        apart = [f"{name} {value}" for name, value in knobs if (name, value) not in shared]
        label = ", ".join([f"preset {preset}", *apart])
        lines.append(Curve(label, list(seeds), np.array(steps), returns))
    return lines


def plot(runs: Sequence[str | Path], out: Path) -> list[Path]:
    """Draw the curves of runs, a panel per environment, as PNG and SVG; returns the files."""
    return draw(curves(runs), out)


def draw(panels: dict[str, list[Curve]], out: Path) -> list[Path]:
    """Draw curves, a panel per title, as PNG and SVG; returns the files."""
    figure = new_figure(len(panels))
    for number, (title, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for line in lines:
            count = f"{len(line.seeds)} seeds" if len(line.seeds) > 1 else f"seed {line.seeds[0]}"
            (drawn,) = axes.plot(line.step, line.mean(), label=f"{line.label}, {count}", lw=2)
            if len(line.returns) > 1:
                low, high = line.interval()
                axes.fill_between(line.step, low, high, color=drawn.get_color(), alpha=0.2, lw=0)
                for row in line.returns:
                    axes.plot(line.step, row, color=drawn.get_color(), lw=0.7, alpha=0.4)
        several = any(len(line.returns) > 1 for line in lines)
        note = "mean over seeds, 95 % bootstrap interval" if several else "mean over episodes"
        axes.set(title=title, xlabel="environment steps", ylabel=f"evaluation return\n({note})")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(loc="best")
    return save(figure, out)


def new_figure(panels: int) -> "Figure":
    """A picture for so many panels side by side."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise T3DError("plots need an extra: pip install 't3d[plot]'") from error
    mpl.rcParams["svg.hashsalt"] = "t3d"  # the same picture is the same file
    mpl.rcParams["svg.fonttype"] = "none"  # words stay words, to search and to read aloud
    return Figure(figsize=(6.4 * panels, 4.2), layout="constrained")


def save(figure: "Figure", out: Path) -> list[Path]:
    """Write a picture as PNG and SVG; returns the files."""
    stem = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    files = [Path(f"{stem}.png"), Path(f"{stem}.svg")]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    except OSError as error:
        raise T3DError(f"{out} cannot be written: {error.strerror}") from error
    return files
