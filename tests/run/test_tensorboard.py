import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.runs import TINY
from t3d.base.extras import how_to_install
from t3d.run.folder import RunFolder


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in RunFolder(path).metrics() if line["kind"] == kind]


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
