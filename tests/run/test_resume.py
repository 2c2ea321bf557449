import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers import broken_envs
from helpers.runs import (
    TINY,
    needs_envpool,
    resumed,
    same_bits,
    same_bits_and_records,
    saved_arrays,
    trained,
)
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder, versions
from t3d.run.loop import Run


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"num_envs": 2, "env_backend": "processes"},
        pytest.param({"num_envs": 2, "env_backend": "envpool"}, marks=needs_envpool),
        {"train_after": "episode"},
        {"overlap": True},
        {"overlap": True, "num_envs": 2, "env_backend": "processes"},
        {"engine": "reference"},
        {"agent": "td7", "target_every": 7, "embedding": 9},
        {"agent": "td7", "target_every": 3, "num_envs": 2, "capacity": 31, "overlap": True},
        {"agent": "td7", "engine": "reference", "target_every": 4, "embedding": 5},
        {
            **{"env_kwargs": {"reset_noise_scale": 0.1}, "eval_env_kwargs": {"frame_skip": 2}},
            **{"wrap": ("helpers.own_wrappers:Scale", "factor=0.1"), "n_step": 3, "num_envs": 2},
            **{"frame_stack": 3, "action_history": 2},
        },
        {"updates_per_step": 0.3, "capacity": 25},
        {
            **{"env": "BipedalWalker-v3", "remake_envs": True, "max_episode_steps": 0},
            **{"steps": 600, "eval_every": 300},
        },
    ],
)
def test_a_resumed_run_ends_where_an_uninterrupted_one_ends(
    tmp_path: Path, knobs: dict[str, Any]
) -> None:
    all_knobs: dict[str, Any] = {"env": "Hopper-v5", "steps": 90} | knobs
    trained(tmp_path / "uninterrupted", **all_knobs)
    trained(tmp_path / "parts", **(all_knobs | {"steps": all_knobs["steps"] * 8 // 15}))
    resumed(tmp_path / "parts", steps=all_knobs["steps"])
    assert same_bits(tmp_path / "uninterrupted", tmp_path / "parts")


def test_an_environment_that_is_not_deterministic_begins_a_new_episode_and_a_note_says_so(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path / "run", broken_envs.Lottery, steps=48, eval_every=48, log_every=12)
    (note,) = resumed(run, steps=90)
    what = "environment 0 did not repeat its episodes and begins a new one (it is not deterministic"
    assert note.startswith(what)
    assert note.endswith("from here on the run is not bit-exact")
    facts = t3d.inspect(run)
    assert not facts["bit_exact"]
    (reason,) = facts["not_bit_exact"]
    assert reason.startswith(f"at step 48 {what}")
    lengths = [episode.length for episode in RunFolder(run).records(t3d.Episode)]
    assert lengths == [5] * 17  # the one that broke after 3 steps is nowhere counted
    assert len(saved_arrays(run)["memory-rows-0000000000.reward"]) == 90


def test_a_kill_between_checkpoints_loses_no_line_and_doubles_none(tmp_path: Path) -> None:
    trained(tmp_path / "uninterrupted")
    trained(tmp_path / "killed")
    # What a kill at step 55 leaves: the checkpoint of step 40, and lines beyond it.
    folder = RunFolder(tmp_path / "killed")
    newest = folder.newest_checkpoint()
    assert newest is not None
    shutil.rmtree(newest)
    with folder.metrics_path.open("a") as lines:
        lines.write('{"kind": "train", "st')
    resumed(tmp_path / "killed")
    assert same_bits_and_records(tmp_path / "uninterrupted", tmp_path / "killed")


def test_a_run_without_any_checkpoint_begins_again(tmp_path: Path) -> None:
    trained(tmp_path / "uninterrupted")
    trained(tmp_path / "early")
    for checkpoint in RunFolder(tmp_path / "early").all_checkpoints():
        shutil.rmtree(checkpoint)  # as if it had been killed before the first
    resumed(tmp_path / "early")
    digests = [t3d.inspect(tmp_path / name)["digest"] for name in ("early", "uninterrupted")]
    assert digests[0] == digests[1]


def stopped(path: Path, stop: Any) -> Run:
    """A tiny run that was stopped and closed."""
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY})
    with closing(Run.start(EnvMaker(config.env, config), RunFolder(path), {})) as run:
        assert not run.loop(lambda: stop(run))
    return run


def test_an_evaluation_that_a_stop_breaks_off_is_played_again(tmp_path: Path) -> None:
    trained(tmp_path / "uninterrupted")
    calls = iter(range(10**6))
    # The loop asks once per round; an evaluation asks at each of its steps.
    run = stopped(tmp_path / "run", lambda run: next(calls) > 50)
    assert [r.step for r in RunFolder(tmp_path / "run").records(t3d.Evaluation)] == [0]
    assert run.collector.steps == 30
    resumed(tmp_path / "run")
    assert same_bits_and_records(tmp_path / "uninterrupted", tmp_path / "run")


def test_a_run_stopped_in_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    trained(tmp_path / "uninterrupted")
    calls = 0

    def stop(run: Run) -> bool:
        nonlocal calls
        calls += run.collector.steps == 60
        return calls > 5

    stopped(tmp_path / "run", stop)
    assert not t3d.inspect(tmp_path / "run")["finished"]
    resumed(tmp_path / "run")
    facts = t3d.inspect(tmp_path / "run")
    assert facts["finished"]
    assert facts["digest"] == t3d.inspect(tmp_path / "uninterrupted")["digest"]


def test_a_finished_run_says_how_to_go_further(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    with pytest.raises(
        t3d.BadInput, match="is finished at step 60; train it further with --steps 120"
    ):
        resumed(run)
    with pytest.raises(t3d.BadInput, match="is finished at step 60"):
        resumed(run, steps=50)
    assert RunFolder(run).config().steps == 60


def test_a_note_says_what_has_changed_since_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run")
    now = versions()
    monkeypatch.setattr("t3d.run.checkpoint.versions", lambda: now | {"torch": "9.9"})
    (note,) = resumed(run, steps=90)
    assert note.startswith(f"torch was {now['torch']}, is 9.9; from here on the run is not")
    assert not t3d.inspect(run)["bit_exact"]


def test_a_note_says_that_the_metrics_were_changed(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("Episode", "").replace("0.", "1.", 1))
    assert resumed(run, steps=70) == [f"{metrics} is not what it was at step 60"]


def test_metrics_that_are_shorter_than_the_checkpoint_says_are_left_as_they_are(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path / "run")
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes()
    metrics.write_bytes(lines[:100])
    with pytest.raises(t3d.BadInput, match=r"metrics\.jsonl is shorter than the checkpoint says"):
        resumed(run, steps=90)
    assert metrics.read_bytes() == lines[:100]
    metrics.unlink()
    with pytest.raises(t3d.CannotWrite, match=r"metrics\.jsonl cannot be written: No such file"):
        resumed(run, steps=90)
    metrics.write_bytes(lines)
    assert t3d.inspect(run)["checkpoints"]["step-000000000060"]["valid"]
    resumed(run, steps=90)  # nothing was spoiled, and the lock is free
