"""Groups of runs side by side: which is better, by how much, and how sure that is."""

import json
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from t3d import files
from t3d.errors import T3DError
from t3d.randomness import generator
from t3d.run import statistics
from t3d.run.folder import Record
from t3d.run.statistics import Estimate
from t3d.show import plots
from t3d.show.plots import Evaluated
from t3d.show.terminal import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[Any]
Group = dict[str, list[Evaluated]]  # the runs by environment

_POINTS = 101  # of each curve
_FEW = 5  # seeds; intervals from fewer are too narrow
_SCORE = "mean return of the last 10 % of evaluations, at least one"
_SCALE = (
    "0 is the mean return before training, 1 that of the best group, on each environment (if a"
    " group fell by more than any rose, -1 is that of the worst)"
)
_ESTIMATES = {"iqm": statistics.iqm, "median": statistics.median, "mean": statistics.mean}


def compare(arguments: Sequence[str]) -> Record:
    """All numbers of a comparison: each group beside the others, and against the first."""
    groups, notes = _groups(arguments)
    envs = _common(groups, notes)
    facts: Record = {}
    # By group, one array per environment: scores (runs,), and curves (points, runs).
    scores: dict[str, list[Array]] = {label: [] for label in groups}
    by_steps: dict[str, list[Array]] = {label: [] for label in groups}
    by_seconds: dict[str, list[Array]] = {label: [] for label in groups}
    for env in envs:
        members = {label: group[env] for label, group in groups.items()}
        runs = [run for each in members.values() for run in each]
        steps = _common_steps(env, runs, notes)
        last = steps[-max(1, len(steps) // 10) :]
        until = {"steps": steps[-1], "seconds": min(run.seconds[steps[-1]] for run in runs)}
        raw = {
            label: np.array([np.mean([run.points[step] for step in last]) for run in each])
            for label, each in members.items()
        }
        zero, unit = 0.0, 1.0
        if len(envs) > 1:
            zero = float(np.mean([run.points[0] for run in runs]))
            unit = max(abs(float(returns.mean()) - zero) for returns in raw.values()) or 1.0
        facts[env] = {"until": until, "scored_at": last, "zero": zero, "unit": unit}
        for label, each in members.items():
            scores[label].append((raw[label] - zero) / unit)
            for curves, at in ((by_steps, "steps"), (by_seconds, "seconds")):
                grid = np.linspace(0, until[at], _POINTS)
                lines = [np.interp(grid, _when(run, at), list(run.points.values())) for run in each]
                curves[label].append((np.stack(lines, axis=1) - zero) / unit)
    _warn(groups, envs, notes)
    every = np.concatenate([returns for each in scores.values() for returns in each])
    margin = 0.03 * (np.ptp(every) or 1.0)
    taus = np.linspace(every.min() - margin, every.max() + margin, _POINTS)

    told: Record = {}
    draws = {}
    for number, label in enumerate(groups):
        mine = scores[label]
        draws[label] = taken = statistics.draw(generator(0, "bootstrap", number), mine)
        told[label] = {
            "runs": {env: _runs(groups[label][env], s) for env, s in zip(envs, mine)},
            **{
                name: statistics.estimate(statistic, mine, taken)._asdict()
                for name, statistic in _ESTIMATES.items()
            },
            "profile": _columns(
                statistics.estimate(_above(tau), mine, taken) for tau in taus.tolist()
            ),
            "by_steps": _curve(by_steps[label], taken),
            "by_seconds": _curve(by_seconds[label], taken),
        }
    return {
        "environments": facts,
        "score": _SCORE,
        "scale": _SCALE if len(envs) > 1 else "returns as they are",
        "resamples": statistics.RESAMPLES,
        "baseline": next(iter(groups)),
        "groups": told,
        "improvement": _improvements(scores, draws),
        "taus": taus.tolist(),
        "steps": _axis([fact["until"]["steps"] for fact in facts.values()]),
        "seconds": _axis([fact["until"]["seconds"] for fact in facts.values()]),
        "notes": notes,
    }


def _groups(arguments: Sequence[str]) -> tuple[dict[str, Group], list[str]]:
    """The groups by label, and what should be known of them."""
    named: dict[str, list[Path]] = {}
    seen: set[Path] = set()
    # LABEL=PATH, but for a folder of that name; the same label again adds to its group.
    pairs = [("", a) if Path(a).is_dir() or "=" not in a else a.split("=", 1) for a in arguments]
    parents = [Path(path).resolve().parent for _, path in pairs]
    for label, path in pairs:
        label = label or os.path.relpath(Path(path).resolve(), os.path.commonpath(parents))
        for run in _runs_in(path):
            if run.resolve() in seen:
                raise T3DError(f"{run} is given twice; each run belongs to one group")
            seen.add(run.resolve())
            named.setdefault(label, []).append(run)
    runs = {label: [plots.evaluated(path) for path in paths] for label, paths in named.items()}
    if len(runs) == 1:
        (members,) = runs.values()
        runs = _by_setting(members, arguments[0])
    groups: dict[str, Group] = {}
    notes: list[str] = []
    for label, members in runs.items():
        group = groups[label] = _by_env(members)
        for env, each in group.items():
            seeds = {run.seed: run for run in each}
            for run in each:
                if seeds[run.seed] is not run:
                    twice = f"{label} has {env} with seed {run.seed} twice"
                    where = f"{run.path} and {seeds[run.seed].path}"
                    advice = "a folder of several settings is compared alone: t3d compare FOLDER"
                    raise T3DError(f"{twice}, {where}; {advice}")
            mixed = plots.varied(run.setting for run in each)
            if mixed:
                notes.append(f"{label} mixes settings on {env}: {', '.join(sorted(mixed))}")
    return groups, notes


def _runs_in(path: str) -> list[Path]:
    """A run folder, or those in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        raise T3DError(f"no folder at {path}; expected a run, a folder of runs, or LABEL=FOLDER")
    if (folder / "config.json").is_file():
        return [folder]
    runs = sorted(p.parent for p in folder.glob("*/config.json") if p.parent.name[0] != ".")
    if not runs:
        raise T3DError(f"{path} has no runs in it: no folder there has a config.json")
    return runs


def _by_env(runs: Sequence[Evaluated]) -> Group:
    group: Group = {}
    for run in runs:
        group.setdefault(run.env, []).append(run)
    return group


def _by_setting(runs: Sequence[Evaluated], path: str) -> dict[str, list[Evaluated]]:
    """The settings among runs, told by the knobs that differ on some environment."""
    names: set[str] = set()
    for each in _by_env(runs).values():
        names |= plots.varied(run.setting for run in each)
    if not names:
        raise T3DError(f"all runs of {path} have one setting; give a second group to compare with")
    settings: dict[str, list[Evaluated]] = {}
    for run in runs:
        settings.setdefault(plots.label(run.setting, names), []).append(run)
    return settings


def _common(groups: dict[str, Group], notes: list[str]) -> list[str]:
    """The environments that all groups have."""
    every = {env: None for group in groups.values() for env in group}  # in order, each once
    envs = [env for env in every if all(env in group for group in groups.values())]
    if not envs:
        have = "; ".join(f"{label} has {', '.join(group)}" for label, group in groups.items())
        raise T3DError(f"no environment is in all groups: {have}")
    left = [env for env in every if env not in envs]
    if left:
        notes.append(f"left out, as not all groups have it: {', '.join(left)}")
    return envs


def _common_steps(env: str, runs: Sequence[Evaluated], notes: list[str]) -> list[int]:
    """The steps at which all runs on an environment were evaluated, from 0 on."""
    steps = sorted(set.intersection(*(set(run.points) for run in runs)))
    if len(steps) < 2 or steps[0] != 0:
        advice = "compare runs with the same --eval-every, above 0, that have trained a while"
        raise T3DError(f"the runs on {env} share no evaluations at step 0 and later; {advice}")
    for run in runs:
        if run.seconds[steps[-1]] <= 0:
            raise T3DError(f"{run.path / 'metrics.jsonl'} does not say when it was evaluated")
    shortest = min(runs, key=lambda run: max(run.points))
    if steps[-1] < max(max(run.points) for run in runs):
        up_to = f"{env} is compared up to step {steps[-1]:,}, the last that all its runs share"
        notes.append(f"{up_to}; the shortest is {shortest.path}")
    return steps


def _warn(groups: dict[str, Group], envs: Sequence[str], notes: list[str]) -> None:
    """Say what makes the numbers less sure than they look."""
    counts = {len(group[env]) for group in groups.values() for env in envs}
    if min(counts) < _FEW:
        few = f"as few as {min(counts)} seed{'s' if min(counts) > 1 else ''} per environment"
        notes.append(f"{few}: with fewer than {_FEW}, the intervals are too narrow")
    if len(envs) > 1 and len(counts) > 1:
        notes.append("seeds differ in number: in the IQM and the profile, each run counts the same")
    if len(groups) > 2:
        notes.append(f"{len(groups) - 1} comparisons: each may err by chance, as if it were alone")


def _when(run: Evaluated, at: str) -> list[float]:
    return list(run.points) if at == "steps" else list(run.seconds.values())


def _runs(runs: Sequence[Evaluated], scores: Array) -> Record:
    return {str(run.seed): score for run, score in zip(runs, scores.tolist())}


def _above(tau: float) -> Callable[[statistics.Scores], Array]:
    return lambda scores: statistics.share_above(scores, tau)


def _curve(lines: Sequence[Array], draws: Sequence[Array]) -> Record:
    """The interquartile mean at each point, with its interval."""
    return _columns(
        statistics.estimate(statistics.iqm, [line[point] for line in lines], draws)
        for point in range(_POINTS)
    )


def _columns(estimates: Any) -> Record:
    """Estimates along a curve, as one list for each of value, low and high."""
    return dict(zip(Estimate._fields, map(list, zip(*estimates))))


def _axis(ends: Sequence[float]) -> Record:
    """Where the points of a curve are: in units, or where environments differ, in % of each end."""
    alike = len(set(ends)) == 1
    end = ends[0] if alike else 100
    return {"x": np.linspace(0, end, _POINTS).tolist(), "percent": not alike}


def _improvements(scores: dict[str, list[Array]], draws: dict[str, list[Array]]) -> Record:
    """How likely a run of each group beats one of the first, and what that says."""
    told: Record = {}
    first, *others = scores
    for number, label in enumerate(others, start=1):
        mine, theirs = scores[label], scores[first]
        again = [statistics.resample(scores[name], draws[name]) for name in (label, first)]
        found = statistics.interval(
            statistics.improvement(mine, theirs), statistics.improvement(*again)
        )
        p = statistics.p_value(generator(0, "permutation", number), mine, theirs)
        # The interval alone would find a difference between equals too often: from three seeds
        # each, one time in five. The test keeps that at one in twenty.
        verdict = "not told apart by these seeds"
        if p <= 0.05 and not found.low <= 0.5 <= found.high:
            verdict = "better" if found.value > 0.5 else "worse"
        told[label] = {**found._asdict(), "p": p, "verdict": verdict}
    return told


def show(found: Record, console: Console) -> None:
    """Print the table: a rich one on a terminal, plain columns elsewhere."""
    first, envs = found["baseline"], found["environments"]
    say(console, f"{', '.join(envs)}; score: {found['score']}")
    say(console, f"scale: {found['scale']}")
    largest = max(abs(group["mean"]["value"]) for group in found["groups"].values())
    digits = 1 if largest >= 100 else 3

    def cell(estimate: Record, digits: int = digits) -> str:
        value, low, high = (f"{estimate[name]:,.{digits}f}" for name in Estimate._fields)
        return f"{value} [{low}, {high}]"

    rows = [["group", "runs", "IQM [95 %]", "median", "mean", f"P(better than {first})"]]
    for label, group in found["groups"].items():
        runs = sum(len(seeds) for seeds in group["runs"].values())
        beats = found["improvement"].get(label)
        cells = [cell(group[name]) for name in _ESTIMATES]
        rows.append([label, f"{runs}", *cells, cell(beats, 2) if beats else "(the baseline)"])
    if console.is_terminal:
        table = Table(*rows[0])
        for row in rows[1:]:
            table.add_row(*map(Text, row))  # as they are: brackets are no markup
        console.print(table)
    else:
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            say(console, "  ".join(f"{c:<{w}}" for c, w in zip(row, widths)).rstrip())
    for label, beats in found["improvement"].items():
        say(console, f"{label} against {first}: {beats['verdict']} (p = {beats['p']:.2g})")
    for note in found["notes"]:
        say(console, f"note: {note}")


def write(found: Record, out: Path) -> Path:
    """Keep all numbers as JSON; returns the file."""
    path = Path(f"{plots.stem(out)}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, (json.dumps(found, indent=1) + "\n").encode())
    except OSError as error:
        raise T3DError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


# Colours that people tell apart with any kind of sight (Okabe and Ito), and a mark for each.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = "osD^vPX*"


def draw(found: Record, out: Path) -> list[Path]:
    """Draw the comparison as PNG and SVG; returns the files."""
    figure = plots.new_figure(13, 7.4)
    grid = figure.subplot_mosaic(
        [["estimates", "profile", "improvement"], ["steps", "seconds", "legend"]]
    )
    envs, first = found["environments"], found["baseline"]
    several = len(envs) > 1
    score = "score (0 untrained, 1 best group)" if several else "evaluation return"
    looks = [
        {"color": _COLOURS[n % len(_COLOURS)], "marker": _MARKS[n % len(_MARKS)]}
        for n in range(len(found["groups"]))
    ]
    count = len(found["groups"])
    for number, (label, group) in enumerate(found["groups"].items()):
        look = looks[number]
        for row, name in enumerate(_ESTIMATES):
            _bar(grid["estimates"], row + 0.7 * ((number + 0.5) / count - 0.5), group[name], look)
        _line(grid["profile"], found["taus"], group["profile"], look)
        _line(grid["steps"], found["steps"]["x"], group["by_steps"], look)
        _line(grid["seconds"], found["seconds"]["x"], group["by_seconds"], look)
        if label != first:
            _bar(grid["improvement"], number, found["improvement"][label], look)
        runs = sum(len(seeds) for seeds in group["runs"].values())
        name = textwrap.fill(f"{label} ({runs} runs)", 48)
        grid["legend"].plot([], [], label=name, lw=2, **look)
    grid["estimates"].set_yticks(range(len(_ESTIMATES)), ["IQM", "median", "mean"])
    grid["estimates"].invert_yaxis()
    grid["estimates"].set(title="final score", xlabel=score)
    grid["profile"].set(title="performance profile", xlabel=f"{score}, τ", ylim=(-0.02, 1.02))
    grid["profile"].set_ylabel("share of runs above τ")
    grid["improvement"].axvline(0.5, color="grey", lw=1, ls="--")
    grid["improvement"].set(title="probability of improvement", xlim=(-0.03, 1.03))
    grid["improvement"].set(ylim=(count - 0.4, 0.4), yticks=[])
    grid["improvement"].set_xlabel(textwrap.fill(f"P(a run beats one of {first})", 44))
    units = {"steps": "environment steps", "seconds": "wall-clock seconds"}
    shares = {
        "steps": "% of each environment's steps",
        "seconds": "% of each environment's shortest run, in time",
    }
    titles = {"steps": "sample efficiency", "seconds": "wall clock"}
    for name, title in titles.items():
        unit = (shares if found[name]["percent"] else units)[name]
        grid[name].set(title=title, xlabel=unit, ylabel=f"IQM of {score}")
        grid[name].xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    for name, axes in grid.items():
        if name != "legend":
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    grid["legend"].axis("off")
    grid["legend"].legend(loc="upper left", frameon=False, borderaxespad=0)
    told = f"{', '.join(envs)}. Score: {found['score']}. Bands and bars: 95 % bootstrap intervals."
    grid["legend"].text(0, 0, textwrap.fill(told, 56), fontsize=9, va="bottom")
    return plots.save(figure, out)


def _bar(axes: "Axes", y: float, estimate: Record, look: Record) -> None:
    """A value and its interval, lying."""
    axes.plot([estimate["low"], estimate["high"]], [y, y], color=look["color"], lw=5, alpha=0.35)
    axes.plot([estimate["value"]], [y], ls="", ms=7, **look)


def _line(axes: "Axes", x: Sequence[float], curve: Record, look: Record) -> None:
    """A curve and its band."""
    axes.plot(x, curve["value"], lw=2, ms=5, markevery=20, **look)
    axes.fill_between(x, curve["low"], curve["high"], color=look["color"], alpha=0.18, lw=0)
