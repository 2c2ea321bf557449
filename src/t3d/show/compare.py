"""Groups of runs side by side: which is better, by how much, and how sure that is."""

import json
import os
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite
from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.run.folder import Record
from t3d.show import plots
from t3d.show.plots import Evaluated
from t3d.show.terminal import say
from t3d.study import statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Group = dict[str, list[Evaluated]]  # the runs by environment

_SHARES = np.linspace(0, 1, 101)  # where curves have points, if not at the evaluations
_FEW = 5  # seeds; intervals from fewer are too narrow
_SCORE = "mean return of the last 10 % of evaluations, at least one"
_SCALE = (
    "0 is the mean return before training, 1 that of the best group, on each environment (if a"
    " group fell by more than any rose, -1 is that of the worst)"
)
_ESTIMATES = {"IQM": statistics.iqm, "median": statistics.median, "mean": statistics.mean}


def compare(arguments: Sequence[str]) -> Record:
    """All numbers of a comparison: each group by itself, and against the first."""
    groups, notes = _groups(arguments)
    envs = _common_envs(groups, notes)
    steps = {env: _common_steps(env, _runs_on(env, groups), notes) for env in envs}
    _warn(groups, envs, notes)
    several = len(envs) > 1
    alike = all(each == steps[envs[0]] for each in steps.values())
    facts, measured = {}, []
    for env in envs:
        fact, values = _measure(env, groups, steps[env], alike, several)
        facts[env] = fact
        measured.append(values)
    # By group, one array per environment: scores (runs,), and curves (points, runs).
    scores, by_steps, by_seconds = (
        {label: [values[label][kind] for values in measured] for label in groups}
        for kind in ("score", "steps", "seconds")
    )
    draws = {
        label: statistics.draw(generator(0, "bootstrap", number), scores[label])
        for number, label in enumerate(groups)
    }
    every = np.concatenate([runs for each in scores.values() for runs in each])
    margin = 0.03 * (np.ptp(every) or 1.0)
    taus = np.linspace(every.min() - margin, every.max() + margin, len(_SHARES))
    told: Record = {}
    for label, group in groups.items():
        mine, taken = scores[label], draws[label]
        above = [partial(statistics.share_above, tau=tau) for tau in taus]
        told[label] = {
            "scores": {
                env: {str(run.seed): score for run, score in zip(group[env], runs.tolist())}
                for env, runs in zip(envs, mine)
            },
            **{n: _named(statistics.estimate(s, mine, taken)) for n, s in _ESTIMATES.items()},
            "profile": _named([statistics.estimate(share, mine, taken) for share in above]),
            "by_steps": _curve(by_steps[label], taken),
            "by_seconds": _curve(by_seconds[label], taken),
        }
    seconds = 100 if several else facts[envs[0]]["seconds"]
    return {
        "environments": facts,
        "score": _SCORE,
        "scale": _SCALE if several else "returns as they are",
        "baseline": next(iter(groups)),
        "resamples": statistics.RESAMPLES,
        "groups": told,
        "improvement": _improvements(scores, draws),
        "notes": notes,
        "taus": taus.tolist(),
        # Where environments differ in how long they take, curves are drawn over shares of that.
        "steps": {"x": steps[envs[0]] if alike else list(100 * _SHARES), "percent": not alike},
        "seconds": {"x": list(seconds * _SHARES), "percent": several},
    }


