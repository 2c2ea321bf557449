"""Complete programs in one environment: the commands and `t3d.train` never make a second one."""

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.commands import TINY_FLAGS, assert_refused
from helpers.robots import LENGTH, Robot
from helpers.runs import TINY, read_json
from t3d.cli.main import main
from t3d.run.folder import RunFolder

# Training, the evaluations at 0, 35 and 60 steps, and the score's test episodes.
ALL_STEPS = 60 + 3 * LENGTH + 4 * LENGTH
ALL_RESETS = 9 + 3 + 4
ONE = ["helpers.robots:Robot", *TINY_FLAGS, "--single-env", "--max-episode-steps", "0"]
AGREED = ONE.index("--random-steps")
UNASKED = ONE[:AGREED] + ONE[AGREED + 2 :]


@pytest.fixture(autouse=True)
def _new_life() -> Iterator[None]:
    Robot.forget()
    yield
    Robot.forget()


@contextmanager
def terminal(answer: str) -> Iterator[bytearray]:
    """Meanwhile, stdin and stderr are a terminal, in which somebody has typed an answer.

    Afterwards, what it has shown.
    """
    near, far = pty.openpty()
    shown = bytearray()
    os.write(near, answer.encode())
    with (
        pytest.MonkeyPatch.context() as patch,
        os.fdopen(os.dup(far)) as stdin,
        os.fdopen(far, "w") as stderr,
    ):
        patch.setattr("sys.stdin", stdin)
        patch.setattr("sys.stderr", stderr)
        yield shown
    with suppress(OSError):  # how it ends, once its other side is closed
        while more := os.read(near, 10_000):
            shown += more
    os.close(near)


def test_training_scoring_and_reporting_take_one_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["train", *ONE, "--rate", "5000", "--test-episodes", "4", "--run", str(run)]
    assert main(words) == 0
    assert (Robot.made, Robot.closed) == (1, 1)
    assert (len(Robot.actions), Robot.resets) == (ALL_STEPS, ALL_RESETS)
    assert len(read_json(run / "score.json")["returns"]) == 4
    assert read_json(run / "config.json")["single_env"]
    output = capsys.readouterr().out
    assert f"video  none: another environment would be made; to do that: t3d record {run}" in output
    assert "the environment declares no time limit" in output
    assert "scoring the best agent on 4 test episodes" in output
    assert f" of {60 + 3 * LENGTH} steps were late" in output
    # A later command makes its own.
    Robot.forget()
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert (Robot.made, len(Robot.actions)) == (1, 2 * LENGTH)


def test_a_resumed_command_takes_one_environment(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", *ONE, "--run", str(run), "--minutes", "0", "--no-video"]) == 0
    step = t3d.inspect(run)["step"]
    assert step < 60
    (run / "score.json").unlink()
    Robot.forget()
    assert main(["resume", str(run), "--no-video"]) == 0
    assert (Robot.made, Robot.closed) == (1, 1)
    assert t3d.inspect(run)["finished"]
    evaluations = [r.step for r in RunFolder(run).records(t3d.Evaluation) if r.step > step]
    assert len(Robot.actions) == 60 - step + (10 + len(evaluations)) * LENGTH


def test_python_takes_one_environment_and_an_explicit_agreement(tmp_path: Path) -> None:
    knobs: dict[str, Any] = TINY | {"max_episode_steps": 0, "single_env": True, "quiet": True}
    run = tmp_path / "run"
    t3d.train(Robot, run=run, video=True, test_episodes=4, **knobs)
    assert (Robot.made, Robot.closed, len(Robot.actions)) == (1, 1, ALL_STEPS)
    Robot.forget()
    t3d.resume(run, env=Robot, steps=70, quiet=True)
    assert (Robot.made, Robot.closed) == (1, 1)
    Robot.forget()
    del knobs["random_steps"]
    with pytest.raises(t3d.BadInput, match="the first 60 steps would be random actions"):
        t3d.train(Robot, run=tmp_path / "other", **knobs)
    assert Robot.made == 0
    assert not (tmp_path / "other").exists()


def test_random_actions_are_refused_where_nobody_can_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *UNASKED, "--run", str(tmp_path / "run")]
    assert_refused(words, "agree with --random-steps 10000, or play none", capsys)
    assert Robot.made == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_on_a_terminal_random_actions_are_asked_about(
    answer: str, code: int, tmp_path: Path
) -> None:
    words = ["train", *UNASKED, "--run", str(tmp_path / "run"), "--no-video"]
    with terminal(answer) as shown:
        assert main(words) == code
    question = "The first 60 steps in helpers.robots:Robot are random actions. Play them? [y/N]"
    assert question.encode() in shown
    assert Robot.made == (code == 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", *ONE], "t3d doctor makes more than one environment"),
        (["tune", *ONE], "single_env is for one run; a search has many"),
        (["train", *ONE, "--seeds", "2"], "single_env is for one run; train the runs of a sweep"),
        (["train", *ONE, "--num-envs", "2"], "--single-env does not go with --num-envs 2"),
    ],
)
def test_commands_that_need_more_environments_refuse(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(words, message, capsys)
    assert Robot.made == 0
    assert list(tmp_path.iterdir()) == []
