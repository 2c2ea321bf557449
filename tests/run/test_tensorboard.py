import os
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.runs import TINY, trained
from t3d.base.extras import how_to_install
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.tensorboard import TensorBoard


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in RunFolder(path).metrics() if line["kind"] == kind]


def start(path: Path) -> Run:
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY})
    return Run.start(EnvMaker(config.env, config), RunFolder(path))


def test_events_match_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    t3d.train("Pendulum-v1", run=run, quiet=True, **TINY)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    drawn = {(e.step, e.value) for e in events.Scalars("evaluation/mean")}
    assert drawn == {(r["step"], np.float32(r["mean"])) for r in records(run, "evaluation")}
    assert "train/critic_loss" in events.Tags()["scalars"]


def test_events_of_a_resumed_run_have_no_gap_and_no_double_point(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    t3d.train("Pendulum-v1", run=run, quiet=True, **TINY)
    shutil.rmtree(run / "checkpoints" / "step-000000000060")  # as if killed after step 40
    time.sleep(1.1)  # TensorBoard names its files by the second
    t3d.resume(run, steps=90, quiet=True)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    for tag, kind, name in (
        ("evaluation/mean", "evaluation", "mean"),
        ("train/critic_loss", "train", "critic_loss"),
    ):
        drawn = [(e.step, np.float32(e.value)) for e in events.Scalars(tag)]
        lines = [r for r in records(run, kind) if name in r]
        assert drawn == [(r["step"], np.float32(r[name])) for r in lines]


def test_without_tensorboard_a_run_says_so_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    t3d.train("Pendulum-v1", run=tmp_path / "run", **TINY)
    assert how_to_install("tensorboard") in capsys.readouterr().out
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert records(tmp_path / "run", "evaluation")


def test_events_that_cannot_be_written_do_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullDisk(TensorBoard):
        def on_start(self, run: Run) -> None:
            super().on_start(run)
            os.dup2(os.open("/dev/full", os.O_WRONLY), self._file.fileno())

    run, expected = tmp_path / "run", trained(tmp_path / "expected")
    with closing(start(run)) as opened:
        opened.watchers.append(FullDisk())
        assert opened.loop()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("t3d: watcher FullDisk, on_record() raised OSError: [Errno 28] No space")
    assert line.endswith("; the run continues without it")
    assert t3d.inspect(run)["digest"] == t3d.inspect(expected)["digest"]


def test_a_folder_for_events_that_cannot_be_made_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(start(tmp_path / "run")) as opened:
        opened.folder.tensorboard.write_text("in the way")
        opened.watchers.append(TensorBoard())
        assert opened.loop()
    (line,) = capsys.readouterr().err.splitlines()
    assert "watcher TensorBoard, on_start() raised FileExistsError" in line
