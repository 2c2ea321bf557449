"""`t3d check`: is a run normal? Its learning curve beside known ones of its environment.

A curve counts, at each step, by the mean of its evaluations in the last half of its steps: agents
of some tasks fall over now and then, and what lasts is what matters. Known runs are several seeds
of one setting, in curves.json, which benchmarks/draw_results.py writes.
"""

import math
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import Config, knobs_of
from t3d.run.folder import Record, RunFolder, finite
from t3d.show import plots
from t3d.show.compare import COLOURS
from t3d.show.report import FAR_TOO_MUCH, SATURATED, critic_error

_FEWEST = 3  # runs that make a band
# Student's t: 97.5 % are below, from 2 degrees of freedom on. Beyond, the last is a little wide.
_T = np.array([4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157])
_LEAST_SD = 0.01  # of the mean curve's range: where all runs reach the same, a point is no alarm
# Knobs that leave the curve as it is, or that say where it has points.
_NO_MATTER = plots.NO_MATTER | {"eval_every"}
# Knobs that change what a step and a return are.
_OTHER_TASK = sorted(knobs_of("task") - {"env", "seed", "steps"})
DECIMALS = 3  # of a known evaluation
_TELLING = 3  # different evaluations by which a known run is recognised
_PACKAGES = ("t3d", "gymnasium", "mujoco", "box2d")  # whose versions may move a curve


class Known(NamedTuple):
    """The known runs of an environment."""

    config: Config
    versions: Record
    step: Array  # (points,)
    returns: dict[int, list[float]]  # of each seed, at the first of these steps or at all

    @property
    def first(self) -> int:
        """The first step at which a run is judged: when some learning is done, and was measured."""
        return max(2 * self.config.random_steps, int(self.step[1]))

    def at(self, step: Array) -> Array:
        """Every run's returns at other steps, on straight lines; nan where it has none."""
        nowhere: Any = {"left": np.nan, "right": np.nan}
        runs = self.returns.values()
        return np.array([np.interp(step, self.step[: len(r)], r, **nowhere) for r in runs])


class Checked(NamedTuple):
    """What was found, and the curves behind it, all as recent means."""

    told: Record
    step: Array  # (points,)
    run: Array  # (points,), nan after its last evaluation
    known: Array  # (runs, points), nan where a run has ended
    low: Array  # (points,), nan where fewer than three runs are known
    high: Array


def known_for(config: Config, every: Record | None = None) -> Known:
    """The known runs that a run with this config can be compared with."""
    every = known_curves() if every is None else every
    found = every.get(config.env)
    if found is None:
        advice = "t3d compare does so with runs of your own"
        have = ", ".join(every)
        raise BadInput(f"no curves of {config.env} are known, only of {have}; {advice}")
    known = Known(
        Config.from_dict(found["config"]),
        found["versions"],
        np.array(found["step"]),
        {int(seed): returns for seed, returns in found["runs"].items()},
    )
    if len(known.returns) < _FEWEST:
        count = len(known.returns)
        what = f"too few curves of {config.env} are known"
        raise BadInput(f"{what}: {count}; expected {_FEWEST} or more")
    for knob in _OTHER_TASK:
        mine, theirs = getattr(config, knob), getattr(known.config, knob)
        if mine != theirs:
            why = "its steps and returns cannot be compared with theirs"
            raise BadInput(f"{knob} is {mine}, the known runs' is {theirs}: {why}")
    return known


def known_curves() -> Record:
    """The curves that come with the package, by environment."""
    return files.read_json(Path(__file__).with_name("curves.json"))


def check(path: str | Path, every: Record | None = None) -> Checked:
    """Compare a run with the known ones."""
    folder = RunFolder.open(path)
    config = folder.config()
    known = known_for(config, every)
    points = {s: mean for s, mean in plots.evaluated(path).points.items() if s >= 0}
    if max(points, default=0) == 0:
        raise BadInput(f"{path} has no evaluation after step 0 yet; let it train longer")
    mine, returns = np.array(list(points)), np.array(list(points.values()))
    step = np.concatenate([mine, known.step[known.step > mine[-1]]])
    run = recent(step, np.concatenate([returns, np.full(len(step) - len(mine), np.nan)]))
    others = recent(step, known.at(step))
    low, high = band(step, others)
    compared = np.flatnonzero((step >= known.first) & np.isfinite(run) & np.isfinite(low))
    if not len(compared):
        if mine[-1] < known.first:
            advice = f"runs are compared from step {known.first:,} on; let it train longer"
            raise BadInput(f"{path} is at step {mine[-1]:,}, too early to tell: {advice}")
        end = sorted(map(len, known.returns.values()))[-_FEWEST]
        until = f"the known curves end at step {known.step[end - 1]:,}"
        raise BadInput(f"{path} has no evaluation to compare: {until}")
    now = compared[-1]
    stretches = _stretches(step[compared], run[compared], low[compared], high[compared])
    *before, (verdict, since, _, _) = stretches
    told: Record = {"run": str(path), "env": config.env, "seed": config.seed, "verdict": verdict}
    told |= {"since": None if verdict == "within" else since, "step": int(step[now])}
    told["steps"] = config.steps
    told |= {"score": float(run[now]), "low": float(low[now]), "high": float(high[now])}
    told |= {"curves": int(np.isfinite(others[:, now]).sum()), "trained_to": int(mine[-1])}
    untrained = np.mean([returns[0] for returns in known.returns.values()])
    told["untrained_within"] = bool(low[now] <= untrained <= high[now])
    # Two evaluations or more, and more than a tenth of all, are worth a word.
    told["earlier"] = [
        {"verdict": where, "from": first, "to": last}
        for where, first, last, count in before
        if where != "within" and count > max(1, 0.1 * len(compared))
    ]
    told["differences"] = _differences(config, folder.about(), known)
    told["same_as_known"] = 0 if told["differences"] else _same(config, points, known)
    told["hints"] = _hints(folder, int(step[now])) if verdict == "below" else []
    shown = (step >= known.first) & (step <= max(config.steps, mine[-1]))  # what was to come, too
    return Checked(told, *(each[..., shown] for each in (step, run, others, low, high)))


