"""Learning rates over a run: schedules, rates of one network, and the watcher that sets them."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.memories import filled_memory
from helpers.runs import TINY, resumed, same_bits_and_records, trained
from t3d import Config
from t3d.learn.optimizers import rate_at
from t3d.run.folder import RunFolder

HALF = {"steps": 120, "random_steps": 20, "updates_per_step": 0.5}  # 50 updates


@pytest.mark.parametrize(
    ("knobs", "updates", "expected"),
    [
        ({}, 40, 1e-3),
        ({"actor_learning_rate": 0.5}, 40, 0.5),
        ({"critic_learning_rate": 0.5}, 40, 1e-3),
        ({"learning_rate_schedule": "linear"}, 0, 1e-3),
        ({"learning_rate_schedule": "linear"}, 10, 8e-4),
        ({"learning_rate_schedule": "linear"}, 50, 0),
        ({"learning_rate_schedule": "linear"}, 10**6, 0),
        ({"learning_rate_schedule": "linear", "learning_rate_final": 0.5}, 25, 7.5e-4),
        ({"learning_rate_schedule": "linear", "learning_rate_final": 1.0}, 25, 1e-3),
        ({"learning_rate_schedule": "cosine"}, 0, 1e-3),
        ({"learning_rate_schedule": "cosine"}, 25, 5e-4),
        ({"learning_rate_schedule": "cosine", "learning_rate_final": 0.1}, 50, 1e-4),
        ({"learning_rate_schedule": "cosine", "actor_learning_rate": 0.5}, 25, 0.25),
        ({"learning_rate_schedule": "linear", "steps": 10}, 0, 1e-3),  # a run without updates
    ],
)
def test_the_rate_of_an_update(knobs: dict[str, Any], updates: int, expected: float) -> None:
    config = Config(**({"learning_rate": 1e-3} | HALF | knobs))
    assert math.isclose(rate_at(config, "actor", updates), expected, abs_tol=1e-15)


def test_each_network_learns_at_its_own_rate_from_the_first_update_on() -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    knobs: dict[str, Any] = {"actor_learning_rate": 1e-4, "critic_learning_rate": 1e-2}
    config = Config(hidden=(8,), batch_size=8, policy_freq=1, **knobs)
    for kind in (t3d.T3D, t3d.FusedT3D):
        agent = kind(3, [-1.0], [1.0], config)
        before = agent.state_dict()
        agent.train(filled_memory(64, 3), 1)
        for name, rate in (("actor.layers", 1e-4), ("critic.twin1", 1e-2)):
            moved = (agent.state_dict()[f"{name}.2.bias"] - before[f"{name}.2.bias"]).abs()
            assert float(moved.max()) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_a_killed_run_with_a_schedule_ends_with_the_bits_of_an_uninterrupted_one(
    engine: str, tmp_path: Path
) -> None:
    knobs: dict[str, Any] = {
        **{"engine": engine, "learning_rate_schedule": "cosine", "gradient_clip": 0.1},
        **{"weight_decay": 0.1, "layer_norm": "critic", "activation": "elu"},
        **{"actor_hidden": (5,), "critic_learning_rate": 0.01},
    }
    trained(tmp_path / "uninterrupted", **knobs)
    run = trained(tmp_path / "killed", **knobs)
    newest = RunFolder(run).newest_checkpoint()
    assert newest is not None
    shutil.rmtree(newest)  # what a kill before the last checkpoint leaves
    assert resumed(run) == []
    assert same_bits_and_records(tmp_path / "uninterrupted", run)
    assert t3d.inspect(run)["bit_exact"]


def test_the_watcher_sets_the_rate_of_one_network(tmp_path: Path) -> None:
    seen = []

    class Reads(t3d.Watcher):
        def on_start(self, run: Any) -> None:
            self.run = run

        def on_step(self, step: int) -> None:
            agent = self.run.agent
            seen.append((step, agent.rate_of("actor"), agent.rate_of("critic")))

    watchers = [t3d.LearningRateSchedule([[40, 0.02]], knob="actor_learning_rate"), Reads()]
    t3d.train(run=tmp_path / "run", quiet=True, watchers=watchers, learning_rate=1e-3, **TINY)
    assert seen[38] == (39, 1e-3, 1e-3)
    assert seen[39] == (40, 0.02, 1e-3)


@pytest.mark.parametrize(
    ("knob", "rate", "knobs", "message"),
    [
        (
            "learning_rate",
            0.1,
            {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1},
            "nothing",
        ),
        ("actor_learning_rate", 0.0, {}, "the rate of step 0 is 0.0; expected a number above 0"),
    ],
)
def test_a_rate_that_would_mean_something_else_is_refused(
    knob: str, rate: float, knobs: dict[str, Any], message: str, tmp_path: Path
) -> None:
    knobs = TINY | {"learning_rate": 0.5} | knobs
    watcher = t3d.LearningRateSchedule(lambda step: rate, knob=knob)
    if rate == 0:
        knobs["actor_learning_rate"] = 0.5
    with pytest.raises(t3d.T3DError, match=message):
        t3d.train(run=tmp_path / "run", quiet=True, watchers=[watcher], **knobs)
    with pytest.raises(t3d.BadInput, match="knob is 'rate'; expected one of: learning_rate, act"):
        t3d.LearningRateSchedule(lambda step: rate, knob="rate")
