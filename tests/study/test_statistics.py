import numpy as np
import pytest
from scipy import stats

from t3d.base.numbers import Array
from t3d.base.randomness import generator
from t3d.study import statistics


def some(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(3, 2, shape)


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 10, 13])
def test_the_iqm_is_scipys_trimmed_mean(runs: int) -> None:
    tasks = list(some(3, runs))
    expected = stats.trim_mean(tasks, 0.25, axis=None)
    assert statistics.iqm(tasks) == pytest.approx(expected, rel=1e-12)
    # Axes before the runs stay.
    many = list(some(3, 6, runs))
    expected = stats.trim_mean(np.concatenate(many, axis=1), 0.25, axis=1)
    np.testing.assert_allclose(statistics.iqm(many), expected, rtol=1e-12)


def test_aggregates_are_those_of_rliable() -> None:
    """By hand, as in rliable's metrics.py, where rows are runs and columns are tasks."""
    tasks = [np.array([1.0, 3.0, 8.0]), np.array([0.0, 0.0, 6.0]), np.array([10.0, 20.0, 30.0])]
    assert statistics.mean(tasks) == pytest.approx((4 + 2 + 20) / 3)
    assert statistics.median(tasks) == pytest.approx(4)
    # Of nine sorted runs, two go at either end: 0 0 | 1 3 6 8 10 | 20 30.
    assert statistics.iqm(tasks) == pytest.approx((1 + 3 + 6 + 8 + 10) / 5)
    assert statistics.share_above(tasks, 6.0) == pytest.approx(4 / 9)  # above, not at
    # Of one task, the median is that of its runs.
    assert statistics.median(tasks[:1]) == 3


def test_improvement_is_mann_whitneys_u() -> None:
    mine = [some(5), np.array([1.0, 2.0, 2.0, 3.0])]
    theirs = [some(7, seed=1), np.array([2.0, 2.0, 4.0])]
    shares = []
    for one, other in zip(mine, theirs):
        u = stats.mannwhitneyu(one, other).statistic
        shares.append(u / (len(one) * len(other)))
    assert statistics.improvement(mine, theirs) == pytest.approx(np.mean(shares), rel=1e-12)
    # By hand: of 4 x 3 pairs, 3 beats 2 twice and four are ties.
    assert shares[1] == pytest.approx((2 + 4 / 2) / 12)
    back = statistics.improvement(theirs, mine)
    assert back == pytest.approx(1 - np.mean(shares), rel=1e-12)


def test_the_interval_of_the_mean_is_scipys() -> None:
    runs = some(12)
    draws = statistics.draw(generator(0, "bootstrap"), [runs])
    value, low, high = statistics.estimate(statistics.mean, [runs], draws)
    assert value == pytest.approx(runs.mean())
    theirs = stats.bootstrap(
        (runs,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert low == pytest.approx(theirs.low, abs=0.06 * width)
    assert high == pytest.approx(theirs.high, abs=0.06 * width)


def test_resamples_stay_within_environments() -> None:
    """Environments that differ, but whose runs do not: nothing to be unsure of."""
    tasks = [np.full(4, 1.0), np.full(6, 100.0)]
    draws = statistics.draw(generator(0, "bootstrap"), tasks)
    assert [taken.shape for taken in draws] == [(2000, 4), (2000, 6)]
    value, low, high = statistics.estimate(statistics.mean, tasks, draws)
    assert value == low == high == 50.5


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """A percentile bootstrap of ten normal runs covers somewhat less than 95 %."""
    draws = statistics.draw(generator(0, "bootstrap"), [np.zeros(10)])
    samples = np.random.default_rng(2).normal(size=(400, 10))
    for statistic in (statistics.iqm, statistics.mean):
        intervals = [statistics.estimate(statistic, [runs], draws)[1:] for runs in samples]
        covered = np.mean([low <= 0 <= high for low, high in intervals])
        assert 0.86 <= covered <= 0.97


def test_the_p_value_is_the_exact_one_of_scipy() -> None:
    mine, theirs = some(5), some(5, seed=3) + 2
    p = statistics.p_value(generator(0, "permutation"), [mine], [theirs])
    exact = stats.mannwhitneyu(mine, theirs, method="exact").pvalue
    assert 0.01 < exact < 0.5
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 2000))
    # Three seeds that do not overlap are one of 20 ways to deal them out, or its mirror.
    p = statistics.p_value(generator(0, "permutation"), [np.arange(3.0)], [np.arange(3.0) + 9])
    assert p == pytest.approx(0.1, abs=0.03)


def test_equal_groups_are_rarely_called_different() -> None:
    """The test errs one time in twenty at most, also with few runs and several environments."""
    stream = np.random.default_rng(4)
    for envs, runs in ((1, 4), (1, 5), (3, 2)):
        errors = 0
        for number in range(200):
            mine, theirs = stream.normal(size=(2, envs, runs))
            p = statistics.p_value(generator(number, "permutation"), list(mine), list(theirs))
            errors += p <= 0.05
        assert errors <= 20
