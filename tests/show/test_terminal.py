import io
from typing import Any

from rich.console import Console

from t3d import Config
from t3d.show.terminal import TerminalWatcher

TRAIN = {"critic_loss": 0.5, "actor_loss": 3.25, "mean_Q": -3.5, "steps_per_second": 20.0}
EVALUATION = {"mean": -150.0, "std": 80.0, "best_mean": -150.0, "best_step": 400}


def shown(terminal: bool, **more: float) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100)
    watcher = TerminalWatcher(console, Config(steps=1000, random_steps=0, collectors=8))
    lines: list[dict[str, Any]] = [
        {"kind": "episode", "step": 200, "return": -900.0},
        {"kind": "train", "step": 400, **TRAIN, **more},
        {"kind": "evaluation", "step": 400, **EVALUATION},
    ]
    for line in lines:
        watcher.record(line)
    watcher.tick(400)
    watcher.close()
    return screen.getvalue()


def test_without_a_terminal_an_evaluation_is_one_plain_line() -> None:
    last = shown(terminal=False).splitlines()[-1]
    assert last == (
        "step 400 of 1,000, speed 20 steps/s, return -900.0 (one episode), "
        "evaluation -150.0 ± 80.0 (best -150.0 at 400), "
        "critic loss 0.5, actor loss 3.25, mean Q -3.5, 0:30 left"
    )


def test_on_a_terminal_a_table_is_drawn_in_place() -> None:
    screen = shown(terminal=True)
    for words in ("-150.0 ± 80.0", "20 steps/s", "400 of 1,000 steps", "0:30", "mean Q"):
        assert words in screen
    assert "\x1b[" in screen


def test_collectors_are_counted_and_their_losses_told() -> None:
    assert "collectors 7 of 8, policies 87 steps old" in shown(
        terminal=False, collectors=7.0, staleness=87.25
    )
    screen = io.StringIO()
    watcher = TerminalWatcher(Console(file=screen, width=100), Config(collectors=8))
    lost = {"kind": "collectors", "step": 1200, "text": "collector 3 was lost; 7 of 8 play"}
    watcher.record(lost)
    assert screen.getvalue() == "step 1,200: collector 3 was lost; 7 of 8 play\n"
