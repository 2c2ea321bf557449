"""Statistics of a few runs, after Agarwal et al. 2021, "Deep reinforcement learning at the edge of
the statistical precipice": robust means, intervals over seeds, and the probability of improvement.

Scores are one array per environment, whose last axis is the runs. Functions reduce that axis and
keep those before it, such as the axis of the resamples.
"""

from collections.abc import Callable, Sequence

import numpy as np

from t3d.base.numbers import Array

Scores = Sequence[Array]
RESAMPLES = 2000


def iqm(scores: Scores) -> Array:
    """The interquartile mean of all runs: a quarter, rounded down, is cut off at either end."""
    runs = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    return np.asarray(runs[..., cut : runs.shape[-1] - cut].mean(axis=-1))


def mean(scores: Scores) -> Array:
    """The mean over environments of their means."""
    return np.asarray(np.mean([runs.mean(axis=-1) for runs in scores], axis=0))


def median(scores: Scores) -> Array:
    """The median over environments of their means; of the runs, if there is one environment."""
    if len(scores) == 1:
        return np.asarray(np.median(scores[0], axis=-1))
    return np.asarray(np.median([runs.mean(axis=-1) for runs in scores], axis=0))


def share_above(scores: Scores, tau: float) -> Array:
    """The share of runs that score more than `tau`: a point of the performance profile."""
    return np.asarray((np.concatenate(scores, axis=-1) > tau).mean(axis=-1))


def improvement(scores: Scores, over: Scores) -> Array:
    """How often a run of one group beats one of another, over environments. A tie is half a win."""
    chances = []
    for mine, theirs in zip(scores, over):
        mine, theirs = mine[..., :, None], theirs[..., None, :]
        chances.append(((mine > theirs) + 0.5 * (mine == theirs)).mean(axis=(-2, -1)))
    return np.asarray(np.mean(chances, axis=0))


def draw(stream: np.random.Generator, scores: Scores) -> list[Array]:
    """The runs of each resample: as many as there are, within each environment."""
    sizes = [runs.shape[-1] for runs in scores]
    return [stream.integers(size, size=(RESAMPLES, size)) for size in sizes]


def estimate(statistic: Callable[[Scores], Array], scores: Scores, draws: Sequence[Array]) -> Array:
    """A statistic and its stratified bootstrap interval: the value, and the middle 95 %."""
    resampled = statistic([runs[taken] for runs, taken in zip(scores, draws)])
    return np.array([statistic(scores), *np.percentile(resampled, [2.5, 97.5])])


def p_value(stream: np.random.Generator, scores: Scores, over: Scores) -> float:
    """How often chance alone makes two groups differ as much, by `improvement`, as they do.

    A permutation test: within each environment, runs are assigned to the two groups at random.
    Unlike an interval from few runs, it is not fooled by groups that happen not to overlap.
    """
    mine, theirs = [], []
    for one, other in zip(scores, over):
        both = np.tile(np.concatenate([one, other]), (RESAMPLES, 1))
        shuffled = stream.permuted(both, axis=1)
        mine.append(shuffled[:, : len(one)])
        theirs.append(shuffled[:, len(one) :])
    difference = abs(improvement(scores, over) - 0.5) - 1e-9  # equal but for rounding is equal
    as_large = np.count_nonzero(abs(improvement(mine, theirs) - 0.5) >= difference)
    return float((1 + as_large) / (1 + RESAMPLES))
