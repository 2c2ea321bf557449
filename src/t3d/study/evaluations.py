"""The evaluations of runs, as learning curves: one per environment and setting, over seeds."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import knobs_of
from t3d.run.folder import RunFolder
from t3d.run.records import Evaluation

# Knobs that leave the curve as it is. When and how long to evaluate decides what it shows.
NO_MATTER = {"env", "seed", "steps"} | knobs_of("records", "machine")
NO_MATTER -= {"eval_every", "eval_episodes"}

Setting = tuple[tuple[str, Any], ...]  # the preset, and the knobs that affect the curve


class Evaluations(NamedTuple):
    """The evaluations of one run, and the setting that it was trained with."""

    path: Path
    env: str
    seed: int
    setting: Setting
    points: dict[int, float]  # the mean return at each step
    seconds: dict[int, float]  # the time of each evaluation


class Curve:
    """The evaluations of runs that differ only in their seed."""

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


def read_evaluations(path: str | Path) -> Evaluations:
    """Read the evaluations of a run."""
    folder = RunFolder.open(path)
    config = folder.config()
    # Only these numbers are kept: a record may list very many returns.
    numbers = [(each.step, each.mean, each.seconds) for each in folder.records(Evaluation)]
    numbers.sort(key=lambda each: each[0])
    points = {step: mean for step, mean, _ in numbers}
    seconds = {step: second for step, _, second in numbers}
    if not points:
        raise BadInput(f"{path} has no evaluation yet; let it train longer")
    knobs = ((name, value) for name, value in vars(config).items() if name not in NO_MATTER)
    about = folder.about()
    start = [("from", "another run")] if about["origin"] else []
    setting = (("preset", str(about["preset"])), *start, *knobs)
    return Evaluations(folder.path, config.env, config.seed, setting, points, seconds)


def differing_knobs(settings: Iterable[Setting]) -> set[str]:
    """The names of the knobs in which settings differ."""
    each = [set(setting) for setting in settings]
    shared = set.intersection(*each)
    return {name for setting in each for name, _ in setting - shared}


def describe(setting: Setting, names: set[str]) -> str:
    """A setting in words, by some of its knobs."""
    return ", ".join(f"{name} {value}" for name, value in setting if name in names)


def curves(runs: Sequence[str | Path]) -> dict[str, list[Curve]]:
    """Curves by environment. Runs with equal knobs, the seed aside, share a curve."""
    # By environment and setting: the points of every seed. A seed that appears twice is the same
    # run twice, and counts once.
    groups: dict[str, dict[Setting, dict[int, dict[int, float]]]] = defaultdict(dict)
    for path in runs:
        run = read_evaluations(path)
        group = groups[run.env].setdefault(run.setting, {})
        if len(run.points) > len(group.get(run.seed, {})):
            group[run.seed] = run.points
    return {env: _curves_of(env, members) for env, members in groups.items()}


def _curves_of(env: str, groups: dict[Setting, dict[int, dict[int, float]]]) -> list[Curve]:
    """One curve per setting, labelled by the knobs in which it differs from the others."""
    names = {"preset"} | differing_knobs(groups)
    lines = []
    for setting, seeds in groups.items():
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        if len(steps) < 2 <= max(len(points) for points in seeds.values()):
            advice = "plot them separately"
            raise BadInput(f"the runs on {env} were evaluated at different steps; {advice}")
        returns = np.array([[points[step] for step in steps] for points in seeds.values()])
        lines.append(Curve(describe(setting, names), list(seeds), np.array(steps), returns))
    return lines
