"""How often `t3d compare` is wrong: the tables of docs/compare.md.

python benchmarks/verdicts.py           about two minutes
"""

import numpy as np

from t3d.study import statistics


def called_different(envs: int, seeds: int, pairs: int = 400) -> tuple[float, float]:
    """The share of equal groups that the interval, and interval and test, call different."""
    stream = np.random.default_rng(0)
    by_interval = by_both = 0
    for _ in range(pairs):
        one, other = stream.standard_normal((2, envs, seeds))
        draws = [statistics.draw(stream, list(group)) for group in (one, other)]
        resampled = statistics.improvement(
            [runs[rows] for runs, rows in zip(one, draws[0])],
            [runs[rows] for runs, rows in zip(other, draws[1])],
        )
        low, high = np.percentile(resampled, [2.5, 97.5])
        different = not low <= 0.5 <= high
        by_interval += different
        by_both += different and statistics.p_value(stream, list(one), list(other)) <= 0.05
    return by_interval / pairs, by_both / pairs


def covered(seeds: int, trials: int = 1000) -> tuple[float, float]:
    """The share of 95 % intervals of IQM and mean that hold the truth, which is 0."""
    stream = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(trials):
        scores = [stream.standard_normal(seeds)]
        draws = statistics.draw(stream, scores)
        for k, statistic in enumerate((statistics.iqm, statistics.mean)):
            _, low, high = statistics.estimate(statistic, scores, draws)
            hits[k] += low <= 0 <= high
    iqm, mean = hits / trials
    return iqm, mean


if __name__ == "__main__":
    print("environments x seeds, called different by the interval alone, and by interval and test")
    for envs, seeds in ((1, 2), (1, 3), (1, 5), (1, 10), (5, 5)):
        alone, both = called_different(envs, seeds)
        print(f"  {envs} x {seeds:<3} {alone:6.1%} {both:6.1%}")
    print("seeds, coverage of the IQM's interval, and of the mean's")
    for seeds in (3, 5, 10, 20):
        iqm, mean = covered(seeds)
        print(f"  {seeds:<3} {iqm:6.1%} {mean:6.1%}")
