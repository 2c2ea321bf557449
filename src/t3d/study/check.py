"""Is a run normal? Its learning curve against those of known runs of its environment.

At each step a run is judged by its recent mean: that of its evaluations over the last half of its
steps. Agents of some tasks fall over now and then, and one bad evaluation is no verdict.
"""

from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import Config
from t3d.run.folder import RunFolder
from t3d.run.records import Evaluation, HealthWarning, Json, Restart, Training, of_kind
from t3d.study.evaluations import NO_MATTER, read_evaluations
from t3d.study.known import DECIMALS, KnownRuns, band, known_for, recent
from t3d.study.verdict import OVERESTIMATED, SATURATED, critic_error

# Knobs that leave the curve as it is, or that say where it has points.
_NO_MATTER = NO_MATTER | {"eval_every"}
_MINIMUM_MATCHES = 3  # different evaluations by which a known run is recognised
_PACKAGES = ("t3d", "gymnasium", "mujoco", "box2d")  # whose versions may move a curve


class Curves(NamedTuple):
    """A run and the known runs at the same steps, all as recent means."""

    step: Array  # (points,)
    run: Array  # (points,), nan after its last evaluation
    known: Array  # (runs, points), nan where a run has ended
    low: Array  # (points,), of the band; nan where fewer than three runs are known
    high: Array

    def where(self, points: Array) -> "Curves":
        """These curves at some of their points."""
        return Curves(*(each[..., points] for each in self))


class Check(NamedTuple):
    """The result of a check, and the curves behind it."""

    result: Json
    curves: Curves


class _Stretch(NamedTuple):
    """Neighbouring points with the same verdict."""

    verdict: str  # within, below or above
    first: int
    last: int
    points: int


def check(path: str | Path, all_curves: Json | None = None) -> Check:
    """Compare a run with the known runs of its environment."""
    folder = RunFolder.open(path)
    config = folder.config()
    known = known_for(config, all_curves)
    points = {s: mean for s, mean in read_evaluations(path).points.items() if s >= 0}
    end = max(points, default=0)
    if end == 0:
        raise BadInput(f"{path} has no evaluation after step 0 yet; let it train longer")
    curves = _curves(points, known)
    judged = curves.where(
        (curves.step >= known.first) & np.isfinite(curves.run) & np.isfinite(curves.low)
    )
    if not len(judged.step):
        if end < known.first:
            advice = f"runs are compared from step {known.first:,} on; let it train longer"
            raise BadInput(f"{path} is at step {end:,}, too early to tell: {advice}")
        until = f"the known curves end at step {known.last:,}"
        raise BadInput(f"{path} has no evaluation to compare: {until}")
    result: Json = {"run": str(path), "env": config.env, "seed": config.seed}
    result |= _judgement(judged, known) | {"steps": config.steps, "trained_to": end}
    result["differences"] = _differences(config, folder.about(), known)
    result["same_as_known"] = 0 if result["differences"] else _matches(config, points, known)
    result["hints"] = _hints(folder, result["step"]) if result["verdict"] == "below" else []
    shown = (curves.step >= known.first) & (curves.step <= max(config.steps, end))
    return Check(result, curves.where(shown))


def unexplained(result: Json) -> bool:
    """Whether a run is outside of the band, and its files do not say why."""
    return result["verdict"] != "within" and not result["differences"] and not result["hints"]


def _curves(points: dict[int, float], known: KnownRuns) -> Curves:
    """A run's evaluations and the known runs, until either ends."""
    own, returns = np.array(list(points)), np.array(list(points.values()))
    step = np.concatenate([own, known.step[known.step > own[-1]]])
    run = recent(step, np.concatenate([returns, np.full(len(step) - len(own), np.nan)]))
    others = recent(step, known.at(step))
    return Curves(step, run, others, *band(step, others, known.highest))


