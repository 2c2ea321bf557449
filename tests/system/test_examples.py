import runpy
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_td3_by_hand_learns_to_swing_up(capsys: object) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"]
    returns = by_hand(steps=8_000)
    assert len(returns) == 40
    assert np.mean(returns[:5]) < -900  # random play
    assert np.mean(returns[-5:]) > -400  # with exploration noise on
