import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.runs import TINY
from t3d.cli.main import main as command
from t3d.run.folder import RunFolder
from t3d.run.records import Stop

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which the examples can be imported, and that runs may be written to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("own_agent", "own_body"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def typed(knobs: dict[str, Any]) -> list[str]:
    """Knobs as words of a command."""
    words: list[str] = []
    for name, value in knobs.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


def test_td3_by_hand_learns_to_swing_up(capsys: object) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"]
    returns = by_hand(steps=8_000)
    assert len(returns) == 40
    assert np.mean(returns[:5]) < -900  # random play
    assert np.mean(returns[-5:]) > -400  # with exploration noise on


def test_an_own_agent_trains_from_python_and_from_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_agent = importlib.import_module("own_agent")
    agent = own_agent.main(run="python", preset="default", quiet=True, **TINY)
    assert type(agent) is own_agent.Careful
    assert "the torque on a hanging pendulum: " in capsys.readouterr().out
    words = ["train", "Pendulum-v1", "--agent", "own_agent:Careful", "--preset", "default"]
    assert command([*words, "--run", "command", "--no-video", *typed(TINY)]) == 0
    out = capsys.readouterr().out
    assert "engine reference (fused runs the agent t3d, not own_agent:Careful)" in out
    # The same run, and not TD3's.
    t3d.train("Pendulum-v1", run="plain", preset="default", engine="reference", quiet=True, **TINY)
    digests = [t3d.inspect(name)["digest"] for name in ("python", "command", "plain")]
    assert digests[0] == digests[1] != digests[2]


def test_an_own_body_trains_from_python_and_from_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_body = importlib.import_module("own_body")
    agent = own_body.main(run="python", preset="default", quiet=True, **TINY)
    assert isinstance(next(agent.actor.layers.children()), own_body.Residual)
    words = ["train", "Pendulum-v1", "--body", "own_body:residual", "--preset", "default"]
    assert command([*words, "--run", "command", "--no-video", *typed(TINY)]) == 0
    out = capsys.readouterr().out
    assert "engine reference (fused has no network body own_body:residual, only mlp)" in out
    digests = [t3d.inspect(name)["digest"] for name in ("python", "command")]
    assert digests[0] == digests[1]
    assert command(["resume", "command", "--steps", "80", "--no-video"]) == 0


def test_a_watcher_stops_at_a_return(tmp_path: Path) -> None:
    stop_at_return = runpy.run_path(str(EXAMPLES / "stop_at_return.py"))["StopAtReturn"]
    run = tmp_path / "run"
    t3d.train(run=run, quiet=True, watchers=[stop_at_return(-1e4)], **TINY)
    *_, stop = RunFolder(run).records()
    assert isinstance(stop, Stop)
    assert (stop.step, stop.watcher) == (0, "StopAtReturn")
    assert stop.reason.endswith(", limit -10000.0")
    t3d.resume(run, quiet=True, watchers=[stop_at_return(1e4)])
    assert t3d.inspect(run)["finished"]


def test_the_loop_of_the_notes_runs(capsys: object) -> None:
    loop = runpy.run_path(str(EXAMPLES / "notes_loop.py"))["main"]
    short = {"max_timesteps": 800, "start_timesteps": 200}
    returns = loop(**short)
    assert len(returns) == 4
    assert loop(**short) == returns  # the same seed, the same numbers
    assert loop(**short, seed=1) != returns
