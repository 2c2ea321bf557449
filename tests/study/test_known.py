import math

import numpy as np
import pytest
from scipy import stats

from t3d.config import Config
from t3d.study import known as known_runs
from t3d.study.known import known_curves


def test_the_quantiles_are_those_of_students_t() -> None:
    freedom = 2 + np.arange(len(known_runs._T))
    np.testing.assert_allclose(known_runs._T, stats.t.ppf(0.975, freedom), atol=1e-6)


def test_the_band_is_the_prediction_interval_of_the_textbook() -> None:
    for count in range(3, 11):
        values = np.random.default_rng(count).normal(50, 10, count)
        low, high = known_runs.band(np.array([10]), values[:, None])
        error = stats.sem(values) * math.sqrt(count + 1)
        expected = stats.t.interval(0.95, count - 1, values.mean(), error)
        assert (low[0], high[0]) == pytest.approx(expected, rel=1e-6)


def test_nineteen_of_twenty_further_runs_are_in_the_band() -> None:
    within = []
    for *known, run in np.random.default_rng(0).normal(size=(5_000, 6)):
        low, high = known_runs.band(np.array([10]), np.array(known)[:, None])
        within.append(low[0] <= run <= high[0])
    assert np.mean(within) == pytest.approx(0.95, abs=0.01)  # three standard errors


def test_what_runs_do_at_other_times_widens_the_band() -> None:
    steps = np.arange(0, 110, 10)
    still = np.full((5, 11), 1000.0)
    falls = still.copy()
    falls[2, 9] = 0.0  # well before and after
    for runs, low in ((still, 1000), (falls, 900)):
        assert known_runs.band(steps, known_runs.recent(steps, runs))[0][6] <= low
    assert known_runs.band(steps, still)[0][6] == 1000


def test_the_spread_of_runs_is_pooled_around_a_step() -> None:
    steps = np.array([0, 10, 40, 80, 170])
    runs = np.array([[0, 1, 2, 3, 90], [0, 3, 2, 7, 10], [0, 5, 2, 2, 50]], float)
    low, high = known_runs.band(steps, runs)
    spread = np.sqrt((runs[:, 2].var(ddof=1) + runs[:, 3].var(ddof=1)) / 2)
    assert (high - low)[2] / 2 == pytest.approx(stats.t.ppf(0.975, 2) * spread * math.sqrt(4 / 3))


def test_the_band_ends_at_the_best_return_that_is_possible() -> None:
    runs = np.array([[-150.0], [-100.0], [-50.0]])
    low, high = known_runs.band(np.array([10]), runs, highest=0.0)
    assert high == 0.0
    assert low == known_runs.band(np.array([10]), runs)[0] < -150
    for env, highest in (("Pendulum-v1", 0.0), ("HalfCheetah-v5", np.inf)):
        assert known_runs.known_for(Config(env=env)).highest == highest


def test_the_curves_of_the_package_are_valid() -> None:
    every = known_curves()
    assert "Pendulum-v1" in every
    for env, entry in every.items():
        config = Config.from_dict(entry["config"])
        assert config.env == env
        assert "seed" not in entry["config"]
        assert entry["versions"]["gymnasium"]
        assert entry["step"][0] == 0
        assert (np.diff(entry["step"]) > 0).all()
        for returns in entry["runs"].values():
            assert 1 < len(returns) <= len(entry["step"])
            assert np.isfinite(returns).all()
