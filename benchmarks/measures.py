"""Scores of learning curves, and tests that compare groups of runs."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
from scipy import stats

from results import Run, curve, group_of, plan, stored_runs, without
from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.study import statistics
from t3d.study.evaluations import Curve

MILESTONES = (100_000, 300_000, 1_000_000)
PARTS = ("twins", "delay", "smoothing")


def score_at(line: Curve, end: int) -> Array:
    """Of each run, the mean of its evaluations in the last tenth of the steps up to `end`."""
    last = (line.step > 0.9 * end) & (line.step <= end)
    return np.asarray(line.returns[:, last].mean(axis=1))


def overall(line: Curve) -> Array:
    """Of each run, the mean of all its evaluations, except the one before training."""
    return np.asarray(line.returns[:, line.step > 0].mean(axis=1))


def late(line: Curve) -> Array:
    """Of each run, the mean over the second half of its steps."""
    return np.asarray(line.returns[:, line.step > line.step[-1] / 2].mean(axis=1))


def q_error(label: str, runs: list[Run]) -> Curve:
    """The critic's estimate minus the true return."""
    line = curve(label, runs, "estimated_Q")
    line.returns = line.returns - curve("", runs, "true_Q").returns
    return line


def minutes(runs: list[Run], end: int) -> float:
    """The median wall clock of runs up to a step."""
    seconds = [curve("", [run], "seconds") for run in runs]
    return float(np.median([up_to(line, end).returns[0, -1] for line in seconds]) / 60)


def interval(scores: Array) -> tuple[float, ...]:
    """The IQM of runs, and the ends of its 95 % interval."""
    groups, size = [np.asarray(scores)], len(scores)
    if size <= 5:  # few enough to use every possible resample
        draws = [np.array(list(itertools.product(range(size), repeat=size)))]
    else:
        draws = statistics.draw(generator(0, "bootstrap"), groups)
    return tuple(statistics.estimate(statistics.iqm, groups, draws).tolist())


def p_value(one: Array, two: Array) -> float:
    """An exact permutation test: how often chance alone makes two means differ as much."""

    def difference(first: Array, second: Array) -> float:
        return float(abs(first.mean() - second.mean()))

    test = stats.permutation_test(
        (one, two), difference, vectorized=False, n_resamples=np.inf, alternative="greater"
    )
    return float(test.pvalue)


def verdict(one: Array, two: Array, names: tuple[str, str]) -> str:
    """The result of a test of two groups, in words."""
    splits = math.comb(len(one) + len(two), len(one))
    if (1 + (len(one) == len(two))) / splits > 0.05:
        return f"{len(one)} against {len(two)} runs are too few for a test"
    p = p_value(one, two)
    if p > 0.05:
        return f"p = {p:.3f}: not significantly different"
    return f"p = {p:.3f}: {names[int(one.mean() < two.mean())]} is higher"


def up_to(line: Curve, end: int) -> Curve:
    """The first part of a curve."""
    within = line.step <= end
    return Curve(line.label, line.seeds, line.step[within], line.returns[:, within])


def reached(runs: list[Run], end: int) -> list[Run]:
    """The runs that were trained that far."""
    return [run for run in runs if run["evaluations"]["step"][-1] >= end]


def furthest(runs: list[Run], minimum: int) -> int:
    """The last milestone that at least `minimum` runs reached, or 0."""
    return max([0, *(end for end in MILESTONES if len(reached(runs, end)) >= minimum)])


def campaign_order() -> list[tuple[str, list[Run]]]:
    """The tasks of the campaign and their runs, in the order of the sweeps."""
    runs = stored_runs("campaign")
    planned = [config.env for every, _ in plan().values() for config in every]
    return [(env, runs[env]) for env in dict.fromkeys(planned) if env in runs]


def ablations() -> dict[str, list[Run]]:
    """The complete ablations by environment, up to the steps that all of their runs have."""
    complete = {}
    for spec, (every, left) in plan().items():
        if group_of(spec) == "ablation" and not left:
            env, end = every[0].env, every[0].steps
            runs = stored_runs("ablation")[env]
            if all(without(run["config"]) for run in runs):  # full TD3 is in the campaign
                runs += reached(stored_runs("campaign")[env], end)
            complete[env] = [_cut(run, end) for run in runs]
    return complete


def _cut(run: Run, end: int) -> Run:
    """The first part of a run."""
    count = sum(step <= end for step in run["evaluations"]["step"])
    return run | {"evaluations": {name: row[:count] for name, row in run["evaluations"].items()}}


def by_variant(runs: list[Run]) -> dict[tuple[str, ...], list[Run]]:
    """The runs of an ablation by the parts they lack, full TD3 first."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(without(run["config"]), []).append(run)
    return dict(sorted(groups.items(), key=lambda group: (len(group[0]), group[0])))


def variant_name(lacking: Iterable[str]) -> str:
    """The name of TD3 without some parts."""
    names = [f"no {part}" for part in lacking]
    return "none of the three" if len(names) == len(PARTS) else ", ".join(names) or "TD3"


def by_engine(runs: list[Run]) -> list[Curve]:
    """One curve for each engine."""
    engines = sorted({run["config"]["engine"] for run in runs})
    return [
        curve(f"T3D, {engine}", [run for run in runs if run["config"]["engine"] == engine])
        for engine in engines
    ]
