import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

import t3d
from helpers.runs import TINY, same_bits, trained
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.lock import is_locked
from t3d.run.session import Outcome, about, open_run, train_to_end
from t3d.run.signals import StopSignal
from t3d.run.watchers import Watcher


def maker(**knobs: object) -> EnvMaker:
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY, **knobs})
    return EnvMaker(config.env, config)


class Sends(Watcher):
    """Sends a signal at a step, or stops the run there."""

    def __init__(self, step: int, number: int | None = None) -> None:
        self.step, self.number = step, number

    def on_step(self, step: int) -> str | None:
        if step == self.step and self.number:
            os.kill(os.getpid(), self.number)
        return "enough" if step == self.step and not self.number else None


def test_a_run_is_started_where_there_is_none_and_else_resumed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with closing(open_run(maker(steps=30), folder, about("default", "make it so"))) as run:
        assert train_to_end(run) == Outcome(folder, None, None, run.watchers)
    assert folder.about()["command"] == "make it so"
    folder.write_score({"mean": 1.0, "std": 0.0, "episodes": 10, "step": 30})
    with closing(open_run(maker(engine="fused"), folder, about={})) as run:
        assert run.collector.steps == 30
        assert folder.config().steps == 60
        assert folder.score() is None  # it was of an agent that may not stay the best
        train_to_end(run)
    assert folder.about()["command"] == "make it so"
    assert same_bits(folder.path, trained(tmp_path / "uninterrupted"))


def test_the_outcome_names_the_signal_that_stopped_a_run(tmp_path: Path) -> None:
    run = open_run(maker(), RunFolder(tmp_path / "run"), {})
    with closing(run), StopSignal().caught() as stop:
        outcome = train_to_end(run, [Sends(25, signal.SIGTERM)], stop)
    assert outcome == Outcome(run.folder, signal.SIGTERM, None, run.watchers)
    assert t3d.inspect(run.folder.path)["step"] == 25


def test_a_signal_after_the_last_evaluation_is_too_late(tmp_path: Path) -> None:
    class SendsAtEnd(Watcher):
        def on_record(self, record: object) -> None:
            if isinstance(record, t3d.Evaluation) and record.step == 60:
                os.kill(os.getpid(), signal.SIGTERM)

    run = open_run(maker(), RunFolder(tmp_path / "run"), {})
    with closing(run), StopSignal().caught() as stop:
        outcome = train_to_end(run, [SendsAtEnd()], stop)
    assert outcome == Outcome(run.folder, None, None, run.watchers)
    assert t3d.inspect(run.folder.path)["finished"]


def test_the_outcome_names_the_watcher_that_stopped_a_run(tmp_path: Path) -> None:
    run = open_run(maker(), RunFolder(tmp_path / "run"), {})
    with closing(run):
        outcome = train_to_end(run, [Sends(25)])
    assert outcome.signal is None
    assert outcome.stopped_by is not None
    assert (outcome.stopped_by.watcher, outcome.stopped_by.reason) == ("Sends", "enough")


def test_a_run_that_cannot_be_opened_is_not_left_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run", steps=30)

    def full(folder: RunFolder, config: t3d.Config) -> None:
        raise t3d.CannotWrite("no room")

    monkeypatch.setattr(RunFolder, "write_config", full)
    with pytest.raises(t3d.CannotWrite, match="no room"):
        open_run(maker(), RunFolder(run), {})
    assert not is_locked(RunFolder(run))
