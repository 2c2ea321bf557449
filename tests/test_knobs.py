"""No dead knobs: change each one, and see the run change."""

import dataclasses
import multiprocessing
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t3d
from helpers.runs import TINY, metrics_without_time, whole_state
from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.play.vector import Environments
from t3d.play.workers import Workers
from t3d.run.folder import RunFolder
from t3d.run.loop import Run

# Another value for every knob that changes what a run computes or writes.
OTHER: dict[str, Any] = {
    "env": "MountainCarContinuous-v0",
    "steps": 70,
    "seed": 1,
    "num_envs": 2,
    "action_repeat": 2,
    "max_episode_steps": 10,
    "random_steps": 30,
    "exploration": "ou",
    "exploration_noise": 0.3,
    "capacity": 25,
    "train_after": "episode",
    "updates_per_step": 0.5,
    "batch_size": 9,
    "hidden": (8, 9),
    "body": "layer_norm",
    "learning_rate": 1e-3,
    "normalize_observations": True,
    "reward_scale": 0.5,
    "n_step": 3,
    "discount": 0.9,
    "tau": 0.1,
    "twins": False,
    "policy_noise": 0.1,
    "noise_clip": 0.05,
    "policy_freq": 3,
    "eval_every": 20,
    "eval_episodes": 2,
    "log_every": 7,
    "checkpoint_every": 50,
    "keep_checkpoints": 3,
    "overlap": True,
}
# Knobs that say where and how to compute, and must not change the numbers, have a test each.
ELSEWHERE = {
    "pixels",
    "grey",
    "image_size",
    "frame_stack",
    "image_shift",
    "image_channels",
    "features",
    "replay_on_disk",
    "exploration_final",
    "exploration_steps",
    "exploration_pull",
    "collectors",
    "collector_cpus",
    "ray",
    "staleness",
    "env_backend",
    "env_deadline",
    "env_restarts",
    "remake_envs",
    "agent",
    "engine",
    "device",
    "threads",
}


def fingerprint(path: Path, **changed: Any) -> dict[str, Any]:
    """All that a run computed and wrote, in a form that can be compared."""
    knobs = {"env": "Pendulum-v1", "preset": "default", **TINY, **changed}
    t3d.train(run=path, quiet=True, **knobs)
    return {
        "state": {name: array.tobytes() for name, array in whole_state(path).items()},
        "metrics": metrics_without_time(path),
        "checkpoints": sorted(p.name for p in RunFolder(path).checkpoints.iterdir()),
    }


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    torch.set_num_threads(1)
    return fingerprint(tmp_path_factory.mktemp("base") / "run")


def test_every_knob_is_tested_here() -> None:
    knobs = {field.name for field in dataclasses.fields(Config)}
    assert set(OTHER) | ELSEWHERE == knobs
    assert not set(OTHER) & ELSEWHERE


def test_the_same_knobs_give_the_same_run(base: dict[str, Any], tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "run") == base


@pytest.mark.parametrize("knob", OTHER)
def test_a_changed_knob_changes_the_run(base: dict[str, Any], tmp_path: Path, knob: str) -> None:
    assert fingerprint(tmp_path / "run", **{knob: OTHER[knob]}) != base


def test_env_backend_moves_the_environments_and_keeps_the_numbers(tmp_path: Path) -> None:
    one = fingerprint(tmp_path / "here", num_envs=2)
    other = fingerprint(tmp_path / "there", num_envs=2, env_backend="processes")
    assert one == other
    config = Config(num_envs=2, env_backend="processes")
    environments = Environments(EnvMaker("Pendulum-v1", config))
    assert len(multiprocessing.active_children()) == 2
    assert isinstance(environments.vector, Workers)
    assert environments.vector._rows is not None
    shared = environments.vector._rows.name
    SharedMemory(shared).close()  # is there
    environments.close()
    assert multiprocessing.active_children() == []
    with pytest.raises(FileNotFoundError):
        SharedMemory(shared)