def recent(step: Array, returns: Array) -> Array:
    """At each step, the mean of the evaluations in the last half of the steps until then."""
    first = np.minimum(np.searchsorted(2 * step, step, side="right"), np.arange(len(step)))
    means = [returns[..., a : b + 1].mean(axis=-1) for b, a in enumerate(first)]
    return np.stack(means, axis=-1)


def band(step: Array, known: Array) -> tuple[Array, Array]:
    """Where 95 % of further runs like these (runs, points) are, if they are spread normally.

    How far apart runs are is taken from half as many steps to twice as many: a run that falls over
    may do so at any time, also when none of a few others does.
    """
    there = np.isfinite(known)
    count = there.sum(axis=0)
    enough = count >= _FEWEST
    mean = np.where(there, known, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(there, (known - mean) ** 2, 0).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1)
    half = np.full(len(step), np.nan)
    for place in np.flatnonzero(enough):
        near = enough & (2 * step >= step[place]) & (step <= 2 * step[place])
        spread = max(np.sqrt(variance[near].mean()), _LEAST_SD * np.ptp(mean[enough]))
        t = _T[min(count[place] - _FEWEST, len(_T) - 1)]
        half[place] = t * spread * np.sqrt(1 + 1 / count[place])
    return mean - half, mean + half


def _stretches(step: Array, run: Array, low: Array, high: Array) -> list[tuple[str, int, int, int]]:
    """Where the run was within, below or above: from and to which step, in how many points."""
    where = np.where(run < low, "below", np.where(run > high, "above", "within"))
    found = []
    for verdict, group in groupby(zip(where.tolist(), step.tolist()), key=lambda pair: pair[0]):
        steps = [at for _, at in group]
        found.append((verdict, steps[0], steps[-1], len(steps)))
    return found


def _differences(config: Config, about: Record, known: Known) -> Record:
    """The knobs and versions that may explain another curve: the run's, and the known runs'."""
    mine, theirs = vars(config), vars(known.config)
    told = {
        knob: {"run": value, "known": theirs[knob]}
        for knob, value in mine.items()
        if knob not in _NO_MATTER and value != theirs[knob]
    }
    versions = found if isinstance(found := about.get("versions"), dict) else {}
    for package in _PACKAGES:
        one, other = str(versions.get(package, "")), str(known.versions.get(package, ""))
        if one and other and one.split(".")[:2] != other.split(".")[:2]:
            told[package] = {"run": one, "known": other}
    return told


def _same(config: Config, points: dict[int, float], known: Known) -> int:
    """If a run is the known one of its seed again, how many evaluations say so; otherwise 0.

    That is where no evaluation differs at the steps that both have. Several must be of an agent on
    its way: untrained ones are alike, and so are those that have all that there is to have.
    """
    theirs = dict(zip(known.step.tolist(), known.returns.get(config.seed, [])))
    both = points.keys() & theirs.keys()
    told_by = {theirs[step] for step in both if step >= known.first}
    if config.engine not in ("auto", known.config.engine) or len(told_by) < _TELLING:
        return 0
    same = all(round(points[step], DECIMALS) == theirs[step] for step in both)
    return len(both) if same else 0