def _measure(
    env: str, groups: dict[str, Group], steps: list[int], alike: bool, several: bool
) -> tuple[Record, dict[str, dict[str, Array]]]:
    """How an environment is scored; and by group, its runs' scores and their curves."""
    runs = _runs_on(env, groups)
    end, last = steps[-1], steps[-max(1, len(steps) // 10) :]
    seconds = min(run.seconds[end] for run in runs)
    grid = np.array(steps) if alike else end * _SHARES

    def values(run: Evaluated) -> dict[str, Array]:
        means, times = list(run.points.values()), list(run.seconds.values())
        return {
            "score": np.asarray(np.mean([run.points[step] for step in last])),
            "steps": np.interp(grid, list(run.points), means),
            "seconds": np.interp(seconds * _SHARES, times, means),
        }

    found = {label: [values(run) for run in group[env]] for label, group in groups.items()}
    zero, unit = 0.0, 1.0
    if several:
        zero = float(np.mean([run.points[0] for run in runs]))
        means = [float(np.mean([run["score"] for run in each])) for each in found.values()]
        unit = max(abs(mean - zero) for mean in means) or 1.0
    fact = {"steps": end, "seconds": seconds, "scored_at": last, "zero": zero, "unit": unit}
    return fact, {
        label: {
            kind: (np.stack([run[kind] for run in each], axis=-1) - zero) / unit for kind in each[0]
        }
        for label, each in found.items()
    }


def _groups(arguments: Sequence[str]) -> tuple[dict[str, Group], list[str]]:
    """The groups by label, and what should be known of them."""
    named: dict[str, list[Path]] = {}
    seen: set[Path] = set()
    # LABEL=PATH, but for a folder of that name; the same label again adds to its group.
    pairs = [("", a) if Path(a).is_dir() or "=" not in a else a.split("=", 1) for a in arguments]
    parents = [Path(path).resolve().parent for label, path in pairs if not label]
    for label, path in pairs:
        label = label or os.path.relpath(Path(path).resolve(), os.path.commonpath(parents))
        for folder in _runs_in(path):
            if folder.resolve() in seen:
                raise BadInput(f"{folder} is given twice; each run belongs to one group")
            seen.add(folder.resolve())
            named.setdefault(label, []).append(folder)
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
                    raise BadInput(f"{twice}, {where}; {advice}")
            mixed = plots.varied(run.setting for run in each)
            if mixed:
                notes.append(f"{label} mixes settings on {env}: {', '.join(sorted(mixed))}")
    return groups, notes


def _runs_in(path: str) -> list[Path]:
    """A run folder, or those in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        raise BadInput(f"no folder at {path}; expected a run, a folder of runs, or LABEL=FOLDER")
    if (folder / "config.json").is_file():
        return [folder]
    runs = sorted(p.parent for p in folder.glob("*/config.json") if p.parent.name[0] != ".")
    if not runs:
        raise BadInput(f"{path} has no runs in it: no folder there has a config.json")
    return runs


def _runs_on(env: str, groups: dict[str, Group]) -> list[Evaluated]:
    return [run for group in groups.values() for run in group[env]]


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
        raise BadInput(f"all runs of {path} have one setting; give a second group to compare with")
    settings: dict[str, list[Evaluated]] = {}
    for run in runs:
        settings.setdefault(plots.label(run.setting, names), []).append(run)
    return settings


def _common_envs(groups: dict[str, Group], notes: list[str]) -> list[str]:
    """The environments that all groups have."""
    every = {env: None for group in groups.values() for env in group}  # in order, each once
    envs = [env for env in every if all(env in group for group in groups.values())]
    if not envs:
        have = "; ".join(f"{label} has {', '.join(group)}" for label, group in groups.items())
        raise BadInput(f"no environment is in all groups: {have}")
    left = [env for env in every if env not in envs]
    if left:
        notes.append(f"left out, as not all groups have it: {', '.join(left)}")
    return envs


def _common_steps(env: str, runs: Sequence[Evaluated], notes: list[str]) -> list[int]:
    """The steps at which all runs on an environment were evaluated, from 0 on."""
    steps = sorted(set.intersection(*(set(run.points) for run in runs)))
    if len(steps) < 2 or steps[0] != 0:
        advice = "compare runs with the same --eval-every, above 0, that have trained a while"
        raise BadInput(f"the runs on {env} share no evaluations at step 0 and later; {advice}")
    for run in runs:
        if run.seconds[steps[-1]] <= 0:
            raise BadInput(f"{run.path / 'metrics.jsonl'} does not say when it was evaluated")
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


def _named(estimates: Any) -> Record:
    """An estimate, or those along a curve, as one entry for each of value, low and high."""
    return dict(zip(("value", "low", "high"), np.array(estimates).T.tolist()))


def _curve(lines: Sequence[Array], draws: Sequence[Array]) -> Record:
    """The interquartile mean at each point, with its interval."""
    points = ([line[point] for line in lines] for point in range(len(lines[0])))
    return _named([statistics.estimate(statistics.iqm, runs, draws) for runs in points])


def _improvements(scores: dict[str, list[Array]], draws: dict[str, list[Array]]) -> Record:
    """How likely a run of each group beats one of the first, and what that says."""
    told: Record = {}
    first, *others = scores
    envs = len(scores[first])
    for number, label in enumerate(others, start=1):
        found = _named(
            statistics.estimate(
                lambda both: statistics.improvement(both[:envs], both[envs:]),
                scores[label] + scores[first],
                draws[label] + draws[first],
            )
        )
        p = statistics.p_value(generator(0, "permutation", number), scores[label], scores[first])
        # The interval alone would set equals apart too often: from three seeds each on one
        # environment, one time in six. The test keeps that to one in twenty.
        verdict = "not told apart by these seeds"
        if p <= 0.05 and not found["low"] <= 0.5 <= found["high"]:
            verdict = "better" if found["value"] > 0.5 else "worse"
        told[label] = {**found, "p": p, "verdict": verdict}
    return told


def show(found: Record, console: Console) -> None:
    """Print the table: a rich one on a terminal, plain columns elsewhere."""
    first, envs = found["baseline"], found["environments"]
    say(console, f"{', '.join(envs)}; score: {found['score']}")
    say(console, f"scale: {found['scale']}")
    largest = max(abs(group["mean"]["value"]) for group in found["groups"].values())
    digits = 1 if largest >= 100 else 3

    def cell(estimate: Record, digits: int = digits) -> str:
        value, low, high = (f"{estimate[k]:,.{digits}f}" for k in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"

    rows = [["group", "runs", *(f"{n} [95 %]" for n in _ESTIMATES), "P(better)"]]
    for label, group in found["groups"].items():
        runs = sum(len(seeds) for seeds in group["scores"].values())
        beats = found["improvement"].get(label)
        cells = [cell(group[name]) for name in _ESTIMATES]
        rows.append([label, f"{runs}", *cells, cell(beats, 2) if beats else "baseline"])
    if console.is_terminal:
        table = Table(box=SIMPLE, show_lines=True, padding=(0, 1, 0, 0))
        for name in rows[0]:
            table.add_column(Text(name))  # brackets are no markup in a Text
        for row in rows[1:]:
            table.add_row(*(Text(cell.replace(" [", "\n[")) for cell in row))
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
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from error
    return path


# Colours that people tell apart with any kind of sight (Okabe and Ito), and a mark for each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = "osD^vPX*"


def draw(found: Record, out: Path) -> list[Path]:
    """Draw the comparison as PNG and SVG; returns the files."""
    figure = plots.new_figure(13, 7.4)
    grid = figure.subplot_mosaic(
        [["estimates", "profile", "improvement"], ["steps", "seconds", "key"]]
    )
    envs, first, count = found["environments"], found["baseline"], len(found["groups"])
    score = "score (0 untrained, 1 best group)" if len(envs) > 1 else "evaluation return"
    for number, (label, group) in enumerate(found["groups"].items()):
        look: Record = {"color": COLOURS[number % len(COLOURS)]}
        look["marker"] = _MARKS[number % len(_MARKS)]
        for row, name in enumerate(_ESTIMATES):
            _bar(grid["estimates"], row + 0.7 * ((number + 0.5) / count - 0.5), group[name], look)
        _line(grid["profile"], found["taus"], group["profile"], look, "mid")
        _line(grid["steps"], found["steps"]["x"], group["by_steps"], look)
        _line(grid["seconds"], found["seconds"]["x"], group["by_seconds"], look)
        if label != first:
            beats = found["improvement"][label]
            _bar(grid["improvement"], number, beats, look)
            words = grid["improvement"].text(0.5, number - 0.15, beats["verdict"])
            words.set(ha="center", va="bottom", size=9, zorder=1)
            words.set_bbox({"fc": "white", "ec": "none", "pad": 1})
        runs = sum(len(seeds) for seeds in group["scores"].values())
        name = textwrap.fill(f"{label} ({runs} runs)", 44)
        grid["key"].plot([], [], label=name, lw=2, **look)
    grid["estimates"].set(title="final score", xlabel=score)
    grid["estimates"].set_yticks(range(len(_ESTIMATES)), list(_ESTIMATES))
    grid["estimates"].invert_yaxis()
    grid["profile"].set(title="performance profile", xlabel=f"{score}, τ")
    grid["profile"].set_ylabel("share of runs above τ")
    grid["improvement"].set(title="probability of improvement", xlim=(-0.03, 1.03), yticks=[])
    grid["improvement"].set(ylim=(count - 0.4, 0.4))
    grid["improvement"].set_xlabel(textwrap.fill(f"P(a run beats one of {first})", 44))
    grid["improvement"].axvline(0.5, color="grey", lw=1, ls="--", zorder=0)
    over = {"steps": "environment steps", "seconds": "wall-clock seconds"}
    shares = {"steps": "% of the steps", "seconds": "% of the shortest run's time"}
    for name, title in (("steps", "sample efficiency"), ("seconds", "wall clock")):
        unit = f"{shares[name]}, on each environment" if found[name]["percent"] else over[name]
        grid[name].set(title=title, xlabel=unit, ylabel=f"IQM of {score}")
        grid[name].yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    told = f"{', '.join(envs)}. Score: {found['score']}. Bands and bars: 95 % bootstrap intervals."
    key = grid["key"].legend(loc="upper left", frameon=False, borderaxespad=0, alignment="left")
    key.set_title(textwrap.fill(told, 54) + "\n")
    key.get_title().set_fontsize(9)
    for axes in grid.values():
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    grid["key"].axis("off")
    return plots.save(figure, out)


def _bar(axes: "Axes", y: float, estimate: Record, look: Record) -> None:
    """A value and its interval, lying."""
    axes.hlines(y, estimate["low"], estimate["high"], color=look["color"], lw=5, alpha=0.35)
    axes.plot([estimate["value"]], [y], ls="", ms=7, **look)


def _line(
    axes: "Axes",
    x: Sequence[float],
    curve: Record,
    look: Record,
    step: Literal["mid"] | None = None,
) -> None:
    """A curve and its band; in steps, if it moves in steps."""
    style = "steps-mid" if step else "default"
    every = max(1, len(x) // 5)
    axes.plot(x, curve["value"], lw=2, ms=5, markevery=every, drawstyle=style, **look)
    band = {"color": look["color"], "alpha": 0.18, "lw": 0}
    axes.fill_between(x, curve["low"], curve["high"], step=step, **band)
