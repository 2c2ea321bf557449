"""Learning curves: one line per environment and preset, with an interval over seeds."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t3d.base.errors import BadInput, CannotWrite
from t3d.base.numbers import Array
from t3d.config import knobs_of
from t3d.run.folder import RunFolder, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


# Knobs that leave the curve as it is. When and how long to evaluate decides what it shows.
NO_MATTER = {"env", "seed", "steps"} | knobs_of("records", "machine")
NO_MATTER -= {"eval_every", "eval_episodes"}


Setting = tuple[tuple[str, Any], ...]


class Evaluated(NamedTuple):
    """The evaluations of one run, and what sets it apart from other runs."""

    path: Path
    env: str
    seed: int
    setting: Setting  # the preset, and the knobs that matter
    points: dict[int, float]  # the mean return at each step
    seconds: dict[int, float]  # when that was


def evaluated(path: str | Path) -> Evaluated:
    """Read the evaluations of a run."""
    folder = RunFolder.open(path)
    config = folder.config()
    records = sorted(folder.metrics("evaluation"), key=lambda record: int(record["step"]))
    try:
        points = {int(r["step"]): finite(r["mean"]) for r in records}
        seconds = {int(r["step"]): finite(r.get("seconds", 0)) for r in records}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{folder.metrics_path} has an evaluation without a mean") from error
    if not points:
        raise BadInput(f"{path} has no evaluation yet; let it train longer")
    knobs = ((name, value) for name, value in vars(config).items() if name not in NO_MATTER)
    setting = (("preset", str(folder.about().get("preset"))), *knobs)
    return Evaluated(folder.path, config.env, config.seed, setting, points, seconds)


def varied(settings: Iterable[Setting]) -> set[str]:
    """The names of the knobs in which settings differ."""
    each = [set(setting) for setting in settings]
    shared = set.intersection(*each)
    return {name for setting in each for name, _ in setting - shared}


def label(setting: Setting, names: set[str]) -> str:
    """A setting in words, by some of its knobs."""
    return ", ".join(f"{name} {value}" for name, value in setting if name in names)


def curves(runs: Sequence[str | Path]) -> dict[str, list[Curve]]:
    """Curves by environment. Runs with equal knobs, the seed aside, share a curve."""
    # By environment and setting: the points of every seed. The same seed twice is the same run
    # twice, and counts once.
    groups: dict[str, dict[Setting, dict[int, dict[int, float]]]] = defaultdict(dict)
    for path in runs:
        run = evaluated(path)
        group = groups[run.env].setdefault(run.setting, {})
        if len(run.points) > len(group.get(run.seed, {})):
            group[run.seed] = run.points
    return {env: _curves_of(env, members) for env, members in groups.items()}


def _curves_of(env: str, groups: dict[Setting, dict[int, dict[int, float]]]) -> list[Curve]:
    """One curve per setting, labelled by what sets it apart from the others."""
    names = {"preset"} | varied(groups)
    lines = []
    for setting, seeds in groups.items():
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        if len(steps) < 2 <= max(len(points) for points in seeds.values()):
            raise BadInput(f"the runs on {env} were evaluated at different steps; plot them apart")
        returns = np.array([[points[step] for step in steps] for points in seeds.values()])
        lines.append(Curve(label(setting, names), list(seeds), np.array(steps), returns))
    return lines


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
        axes.set(title=title, ylabel=f"evaluation return\n({note})")
    return save(figure, out)


def panel(axes: "Axes", lines: Sequence[Curve]) -> None:
    """Draw curves over steps: the mean over seeds, its interval, and each seed."""
    for line in lines:
        count = f"{len(line.seeds)} seeds" if len(line.seeds) > 1 else f"seed {line.seeds[0]}"
        (drawn,) = axes.plot(line.step, line.mean(), label=f"{line.label}, {count}", lw=2)
        if len(line.returns) > 2:  # that of two would be their range
            low, high = line.interval()
            axes.fill_between(line.step, low, high, color=drawn.get_color(), alpha=0.2, lw=0)
        if len(line.returns) > 1:
            for row in line.returns:
                axes.plot(line.step, row, color=drawn.get_color(), lw=0.7, alpha=0.4)
    axes.set(xlabel="environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture, of a size in inches."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise BadInput("plots need an extra: pip install 't3d[plot]'") from error
    mpl.rcParams["svg.hashsalt"] = "t3d"  # the same picture is the same file
    mpl.rcParams["svg.fonttype"] = "none"  # words stay words, to search and to read aloud
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", out: Path) -> list[Path]:
    """Write a picture as PNG and SVG; returns the files."""
    files = [Path(f"{stem(out)}.png"), Path(f"{stem(out)}.svg")]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written: {error.strerror}") from error
    return files


def stem(out: Path) -> Path:
    """A file's name without its ending, if that is one of ours."""
    return out.with_suffix("") if out.suffix in (".png", ".svg", ".json") else out