def test_device_places_the_networks() -> None:
    agent = t3d.T3D(3, [-1], [1], Config(device="meta"))
    networks = (agent.actor, agent.critic, agent.actor_target, agent.critic_target)
    assert all(p.device.type == "meta" for network in networks for p in network.parameters())


@pytest.mark.parametrize(
    "knobs",
    [
        {"exploration_steps": 30, "exploration_final": 0.3},
        {"exploration_steps": 30, "exploration_final": 0.0},
        {"exploration": "ou"},
        {"exploration": "ou", "exploration_pull": 0.5},
    ],
)
def test_knobs_of_exploration_change_the_run_together(
    base: dict[str, Any], tmp_path: Path, knobs: dict[str, Any]
) -> None:
    found = fingerprint(tmp_path / "run", **knobs)
    assert found != base
    if len(knobs) == 2:
        less = dict(list(knobs.items())[:1])
        assert found != fingerprint(tmp_path / "less", **less)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    torch.set_num_threads(1)
    return fingerprint(tmp_path_factory.mktemp("seen") / "run", **SEEN)


SEEN: dict[str, Any] = {"env": "helpers.seeing_envs:Camera", "steps": 30, "eval_every": 15}


@pytest.mark.parametrize(
    "knobs",
    [
        {"grey": True},
        {"image_size": 36},
        {"frame_stack": 2},
        {"image_shift": 2},
        {"image_channels": 9},
        {"features": 7},
    ],
)
def test_knobs_of_images_change_the_run(
    seen: dict[str, Any], tmp_path: Path, knobs: dict[str, Any]
) -> None:
    assert fingerprint(tmp_path / "run", **SEEN, **knobs) != seen


def test_pixels_are_another_state(tmp_path: Path) -> None:
    fingerprint(tmp_path / "run", pixels=True, image_size=32, steps=25, eval_every=0)
    assert t3d.load(tmp_path / "run").layout.images == ((3, 32, 32),)


def test_a_memory_on_disk_changes_nothing_but_the_place(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    scratch = t3d.base.files.scratch

    def note(path: Path) -> Any:
        made.append(path)
        return scratch(path)

    monkeypatch.setattr("t3d.base.files.scratch", note)
    assert fingerprint(tmp_path / "run", replay_on_disk=True) == base
    assert made == [tmp_path / "run"]


@pytest.mark.parametrize(("threads", "expected"), [(2, 2), (0, 1)])
def test_threads_are_set_while_a_run_is_open(tmp_path: Path, threads: int, expected: int) -> None:
    """0 is 1 for networks so small that more threads would only wait for each other."""
    torch.set_num_threads(3)
    config = Config(threads=threads, hidden=(8,), engine="reference")
    run = Run.start(EnvMaker("Pendulum-v1", config), RunFolder(tmp_path / "run"), about={})
    assert torch.get_num_threads() == expected
    run.close()
    assert torch.get_num_threads() == 3


def test_threads_do_not_change_a_run_of_the_fused_engine(
    base: dict[str, Any], tmp_path: Path
) -> None:
    assert fingerprint(tmp_path / "run", threads=2) == base


def test_engine_auto_is_fused_and_gives_the_numbers_of_the_reference(
    tmp_path: Path, base: dict[str, Any]
) -> None:
    assert fingerprint(tmp_path / "fused", engine="fused") == base
    other = fingerprint(tmp_path / "reference", engine="reference")
    assert other != base
    one, two = (whole_state(tmp_path / name) for name in ("fused", "reference"))
    for name, array in one.items():
        np.testing.assert_allclose(array, two[name], rtol=1e-2, atol=1e-4, err_msg=name)
    for name, engine in (("fused", t3d.FusedT3D), ("reference", t3d.T3D)):
        assert RunFolder(tmp_path / name).config().engine == name
        assert type(t3d.load(tmp_path / name)) is engine
    with pytest.raises(t3d.T3DError, match="engine is 'warp'; expected one of: auto, reference"):
        t3d.train(run=tmp_path / "warp", engine="warp")
