import runpy
from pathlib import Path

import numpy as np

import t3d
from helpers.runs import TINY
from t3d.run.folder import RunFolder
from t3d.run.records import Stop

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_td3_by_hand_learns_to_swing_up(capsys: object) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"]
    returns = by_hand(steps=8_000)
    assert len(returns) == 40
    assert np.mean(returns[:5]) < -900  # random play
    assert np.mean(returns[-5:]) > -400  # with exploration noise on


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
