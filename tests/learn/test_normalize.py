from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import t3d
from helpers.runs import TINY, same_bits, saved_arrays
from t3d.learn.normalize import Normalizer

numbers = st.floats(-1e3, 1e3, width=32)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(numbers, numbers), min_size=1), min_size=1, max_size=6))
def test_mean_and_deviation_are_those_of_all_states(
    batches: list[list[tuple[float, float]]],
) -> None:
    normalizer = Normalizer(2, torch.float64)
    for batch in batches:
        normalizer.update(np.array(batch, np.float32))
    everything = np.concatenate(batches)
    assert normalizer.count == len(everything)
    np.testing.assert_allclose(normalizer.mean, everything.mean(axis=0), rtol=1e-6, atol=1e-6)
    expected = 1 / np.sqrt(everything.var(axis=0) + 1e-8)
    np.testing.assert_allclose(normalizer.scale.numpy(), expected, rtol=1e-3)


def test_states_come_out_around_zero_and_none_is_far_out() -> None:
    normalizer = Normalizer(1)
    states = np.random.default_rng(0).normal(1000, 50, (10_000, 1)).astype(np.float32)
    normalizer.update(states)
    seen = normalizer(torch.from_numpy(states))
    assert abs(seen.mean()) < 0.01
    assert abs(seen.std() - 1) < 0.01
    assert normalizer(torch.tensor([[1e6], [-1e6]])).flatten().tolist() == [10, -10]


def test_before_it_has_seen_anything_it_changes_nothing() -> None:
    states = torch.randn(100, 3) * 1e6
    assert torch.equal(Normalizer(3)(states), states)


def test_a_number_that_never_changes_is_seen_as_zero() -> None:
    normalizer = Normalizer(1)
    normalizer.update(np.full((100, 1), 7.0))
    assert normalizer(torch.tensor([[7.0]])).item() == 0


def normalised(path: Path, **knobs: Any) -> t3d.Agent:
    all_knobs = TINY | {"normalize_observations": True} | knobs
    return t3d.train("Hopper-v5", run=path, quiet=True, preset="default", **all_knobs)


def test_the_memory_keeps_states_as_they_came(tmp_path: Path) -> None:
    normalised(tmp_path / "one", random_steps=60)
    normalised(tmp_path / "other", random_steps=60, normalize_observations=False)
    one, other = saved_arrays(tmp_path / "one"), saved_arrays(tmp_path / "other")
    name = "memory-rows-0000000000.state"
    assert np.array_equal(one[name], other[name])
    # What was seen is what was stored: all but the first state of the first episode.
    assert one["agent.normalizer.count"] == 60


def test_the_statistics_go_with_the_agent_and_stand_still_when_it_is_evaluated(
    tmp_path: Path,
) -> None:
    agent = normalised(tmp_path / "run")
    count, mean = agent.perception.normalizer.count, agent.perception.normalizer.mean.clone()
    assert count > 0
    t3d.evaluate(tmp_path / "run", episodes=1)
    loaded = t3d.load(tmp_path / "run")
    assert loaded.perception.normalizer.count == count
    assert np.array_equal(loaded.perception.normalizer.mean, mean)
    state = np.ones(11, np.float32)
    assert np.array_equal(loaded.select_action(state), agent.select_action(state))


def test_resumed_runs_have_seen_the_same(tmp_path: Path) -> None:
    for engine in ("fused", "reference"):
        knobs = {"engine": engine, "n_step": 3, "reward_scale": 0.1, "num_envs": 2}
        normalised(tmp_path / f"{engine}-uninterrupted", steps=90, **knobs)
        normalised(tmp_path / f"{engine}-parts", steps=48, **knobs)
        t3d.resume(tmp_path / f"{engine}-parts", steps=90, quiet=True)
        assert same_bits(tmp_path / f"{engine}-uninterrupted", tmp_path / f"{engine}-parts")


def test_an_agent_that_knows_nothing_is_loaded_as_that() -> None:
    agent = t3d.T3D(2, [-1], [1], t3d.Config(normalize_observations=True))
    fresh, action = agent.state_dict(), agent.select_action([5, 5])
    agent.observe(np.ones((10, 2), np.float32) * np.arange(10, dtype=np.float32)[:, None])
    assert not np.array_equal(agent.select_action([5, 5]), action)
    agent.load_state_dict(fresh)
    assert np.array_equal(agent.select_action([5, 5]), action)
