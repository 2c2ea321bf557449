"""It learns: the default agent, from the command to the score."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from t3d.cli.main import main


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


def test_a_search_mends_a_bad_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = "steps = 5000\nrandom_steps = 500\nhidden = [64, 64]\nbatch_size = 64\n"
    seen = "eval_every = 500\neval_episodes = 5\n"
    bad = "learning_rate = 0.03\ntau = 0.5\ndiscount = 0.5\n"
    Path("bad.toml").write_text(f'why = "bad on purpose"\n[knobs]\n{short}{seen}{bad}')
    words = ["tune", "--preset", "bad.toml", "--hidden", "64", "64", "--threads", "1"]
    assert main([*words, "--trials", "4"]) == 0
    output = capsys.readouterr().out
    match = re.search(r"Best: (-[\d,.]+), trial \d of 4; the starting knobs had (-[\d,.]+)", output)
    assert match
    best, began = (float(value.replace(",", "")) for value in match.groups())
    assert began < -1000  # it cannot swing up
    assert best > -400