def _judgement(judged: Curves, known: KnownRuns) -> Json:
    """Where the run is now, since when, and where it was before."""
    *before, now = _stretches(judged)
    low, high = float(judged.low[-1]), float(judged.high[-1])
    untrained = np.mean([returns[0] for returns in known.returns.values()])
    return {
        "verdict": now.verdict,
        "since": None if now.verdict == "within" else now.first,
        "step": int(judged.step[-1]),
        "score": float(judged.run[-1]),
        "low": low,
        "high": high,
        "curves": int(np.isfinite(judged.known[:, -1]).sum()),
        "untrained_within": bool(low <= untrained <= high),
        # Only stretches of two evaluations or more, and of more than a tenth of all.
        "earlier": [
            {"verdict": each.verdict, "from": each.first, "to": each.last}
            for each in before
            if each.verdict != "within" and each.points > max(1, 0.1 * len(judged.step))
        ],
    }


def _stretches(judged: Curves) -> list[_Stretch]:
    """Where the run was within, below or above the band, in order."""
    step, run, _, low, high = judged
    where = np.where(run < low, "below", np.where(run > high, "above", "within"))
    stretches = []
    for verdict, group in groupby(zip(where.tolist(), step.tolist()), key=lambda pair: pair[0]):
        steps = [at for _, at in group]
        stretches.append(_Stretch(verdict, steps[0], steps[-1], len(steps)))
    return stretches


def _differences(config: Config, about: Json, known: KnownRuns) -> Json:
    """The knobs and versions that may explain another curve: the run's, and the known runs'."""
    differences = {
        knob: {"run": value, "known": getattr(known.config, knob)}
        for knob, value in vars(config).items()
        if knob not in _NO_MATTER and value != getattr(known.config, knob)
    }
    for package in _PACKAGES:
        one, other = about["versions"].get(package, ""), str(known.versions.get(package, ""))
        if one and other and one.split(".")[:2] != other.split(".")[:2]:
            differences[package] = {"run": one, "known": other}
    if about["origin"]:
        differences["start"] = {"run": about["origin"]["path"], "known": "random networks"}
    return differences


def _matches(config: Config, points: dict[int, float], known: KnownRuns) -> int:
    """If a run repeats the known one of its seed, the number of equal evaluations; otherwise 0.

    No evaluation may differ at the steps that both have. Several must be of an agent that learns:
    untrained agents are alike, and so are those that have mastered a task.
    """
    theirs = dict(zip(known.step.tolist(), known.returns.get(config.seed, [])))
    both = points.keys() & theirs.keys()
    different = {theirs[step] for step in both if step >= known.first}
    if config.engine not in ("auto", known.config.engine) or len(different) < _MINIMUM_MATCHES:
        return 0
    equal = all(round(points[step], DECIMALS) == theirs[step] for step in both)
    return len(both) if equal else 0


def _hints(folder: RunFolder, until: int) -> list[str]:
    """What the run itself recorded that may explain why it is below."""
    records = [record for record in folder.records() if record.step <= until]
    warnings: dict[str, str] = {}
    for warning in of_kind(HealthWarning, records):
        if warning.text:
            warnings.setdefault(warning.name, f"at step {warning.step:,} it warned: {warning.text}")
    hints = list(warnings.values())
    if restarts := of_kind(Restart, records):
        last = f"the last at step {restarts[-1].step:,}"
        last += f": it {restarts[-1].why}" if restarts[-1].why else ""
        hints.append(f"restarts of an environment's process: {len(restarts)}, {last}")
    late = [each for each in of_kind(Evaluation, records) if 2 * each.step > until]
    if min(critic_error(each) or 0 for each in late) > OVERESTIMATED:
        what = f"the critic estimates {late[-1].estimated_Q:,.1f} at the start of an episode, and"
        what += f" the discounted return is {late[-1].true_Q:,.1f}"
        hints.append(f"{what}: over-estimation; try a smaller --learning-rate")
    training = of_kind(Training, records)
    share = training[-1].saturation if training else None
    if share is not None and share > SATURATED:
        hints.append(f"{share:.0%} of its last actions are at a limit of their range")
    return hints
