"""`t3d` that gets a real signal at a chosen moment: signalling.py SIGNAL WHO MOMENT WORD ..."""

import os
import signal
import sys
from typing import Any

from t3d.cli.main import main
from t3d.play.collect import Collector
from t3d.run import agents, checkpoint
from t3d.run.folder import RunFolder
from t3d.run.learning import Learning

# The function in which the signal comes, and which call of it.
MOMENTS: dict[str, tuple[Any, str, int]] = {
    "starting": (RunFolder, "write_config", 1),
    "random play": (Collector, "step", 40),
    "learning": (Learning, "learn", 90),
    "evaluation": (Collector, "evaluate", 2),
    "saving": (checkpoint, "_write_part", 8),
    "scoring": (agents, "play_episodes", 1),
}


def send_at(moment: str, number: int, everyone: bool) -> None:
    """Send a signal at a moment: to this process, or to all of its group."""
    owner, name, call = MOMENTS[moment]
    original, calls = getattr(owner, name), 0

    def watched(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.killpg(0, number) if everyone else os.kill(os.getpid(), number)
        return original(*arguments, **named)

    setattr(owner, name, watched)


if __name__ == "__main__":
    number, who, moment, *words = sys.argv[1:]
    send_at(moment, signal.Signals[number], who == "group")
    sys.exit(main(words))
