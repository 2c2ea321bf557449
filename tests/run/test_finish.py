import shutil
from pathlib import Path

import pytest

import t3d
from helpers import broken_envs
from helpers.runs import read_json, trained
from t3d.run.finish import Finished, finish
from t3d.run.folder import RunFolder


def test_the_best_agent_is_scored_on_test_episodes(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    finished = finish(RunFolder(run))
    score = t3d.evaluate(run)
    assert finished.score is not None
    assert finished.score.returns == score.returns
    assert (finished.files, finished.problems) == ({}, {})
    stored = read_json(run / "score.json")
    assert stored["returns"] == score.returns
    *_, last = RunFolder(run).records(t3d.Evaluation)
    assert (stored["mean"], stored["episodes"], stored["step"]) == (score.mean, 10, last.best_step)


def test_a_picture_that_fails_is_a_problem_and_not_an_error(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")

    def curve(folder: RunFolder) -> Path:
        raise t3d.BadInput("plots need an extra")

    def report(folder: RunFolder) -> Path:
        assert folder.score() is not None  # scored before it is drawn
        return folder.path / "report.html"

    finished = finish(RunFolder(run), {"curve": curve, "report": report})
    assert finished.files == {"report": run / "report.html"}
    assert finished.problems == {"curve": "plots need an extra"}
    assert finished.score is not None


def test_an_error_that_is_no_t3d_error_is_not_hidden(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")

    def curve(folder: RunFolder) -> Path:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        finish(RunFolder(run), {"curve": curve})


def test_a_score_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run")

    def full(folder: RunFolder, score: object) -> None:
        raise t3d.CannotWrite("score.json cannot be written: No space left on device")

    monkeypatch.setattr(RunFolder, "write_score", full)
    finished = finish(RunFolder(run))
    assert finished.score is not None
    assert finished.problems == {"score": "score.json cannot be written: No space left on device"}


def test_a_run_without_an_agent_has_no_score(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    (run / "best.safetensors").unlink()
    shutil.rmtree(run / "checkpoints")
    assert finish(RunFolder(run)) == Finished(None, {}, {"score": "no agent yet"})


def test_a_run_on_a_callable_that_cannot_be_imported_is_scored_on_that(tmp_path: Path) -> None:
    def local() -> broken_envs.Calm:
        return broken_envs.Calm()

    run = trained(tmp_path / "run", local)
    with pytest.raises(t3d.BadInput, match="from Python, pass it as env"):
        finish(RunFolder(run))
    assert finish(RunFolder(run), env=local).score is not None