def _hints(folder: RunFolder, until: int) -> list[str]:
    """What the run itself recorded that may be why it is below."""
    records: dict[str, list[Record]] = {}
    for record in folder.metrics():
        if int(record["step"]) <= until:
            records.setdefault(record["kind"], []).append(record)
    hints: list[str] = []
    with suppress(KeyError, TypeError, ValueError, ArithmeticError):  # an odd record is no hint
        warned: dict[str, str] = {}
        for r in records.get("warning", []):
            said = f"at step {int(r['step']):,} it warned: {r['text']}"
            warned.setdefault(str(r["name"]), said)
        hints += warned.values()
        if restarts := records.get("restart"):
            last = f"the last at step {int(restarts[-1]['step']):,}: it {restarts[-1]['why']}"
            hints.append(f"restarts of an environment's process: {len(restarts)}, {last}")
        evaluation = records["evaluation"][-1]
        late = [each for each in records["evaluation"] if 2 * int(each["step"]) > until]
        if min((critic_error(each) or 0) for each in late) > FAR_TOO_MUCH:
            expected, got = finite(evaluation["estimated_Q"]), finite(evaluation["true_Q"])
            what = f"the critic expects {expected:,.1f} where episodes begin, and {got:,.1f} comes"
            hints.append(f"{what}: over-estimation; try a smaller --learning-rate")
        train = records.get("train", [{}])[-1]
        if (train.get("saturation") or 0) > SATURATED:
            hints.append(
                f"{train['saturation']:.0%} of its last actions are at an end of their range"
            )
    return hints


def unexplained(told: Record) -> bool:
    """Whether a run is outside, and its files do not say why."""
    return told["verdict"] != "within" and not told["differences"] and not told["hints"]


def lines(told: Record) -> list[str]:
    """What was found, in words: the verdict first, then what to look at."""
    verdict, step, low, high = (told[name] for name in ("verdict", "step", "low", "high"))
    digits = max(0, 1 - math.floor(math.log10(high - low))) if high > low else 1
    score, low, high = (f"{value:,.{digits}f}" for value in (told["score"], low, high))
    said = [
        f"{told['env']}, seed {told['seed']}, at step {step:,} of {told['steps']:,}:"
        f" {verdict}{_since(told)}. Its {score}"
        f" (mean of its evaluations after step {step // 2:,}) is {verdict} {low} to {high}, the"
        f" 95 % band of {told['curves']} known runs."
    ]
    if told["untrained_within"]:
        said.append(
            "That says little: known runs differ so much here that one that has learned nothing is"
            " within, too."
        )
    if told["same_as_known"]:
        said.append(
            f"It is one of these: at all {told['same_as_known']} steps that both have, its"
            f" evaluation is that of the known run of seed {told['seed']}, to the last digit kept."
        )
    said += [
        f"It was {each['verdict']} from step {each['from']:,} to {each['to']:,}."
        for each in told["earlier"]
    ]
    if told["trained_to"] > step:
        ends = "where the known runs end; what came after is not judged"
        said.append(f"It went on to step {told['trained_to']:,}, beyond {step:,}, {ends}.")
    for name, values in told["differences"].items():
        run, known = (_said(values[which]) for which in ("run", "known"))
        said.append(f"- this differs: {name} is {run}, the known runs' is {known}")
    said += [f"- {hint}" for hint in told["hints"]]
    if unexplained(told):
        said.append(
            "- nothing in its files sets it apart from the known runs, and about one normal run in"
            " 20 is outside by chance; fresh seeds tell"
        )
    return said


def _since(told: Record) -> str:
    return f" since step {told['since']:,}" if told["since"] not in (None, told["step"]) else ""


def _said(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def draw(checked: Checked, out: Path) -> list[Path]:
    """Draw the run over the known ones as PNG and SVG; returns the files."""
    told, step, run, known, low, high = checked
    figure = plots.new_figure(8, 4.8)
    axes = figure.add_subplot()
    blue, red = COLOURS[:2]
    enough = np.isfinite(low)
    axes.fill_between(step, low, high, color=blue, alpha=0.15, lw=0, label="95 % band")
    for number, each in enumerate(known):
        name = None if number else f"the {len(known)} known runs"
        axes.plot(step, each, color=blue, lw=0.7, alpha=0.6, label=name)
    mean = np.nanmean(known[:, enough], axis=0)
    axes.plot(step[enough], mean, color=blue, lw=1.8, label="their mean")
    axes.plot(step, run, color="black", lw=2.5, label=f"this run, seed {told['seed']}")
    outside = enough & ((run < low) | (run > high))
    if outside.any():
        marks: Any = {"color": red, "ls": "", "marker": "o", "ms": 5, "zorder": 3}
        axes.plot(step[outside], run[outside], label="outside", **marks)
    # Where few runs differ a lot, the band is wide; the curves are what is to be seen.
    seen = np.concatenate([run, known.ravel(), [told["low"], told["high"]]])
    margin = 0.05 * np.nanmax(seen) - 0.05 * np.nanmin(seen) or 1.0
    axes.set(ylim=(np.nanmin(seen) - margin, np.nanmax(seen) + margin))
    axes.set(title=f"{told['env']}, at step {told['step']:,}: {told['verdict']}{_since(told)}")
    axes.set(xlabel="environment steps", ylabel="evaluation return\n(mean of the last half)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best")
    return plots.save(figure, out)
