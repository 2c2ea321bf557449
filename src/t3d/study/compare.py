"""Groups of runs compared: which is better, by how much, and how certain that is."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.run.records import Json
from t3d.study import statistics
from t3d.study.evaluations import Evaluations
from t3d.study.groups import Group, cautions, common_envs, common_steps, read_groups, runs_on

_SHARES = np.linspace(0, 1, 101)  # where curves have points, if not at the evaluations
_SCORE = "mean return of the last 10 % of evaluations, at least one"
_SCALE = (
    "0 is the mean return before training, 1 that of the best group, on each environment (if a"
    " group fell by more than any rose, -1 is that of the worst)"
)
ESTIMATES = {"IQM": statistics.iqm, "median": statistics.median, "mean": statistics.mean}
SIGNIFICANT = 0.05  # a p-value up to this


def compare(arguments: Sequence[str]) -> Json:
    """All numbers of a comparison: each group by itself, and against the first."""
    groups, notes = read_groups(arguments)
    envs = common_envs(groups, notes)
    steps = {env: common_steps(env, runs_on(env, groups), notes) for env in envs}
    notes += cautions(groups, envs)
    several = len(envs) > 1
    same_steps = all(each == steps[envs[0]] for each in steps.values())
    facts, measures = {}, []
    for env in envs:
        facts[env], values = _measure(env, groups, steps[env], same_steps, several)
        measures.append(values)
    # By group, one array per environment: scores (runs,), and curves (points, runs).
    scores, by_steps, by_seconds = (
        {label: [values[label][kind] for values in measures] for label in groups}
        for kind in ("score", "steps", "seconds")
    )
    draws = {
        label: statistics.draw(generator(0, "bootstrap", number), scores[label])
        for number, label in enumerate(groups)
    }
    taus = _thresholds(scores)
    seconds = 100 if several else facts[envs[0]]["seconds"]
    return {
        "environments": facts,
        "score": _SCORE,
        "scale": _SCALE if several else "returns as they are",
        "baseline": next(iter(groups)),
        "resamples": statistics.RESAMPLES,
        "groups": {
            label: {
                "scores": _by_seed(group, envs, scores[label]),
                **_estimates(scores[label], draws[label], taus),
                "by_steps": _curve(by_steps[label], draws[label]),
                "by_seconds": _curve(by_seconds[label], draws[label]),
            }
            for label, group in groups.items()
        },
        "improvement": _improvements(scores, draws),
        "notes": notes,
        "taus": taus.tolist(),
        # Where environments differ in how long they take, curves are over shares of that.
        "steps": {
            "x": steps[envs[0]] if same_steps else list(100 * _SHARES),
            "percent": not same_steps,
        },
        "seconds": {"x": list(seconds * _SHARES), "percent": several},
    }


def _measure(
    env: str, groups: dict[str, Group], steps: list[int], same_steps: bool, several: bool
) -> tuple[Json, dict[str, dict[str, Array]]]:
    """How an environment is scored; and by group, its runs' scores and their curves."""
    runs = runs_on(env, groups)
    end, last = steps[-1], steps[-max(1, len(steps) // 10) :]
    seconds = min(run.seconds[end] for run in runs)
    grid = np.array(steps) if same_steps else end * _SHARES

    def values(run: Evaluations) -> dict[str, Array]:
        means, times = list(run.points.values()), list(run.seconds.values())
        return {
            "score": np.asarray(np.mean([run.points[step] for step in last])),
            "steps": np.interp(grid, list(run.points), means),
            "seconds": np.interp(seconds * _SHARES, times, means),
        }

    measures = {label: [values(run) for run in group[env]] for label, group in groups.items()}
    zero, unit = 0.0, 1.0
    if several:
        zero = float(np.mean([run.points[0] for run in runs]))
        means = [float(np.mean([run["score"] for run in each])) for each in measures.values()]
        unit = max(abs(mean - zero) for mean in means) or 1.0
    fact = {"steps": end, "seconds": seconds, "scored_at": last, "zero": zero, "unit": unit}
    return fact, {
        label: {
            kind: (np.stack([run[kind] for run in each], axis=-1) - zero) / unit for kind in each[0]
        }
        for label, each in measures.items()
    }


def _by_seed(group: Group, envs: Sequence[str], scores: Sequence[Array]) -> Json:
    """The score of every run, by environment and seed."""
    return {
        env: {str(run.seed): score for run, score in zip(group[env], runs.tolist())}
        for env, runs in zip(envs, scores)
    }


def _thresholds(scores: dict[str, list[Array]]) -> Array:
    """Scores from a little below the lowest to a little above the highest, for the profile."""
    every = np.concatenate([runs for each in scores.values() for runs in each])
    margin = 0.03 * (np.ptp(every) or 1.0)
    return np.linspace(every.min() - margin, every.max() + margin, len(_SHARES))


def _estimates(scores: Sequence[Array], draws: Sequence[Array], taus: Array) -> Json:
    """The estimates of a group, and its performance profile, with their intervals."""
    profile = [
        statistics.estimate(partial(statistics.share_above, tau=tau), scores, draws) for tau in taus
    ]
    estimates = {
        name: _named(statistics.estimate(statistic, scores, draws))
        for name, statistic in ESTIMATES.items()
    }
    return estimates | {"profile": _named(profile)}


def _named(estimates: Any) -> Json:
    """An estimate, or those along a curve, as one entry for each of value, low and high."""
    return dict(zip(("value", "low", "high"), np.array(estimates).T.tolist()))


def _curve(lines: Sequence[Array], draws: Sequence[Array]) -> Json:
    """The interquartile mean at each point, with its interval."""
    points = ([line[point] for line in lines] for point in range(len(lines[0])))
    return _named([statistics.estimate(statistics.iqm, runs, draws) for runs in points])


def _improvements(scores: dict[str, list[Array]], draws: dict[str, list[Array]]) -> Json:
    """How likely a run of each group beats one of the first, and whether that is significant."""
    improvements: Json = {}
    first, *others = scores
    envs = len(scores[first])
    for number, label in enumerate(others, start=1):
        estimate = _named(
            statistics.estimate(
                lambda both: statistics.improvement(both[:envs], both[envs:]),
                scores[label] + scores[first],
                draws[label] + draws[first],
            )
        )
        p = statistics.p_value(generator(0, "permutation", number), scores[label], scores[first])
        # The interval alone would call equal groups different too often: from three seeds each on
        # one environment, one time in six. The test keeps that to one in twenty.
        verdict = "not significantly different"
        if p <= SIGNIFICANT and not estimate["low"] <= 0.5 <= estimate["high"]:
            verdict = "better" if estimate["value"] > 0.5 else "worse"
        improvements[label] = {**estimate, "p": p, "verdict": verdict}
    return improvements
