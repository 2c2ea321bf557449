import dataclasses
import itertools
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import t3d
from helpers import broken_envs, odd_envs
from helpers.runs import (
    TINY,
    metrics_without_time,
    needs_envpool,
    read_json,
    same_bits,
    whole_state,
)
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder, versions
from t3d.run.loop import Run


def tiny(path: Path, env: Any = "Pendulum-v1", **knobs: Any) -> t3d.T3D:
    return t3d.train(env, run=path, quiet=True, preset="default", **(TINY | knobs))


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    return list(RunFolder(path).metrics(kind))


def test_the_run_folder_holds_what_it_says(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny(run, seed=3)
    assert read_json(run / "config.json")["seed"] == 3
    assert t3d.Config.from_dict(read_json(run / "config.json")) == RunFolder(run).config()
    about = read_json(run / "run.json")
    assert about["preset"] == "default"
    assert {"t3d", "torch", "gymnasium", "numpy", "python"} <= about["versions"].keys()
    assert [r["step"] for r in records(run, "evaluation")] == [0, 30, 60]
    assert [r["step"] for r in records(run, "train")] == [10, 20, 30, 40, 50, 60]
    episodes = records(run, "episode")
    assert [(e["step"], e["episode"], e["length"]) for e in episodes] == [
        (15, 0, 15),
        (30, 1, 15),
        (45, 2, 15),
        (60, 3, 15),
    ]
    checkpoints = sorted(p.name for p in (run / "checkpoints").iterdir())
    assert checkpoints == ["step-000000000040", "step-000000000060"]
    assert (run / "best.safetensors").is_file()


def test_tensorboard_events_match_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    tiny(run)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    drawn = {(e.step, e.value) for e in events.Scalars("evaluation/mean")}
    assert drawn == {(r["step"], np.float32(r["mean"])) for r in records(run, "evaluation")}
    assert "train/critic_loss" in events.Tags()["scalars"]


def test_tensorboard_events_go_on_without_a_gap_or_a_double_point(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    tiny(run)
    shutil.rmtree(run / "checkpoints" / "step-000000000060")  # as if killed after step 40
    time.sleep(1.1)  # TensorBoard tells files apart by the second
    t3d.resume(run, steps=90, quiet=True)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    for tag, kind, name in (
        ("evaluation/mean", "evaluation", "mean"),
        ("train/critic_loss", "train", "critic_loss"),
    ):
        drawn = [(e.step, np.float32(e.value)) for e in events.Scalars(tag)]
        lines = [r for r in records(run, kind) if name in r]
        assert drawn == [(r["step"], np.float32(r[name])) for r in lines]


def test_without_tensorboard_a_run_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    t3d.train("Pendulum-v1", run=tmp_path / "run", **TINY)
    assert "pip install 't3d[tensorboard]'" in capsys.readouterr().out
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert records(tmp_path / "run", "evaluation")


def test_updates_begin_after_the_random_steps_one_per_step(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    updates = {r["step"]: r["updates"] for r in records(tmp_path / "run", "train")}
    assert updates == {10: 0, 20: 0, 30: 10, 40: 20, 50: 30, 60: 40}


@pytest.mark.parametrize(("ratio", "expected"), [(0.1, 4), (0.3, 12), (2.0, 80), (0.0, 0)])
def test_updates_per_step_is_kept_exactly(tmp_path: Path, ratio: float, expected: int) -> None:
    tiny(tmp_path / "run", updates_per_step=ratio)
    assert records(tmp_path / "run", "train")[-1]["updates"] == expected


def test_updates_per_step_counts_the_steps_of_all_environments(tmp_path: Path) -> None:
    tiny(tmp_path / "run", num_envs=4)
    assert records(tmp_path / "run", "train")[-1]["updates"] == 40


def test_in_bursts_the_agent_learns_after_each_episode(tmp_path: Path) -> None:
    tiny(tmp_path / "run", train_after="episode", log_every=1)
    updates = {r["step"]: r["updates"] for r in records(tmp_path / "run", "train")}
    # Episodes end at 15, 30, 45 and 60; those after step 20 are played by the policy.
    changes = {step: n for step, n in updates.items() if n != updates.get(step - 1, 0)}
    assert changes == {30: 10, 45: 25, 60: 40}


def test_the_best_agent_is_the_one_of_the_best_evaluation(tmp_path: Path) -> None:
    run = tmp_path / "run"
    best = tiny(run, steps=200, eval_every=20, learning_rate=0.1, seed=5)
    evaluations = records(run, "evaluation")
    means = [r["mean"] for r in evaluations]
    winner = evaluations[int(np.argmax(means))]
    assert evaluations[-1]["best_mean"] == winner["mean"]
    assert winner["mean"] > means[-1]  # else this test would show nothing
    assert best.updates == max(0, winner["step"] - 20)
    last = t3d.load(run, which="last")
    assert last.updates == 180


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        tiny(tmp_path / name, env="Hopper-v5", seed=seed, num_envs=2)
    assert same_bits(tmp_path / "one", tmp_path / "again")
    assert metrics_without_time(tmp_path / "one") == metrics_without_time(tmp_path / "again")
    assert not same_bits(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"num_envs": 3, "env_backend": "processes"},
        pytest.param({"num_envs": 2, "env_backend": "envpool"}, marks=needs_envpool),
        {"train_after": "episode"},
        {"overlap": True},
        {"overlap": True, "num_envs": 3, "env_backend": "processes"},
        {"engine": "reference"},
        {"updates_per_step": 0.3, "capacity": 25},
        {"env": "BipedalWalker-v3", "remake_envs": True, "max_episode_steps": 0, "steps": 600},
    ],
)
def test_a_run_that_goes_on_ends_where_an_uninterrupted_one_ends(
    tmp_path: Path, knobs: dict[str, Any]
) -> None:
    whole: dict[str, Any] = {"env": "Hopper-v5", "steps": 90} | knobs
    tiny(tmp_path / "whole", **whole)
    tiny(tmp_path / "parts", **(whole | {"steps": whole["steps"] * 8 // 15}))
    t3d.resume(tmp_path / "parts", steps=whole["steps"], quiet=True)
    assert same_bits(tmp_path / "whole", tmp_path / "parts")


def test_a_run_on_an_environment_that_is_not_deterministic_goes_on_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tmp_path / "run", env=broken_envs.Lottery, steps=48)
    t3d.resume(tmp_path / "run", steps=90)
    said = capsys.readouterr().out
    assert "environment 0 is not deterministic: it begins a new episode" in said
    found = t3d.inspect(tmp_path / "run")
    assert not found["bit_exact"]
    assert found["not_bit_exact"] == [
        "at step 48 environment 0 is not deterministic: it begins a new episode"
    ]
    lengths = [e["length"] for e in records(tmp_path / "run", "episode")]
    assert lengths == [5] * 17  # the one that broke after 3 steps is nowhere counted
    assert len(whole_state(tmp_path / "run")["memory-rows-0000000000.reward"]) == 90


def test_a_kill_between_checkpoints_loses_no_line_and_doubles_none(tmp_path: Path) -> None:
    tiny(tmp_path / "whole")
    tiny(tmp_path / "killed")
    # What a kill at step 55 leaves: the checkpoint of step 40, and lines beyond it.
    folder = RunFolder(tmp_path / "killed")
    newest = folder.newest_checkpoint()
    assert newest is not None
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    with folder.metrics_path.open("a") as lines:
        lines.write('{"kind": "train", "st')
    t3d.resume(tmp_path / "killed", quiet=True)
    assert same_bits(tmp_path / "whole", tmp_path / "killed")
    assert metrics_without_time(tmp_path / "whole") == metrics_without_time(tmp_path / "killed")


@pytest.mark.parametrize("knobs", [{}, {"updates_per_step": 2.5, "policy_freq": 3}])
def test_updates_that_go_on_beside_the_next_step_change_nothing(
    tmp_path: Path, knobs: dict[str, Any]
) -> None:
    for threads in (1, 2):  # one thread can do nothing beside another
        tiny(tmp_path / f"{threads}", engine="fused", threads=threads, batch_size=32, **knobs)
    assert metrics_without_time(tmp_path / "1") == metrics_without_time(tmp_path / "2")
    assert same_bits(tmp_path / "1", tmp_path / "2")


def test_many_environments_overshoot_by_less_than_one_round(tmp_path: Path) -> None:
    tiny(tmp_path / "run", num_envs=7)
    assert int(whole_state(tmp_path / "run")["collector.steps"]) == 63


def test_a_callable_of_the_users_own_trains(tmp_path: Path) -> None:
    agent = tiny(tmp_path / "run", env=broken_envs.Calm)
    assert agent.select_action(np.zeros(3)).shape == (2,)
    assert RunFolder(tmp_path / "run").config().env == "helpers.broken_envs:Calm"
    assert len(t3d.evaluate(tmp_path / "run", episodes=2).returns) == 2


def test_a_broken_environment_loses_nothing_that_was_played(tmp_path: Path) -> None:
    class BreaksLater(broken_envs.Calm):
        def __init__(self) -> None:
            self.steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            observation, *rest = super().step(action)
            return (observation * np.nan if self.steps == 27 else observation), *rest

    with pytest.raises(t3d.T3DError, match=r"step 2: observation\[0\] is nan.*saved at step 26"):
        tiny(tmp_path / "run", env=BreaksLater)
    state = whole_state(tmp_path / "run")
    assert int(state["collector.steps"]) == 26
    assert all(np.isfinite(a).all() for a in state.values() if a.dtype.kind == "f")


def test_a_run_that_broke_goes_on_to_the_same_end(tmp_path: Path) -> None:
    tiny(tmp_path / "whole", env=broken_envs.Calm)

    class BreaksOnce(broken_envs.Calm):
        def step(self, action: Any) -> Any:
            if len(records(tmp_path / "run", "train")) == 4:
                raise OSError("the cable came loose")
            return super().step(action)

    with pytest.raises(t3d.T3DError, match=r"the cable came loose.*saved at step 40"):
        tiny(tmp_path / "run", env=BreaksOnce)
    t3d.resume(tmp_path / "run", env=broken_envs.Calm, quiet=True)
    assert same_bits(tmp_path / "whole", tmp_path / "run")


def test_an_evaluation_that_a_stop_breaks_off_is_played_again(tmp_path: Path) -> None:
    tiny(tmp_path / "whole")
    config = t3d.Config(env="Pendulum-v1", **TINY)
    run = Run.start(
        EnvMaker("Pendulum-v1", config), RunFolder(tmp_path / "run"), {"preset": "default"}
    )
    asked = iter(range(10**6))
    # The loop asks once per round; an evaluation asks at each of its steps.
    finished = run.loop(stop=lambda: next(asked) > 50)
    run.close()
    assert not finished
    assert [r["step"] for r in records(tmp_path / "run", "evaluation")] == [0]
    assert run.collector.steps == 30
    t3d.resume(tmp_path / "run", quiet=True)
    assert same_bits(tmp_path / "whole", tmp_path / "run")
    assert metrics_without_time(tmp_path / "whole") == metrics_without_time(tmp_path / "run")


def test_an_endless_episode_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(broken_envs.Calm):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:3], False, {}

    monkeypatch.setattr("t3d.play.evaluate._ENDLESS", 500)
    with pytest.raises(t3d.T3DError, match="has 500 steps and no end; set --max-episode-steps"):
        tiny(tmp_path / "run", env=Endless, max_episode_steps=0)


def test_a_diverged_agent_is_told_from_a_broken_environment(tmp_path: Path) -> None:
    with pytest.raises(t3d.T3DError, match="the agent diverged by step"):
        tiny(tmp_path / "run", env=odd_envs.HugeReward)
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # no NaN, no Infinity: they are not JSON


def test_damaged_files_are_named_and_left_as_they_are(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny(run)
    newest = RunFolder(run).newest_checkpoint()
    assert newest is not None
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes()

    metrics.write_bytes(lines[:100])
    with pytest.raises(t3d.T3DError, match=r"metrics\.jsonl is shorter than the checkpoint says"):
        t3d.resume(run, steps=90, quiet=True)
    assert metrics.read_bytes() == lines[:100]
    metrics.unlink()
    with pytest.raises(t3d.T3DError, match=r"metrics\.jsonl cannot be written: .*No such file"):
        t3d.resume(run, steps=90, quiet=True)
    metrics.write_bytes(lines)

    assert t3d.inspect(run)["checkpoints"]["step-000000000060"]["valid"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("manifest.json", b"{}"),
        ("manifest.json", b"[]"),
        ("collector.safetensors", b"12345678"),
        ("memory-rows-0000000000.safetensors", b""),
        ("agent.safetensors", b"\x80\x04pickle"),
        ("more.safetensors", b""),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    tmp_path: Path, name: str, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tmp_path / "whole", steps=90)
    run = tmp_path / "run"
    tiny(run)
    (run / "checkpoints" / "step-000000000060" / name).write_bytes(damage)
    found = t3d.inspect(run)
    assert found["step"] == 40
    assert name in found["checkpoints"]["step-000000000060"]["why"]
    t3d.resume(run, steps=90)
    said = " ".join(capsys.readouterr().out.split())
    assert "back to the checkpoint of step 40" in said
    assert t3d.inspect(run)["digest"] == t3d.inspect(tmp_path / "whole")["digest"]
    assert same_bits(tmp_path / "whole", run)


def test_a_run_without_any_checkpoint_begins_again(tmp_path: Path) -> None:
    tiny(tmp_path / "whole")
    tiny(tmp_path / "early")
    for checkpoint in RunFolder(tmp_path / "early").all_checkpoints():
        shutil.rmtree(checkpoint)  # as if it had been killed before the first
    t3d.resume(tmp_path / "early", quiet=True)
    assert t3d.inspect(tmp_path / "early")["digest"] == t3d.inspect(tmp_path / "whole")["digest"]


def test_when_no_checkpoint_is_whole_every_damaged_file_is_named(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    for checkpoint in RunFolder(tmp_path / "run").all_checkpoints():
        (checkpoint / "agent.safetensors").write_bytes(b"")
    with pytest.raises(t3d.T3DError, match=r"no checkpoint of .* is valid: .*60.*damaged.*; .*40"):
        t3d.resume(tmp_path / "run", steps=90, quiet=True)


def test_unchanged_pieces_are_linked_from_the_checkpoint_before_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t3d.learn.replay.memory._BLOCK", 10 * 28)  # ten rows of the pendulum's
    run = tmp_path / "run"
    tiny(run, steps=100, keep_checkpoints=5)
    inodes = {
        checkpoint.name[-3:]: {file.name: file.stat().st_ino for file in checkpoint.iterdir()}
        for checkpoint in RunFolder(run).all_checkpoints()
    }
    shared = {name for name in inodes["100"] if inodes["100"][name] == inodes["060"].get(name)}
    assert shared == {
        f"memory-rows-{i:010d}.safetensors" for i in range(0, 60, 10)
    }  # 60 of 100 rows
    for one, other in itertools.pairwise(inodes):
        assert not set(inodes[one].values()) & set(inodes[other].values())
    t3d.resume(run, steps=110, quiet=True)
    tiny(tmp_path / "whole", steps=110, keep_checkpoints=5)
    assert same_bits(run, tmp_path / "whole")


@pytest.mark.parametrize("capacity", [10, 25, 30, 37])
def test_pieces_of_a_memory_that_has_gone_round_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    monkeypatch.setattr("t3d.learn.replay.memory._BLOCK", 4 * 28)
    knobs = {"capacity": capacity, "checkpoint_every": 7, "keep_checkpoints": 20}
    tiny(tmp_path / "parts", steps=90, **knobs)
    monkeypatch.undo()
    tiny(tmp_path / "whole", steps=90, **knobs)
    for parts, whole in zip(
        RunFolder(tmp_path / "parts").all_checkpoints(),
        RunFolder(tmp_path / "whole").all_checkpoints(),
    ):
        for table in ("rows", "ends"):
            pieces = [load_file(file) for file in sorted(parts.glob(f"memory-{table}-*"))]
            one = load_file(whole / f"memory-{table}-0000000000.safetensors")
            for name, array in one.items():
                together = np.concatenate([piece[name] for piece in pieces])
                np.testing.assert_array_equal(together, array)


GOLDEN = Path(__file__).parent / "golden"  # a run of two environments, by format 2


def test_a_checkpoint_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    run = shutil.copytree(GOLDEN, tmp_path / "run")
    found = t3d.inspect(run)
    assert found["step"] == 60
    assert found["digest"] == "ffb7cb3d430a5df694a8573120c173bf7b7d06ff99eadfbb0b54d1259b33cff9"
    assert sorted(p.name for p in run.iterdir()) == sorted(p.name for p in GOLDEN.iterdir())
    t3d.resume(run, steps=90, quiet=True)
    assert t3d.inspect(run)["step"] == 90


def test_a_run_stopped_in_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    tiny(tmp_path / "whole")
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY, "engine": "fused"})
    run = Run.start(EnvMaker(config.env, config), RunFolder(tmp_path / "run"), about={})
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += run.collector.steps == 60
        return asked > 5

    assert not run.loop(stop)
    run.close()
    assert not t3d.inspect(tmp_path / "run")["finished"]
    t3d.resume(tmp_path / "run", quiet=True)
    found = t3d.inspect(tmp_path / "run")
    assert found["finished"]
    assert found["digest"] == t3d.inspect(tmp_path / "whole")["digest"]


def test_a_damaged_piece_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t3d.learn.replay.memory._BLOCK", 10 * 28)
    run = tmp_path / "run"
    tiny(run)
    piece = run / "checkpoints" / "step-000000000040" / "memory-rows-0000000010.safetensors"
    piece.write_bytes(piece.read_bytes()[:-1] + b"!")
    t3d.resume(run, steps=80, quiet=True)
    found = t3d.inspect(run)["checkpoints"]
    assert all(state["valid"] for state in found.values()), found


def test_an_error_while_the_disk_is_full_lets_the_folder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise t3d.T3DError("metrics.jsonl cannot be written: No space left on device")

    monkeypatch.setattr("t3d.run.records.MetricsFile.write", full)
    with pytest.raises(t3d.T3DError, match="No space left"):
        tiny(tmp_path / "run")
    monkeypatch.undo()
    assert not t3d.inspect(tmp_path / "run")["training"]
    t3d.resume(tmp_path / "run", quiet=True)
    assert t3d.inspect(tmp_path / "run")["finished"]


def test_a_second_trainer_of_a_run_is_refused(tmp_path: Path) -> None:
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY})
    folder = RunFolder(tmp_path / "run")
    run = Run.start(EnvMaker(config.env, config), folder, about={})
    try:
        assert t3d.inspect(folder.path)["training"]
        with pytest.raises(t3d.T3DError, match=f"in use by process {os.getpid()} on"):
            t3d.resume(folder.path, quiet=True)
    finally:
        run.close()
    assert not t3d.inspect(folder.path)["training"]
    t3d.resume(folder.path, quiet=True)


