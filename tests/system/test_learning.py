"""It learns: the default agent, from the command to the score."""

import json
from pathlib import Path

import numpy as np
import pytest

from t3d.cli import main


def test_the_default_command_swings_up_the_pendulum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "--run", run, "--no-video", "--threads", "1"]) == 0
    capsys.readouterr()
    assert main(["eval", run, "--episodes", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] >= -200


def test_the_notes_way_learns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A burst after each episode, with as many iterations as the episode had steps."""
    run = str(tmp_path / "run")
    words = ["train", "--run", run, "--no-video", "--threads", "1", "--train-after", "episode"]
    assert main([*words, "--num-envs", "2"]) == 0
    capsys.readouterr()
    assert main(["eval", run, "--episodes", "10", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["mean"] > -400
    assert np.isfinite(score["returns"]).all()
