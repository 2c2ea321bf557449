"""Runs that learn from images."""

from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers import seeing_envs
from helpers.memories import frames
from helpers.runs import TINY, resumed, same_bits, trained
from t3d import T3DError


def test_a_memory_of_frames_is_nothing_for_the_fused_engine() -> None:
    memory = t3d.ReplayBuffer(10, frames(2, stack=3), 1)
    with pytest.raises(T3DError, match="the memory holds uint8; this agent learns from float32"):
        t3d.FusedT3D(6, [-1], [1]).train(memory, 1)


def test_the_fused_engine_says_that_it_does_not_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(T3DError, match="fused has no convolutions for images; use --engine ref"):
        t3d.train(seeing_envs.Camera, run=tmp_path / "run", engine="fused", **TINY)
    assert not (tmp_path / "run").exists()
    t3d.train(seeing_envs.Camera, run=tmp_path / "run", **(TINY | {"steps": 30}))
    output = capsys.readouterr().out
    assert "engine reference (fused has no convolutions for images)" in output
    assert "the replay memory takes up to" in output


SEEN = [
    (seeing_envs.Camera, {"frame_stack": 3, "grey": True}),
    (seeing_envs.Robot, {"frame_stack": 2, "normalize_observations": True, "n_step": 3}),
    (seeing_envs.Camera, {"num_envs": 2, "frame_stack": 2, "capacity": 25}),
    (seeing_envs.Sensors, {"num_envs": 2, "normalize_observations": True}),
    (seeing_envs.Camera, {"image_size": 36, "replay_on_disk": True, "action_repeat": 2}),
]


@pytest.mark.parametrize(("env", "knobs"), SEEN)
def test_a_resumed_run_ends_where_an_uninterrupted_one_ends(
    tmp_path: Path, env: Any, knobs: dict[str, Any]
) -> None:
    trained(tmp_path / "uninterrupted", env, **({"features": 6, "steps": 70} | knobs))
    trained(tmp_path / "parts", env, **({"features": 6, "steps": 30} | knobs))
    resumed(tmp_path / "parts", steps=70)
    assert same_bits(tmp_path / "uninterrupted", tmp_path / "parts")


@pytest.mark.parametrize(("env", "knobs"), SEEN[:2])
def test_in_processes_of_their_own_environments_look_the_same(
    tmp_path: Path, env: Any, knobs: dict[str, Any]
) -> None:
    all_knobs: dict[str, Any] = {"num_envs": 2, "features": 6} | knobs
    trained(tmp_path / "here", env, **all_knobs)
    trained(tmp_path / "there", env, env_backend="processes", **all_knobs)
    assert same_bits(tmp_path / "here", tmp_path / "there")


def test_it_learns_to_move_what_it_sees(tmp_path: Path) -> None:
    """The square is to stay in the middle; at random it makes about half of what is possible."""
    t3d.train(
        seeing_envs.Camera,
        run=tmp_path / "run",
        quiet=True,
        steps=500,
        random_steps=150,
        grey=True,
        features=16,
        hidden=(32, 32),
        batch_size=32,
        learning_rate=1e-3,
        tau=0.02,
        discount=0.5,
        exploration_noise=0.3,
        eval_every=0,
        capacity=1000,
    )
    last = list(t3d.run.folder.RunFolder(tmp_path / "run").records(t3d.Evaluation))[-1]
    assert last.mean > 6.5  # the maximum is 8