def test_what_does_not_fit_on_the_disk_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(t3d.T3DError, match=r"this run may take .* kB and .* has 1 kB; free some"):
        tiny(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_memory_that_does_not_fit_is_refused_with_the_largest_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t3d.run.build.available_memory", lambda: 10_000_000)
    with pytest.raises(t3d.T3DError) as refused:
        tiny(tmp_path / "run", capacity=10**6, steps=10**6)
    said = str(refused.value)
    assert "would take 28 MB; 10 MB of RAM is free" in said
    assert "use --capacity 321428 or less, or --replay-on-disk" in said
    assert not (tmp_path / "run").exists()
    # What is not going to be filled needs no room, and a file needs no RAM.
    tiny(tmp_path / "short", capacity=10**6)
    config = t3d.Config(env="Pendulum-v1", replay_on_disk=True)
    Run(EnvMaker("Pendulum-v1", config), RunFolder(tmp_path / "other")).collector.close()


def test_what_has_changed_since_the_checkpoint_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tmp_path / "run")
    now = versions()
    monkeypatch.setattr("t3d.run.checkpoint.versions", lambda: now | {"torch": "9.9"})
    t3d.resume(tmp_path / "run", steps=90)
    said = " ".join(capsys.readouterr().out.split())
    assert f"torch was {now['torch']}, is 9.9: from here on not bit for bit" in said
    assert not t3d.inspect(tmp_path / "run")["bit_exact"]


@pytest.mark.parametrize(
    "bad",
    [
        {"env": "CartPole-v1"},
        {"device": "nonsense"},
        {"tau": 9},
        {"capacity": 10**10},
        {"env": 123},
        {"env": broken_envs.Calm()},
    ],
)
def test_bad_input_leaves_no_folder_behind(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(t3d.T3DError):
        tiny(tmp_path / "run", **bad)
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(t3d.T3DError, match=r"exists; choose another with --run$"):
        tiny(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(t3d.T3DError, match="cannot be written: Not a directory"):
        tiny(tmp_path / "file" / "run")


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(t3d.T3DError, match="no run folder at"):
        t3d.load(tmp_path / "nowhere")
    with pytest.raises(t3d.T3DError, match=r"is not a run folder: it has no config\.json"):
        t3d.load(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2")
    with pytest.raises(t3d.T3DError, match=r"config\.json cannot be read"):
        t3d.evaluate(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"tua": 1}))
    with pytest.raises(t3d.T3DError, match="no best agent yet"):
        t3d.load(tmp_path)
    with pytest.raises(t3d.T3DError, match="unknown knob 'tua'; did you mean 'tau'"):
        RunFolder.open(tmp_path).config()


def test_a_finished_run_says_how_to_go_further(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    with pytest.raises(t3d.T3DError, match="is finished at step 60; go further with --steps 120"):
        t3d.resume(tmp_path / "run", quiet=True)
    with pytest.raises(t3d.T3DError, match="is finished at step 60"):
        t3d.resume(tmp_path / "run", steps=50, quiet=True)
    assert RunFolder(tmp_path / "run").config().steps == 60


def test_default_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        t3d.train("Pendulum-v1", quiet=True, **TINY)
    names = sorted(os.listdir("runs"))
    assert names == ["Pendulum-v1-seed0", "Pendulum-v1-seed0-2", "Pendulum-v1-seed0-3"]


def test_misspelt_knobs_of_train_are_refused() -> None:
    with pytest.raises(t3d.T3DError, match="unknown knob 'batchsize'; did you mean 'batch_size'"):
        t3d.train("Pendulum-v1", batchsize=3)


def test_the_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        t3d.Config().tau = 1.0  # type: ignore[misc]
