import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from t3d import Config, Episode, Evaluation, Training
from t3d.run.loop import Run
from t3d.run.records import CollectorChange, HealthWarning, Record, Restart, Stop
from t3d.show import progress, terminal
from t3d.show.terminal import TerminalWatcher
from t3d.show.words import clock

MEASURES: dict[str, float | None] = {"critic_loss": 0.5, "actor_loss": 3.25, "mean_Q": -3.5}


def shown(records: list[Record], interactive: bool = False) -> str:
    """What the terminal shows of a run to 1,000 steps with these records."""
    screen = io.StringIO()
    watcher = TerminalWatcher(Console(file=screen, force_terminal=interactive, width=100))
    config = Config(steps=1000, random_steps=0, collectors=8)
    run = cast(Run, SimpleNamespace(config=config, collector=SimpleNamespace(steps=0)))
    watcher.on_start(run)
    for record in records:
        watcher.on_record(record)
    watcher.on_step(400)
    watcher.on_end(run)
    return screen.getvalue()


def learning(**more: float) -> list[Record]:
    now: Any = {"step": 400, "seconds": 20.0}
    best: Any = {"best_mean": -150.0, "best_step": 400, "returns": [-150.0], "lengths": [200]}
    return [
        Episode(step=200, seconds=10.0, env=0, episode=0, length=200, return_=-900.0),
        Training(
            updates=400, memory=400, measures={**MEASURES, **more}, steps_per_second=20, **now
        ),
        Evaluation(mean=-150.0, std=80.0, **best, **now),
    ]


def test_without_a_terminal_an_evaluation_is_one_plain_line() -> None:
    last = shown(learning()).splitlines()[-1]
    assert last == (
        "step 400 of 1,000, speed 20 steps/s, return -900.0 (one episode), "
        "evaluation -150.0 ± 80.0 (best -150.0 at 400), "
        "critic loss 0.5, actor loss 3.25, mean Q -3.5, 0:30 left"
    )


def test_without_a_terminal_slow_steps_are_plain_lines_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown([]) == ""
    monkeypatch.setattr(terminal, "_PLAIN_EVERY", -1.0)
    assert shown([]).startswith("step 400 of 1,000")


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"num_envs": 16, "env_backend": "processes"}, "starting 16 processes of environments ..."),
        ({"num_envs": 15, "env_backend": "processes"}, ""),
        ({"num_envs": 4096}, ""),
        ({"hidden": (64, 5000, 5000)}, "making networks of 25,320,000 weights and more ..."),
        ({"hidden": (1024, 1024)}, ""),
    ],
)
def test_what_takes_long_to_start_is_said_first(knobs: dict[str, Any], line: str) -> None:
    screen = io.StringIO()
    progress._announce_start(Config.from_dict(knobs), Console(file=screen, width=100))
    assert screen.getvalue().strip() == line


def test_on_a_terminal_a_table_is_drawn_in_place() -> None:
    screen = shown(learning(), interactive=True)
    for words in ("-150.0 ± 80.0", "20 steps/s", "400 of 1,000 steps", "0:30", "mean Q"):
        assert words in screen
    assert "\x1b[" in screen


def times_left(steps: int, random_steps: int, spans: list[tuple[int, float]]) -> list[str]:
    """What is left after each span, of so many steps at so many steps per second."""
    watcher = TerminalWatcher(Console(quiet=True))
    config = Config(steps=steps, random_steps=random_steps)
    run = cast(Run, SimpleNamespace(config=config, collector=SimpleNamespace(steps=0)))
    watcher.on_start(run)
    step, left = 0, []
    for length, speed in spans:
        step += length
        now: Any = {"step": step, "seconds": 1.0, "updates": 0, "memory": 1, "measures": {}}
        watcher.on_record(Training(steps_per_second=speed, **now))
        left.append(watcher.time_left())
    return left


def test_the_time_left_is_estimated_from_learning_alone() -> None:
    play, mixed, learn = (1000, 10_000.0), (1000, 500.0), (1000, 100.0)
    # 1,500 random steps: the second record is of both, the third of learning alone.
    assert times_left(10_000, 1500, [play, mixed, learn]) == ["", "", "1:10"]
    # A run that never learns goes on as it began.
    assert times_left(2000, 5000, [(1000, 10.0)]) == ["1:40"]


def test_before_the_first_record_of_learning_the_clock_tells_the_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("t3d.show.terminal.time.monotonic", lambda: seconds[0])
    screen = io.StringIO()
    watcher = TerminalWatcher(Console(file=screen, force_terminal=True, width=100))
    config = Config(steps=1100, random_steps=100)
    run = cast(Run, SimpleNamespace(config=config, collector=SimpleNamespace(steps=0)))
    watcher.on_start(run)
    for seconds[0], step in ((1.0, 50), (2.0, 100), (12.0, 200)):
        watcher.on_step(step)
        assert watcher.time_left() == ("" if step <= 100 else "1:30")
    watcher.on_end(run)
    assert "estimating" in screen.getvalue()


def test_collectors_are_counted() -> None:
    counted = shown(learning(collectors=7.0, staleness=87.25))
    assert "collectors 7 of 8, policies 87 steps old" in counted


def test_late_steps_are_shown() -> None:
    assert "late 3 steps, by up to 12.5 ms" in shown(learning(late_steps=3.0, late_ms=12.5))


def test_what_happens_to_a_run_is_a_sentence() -> None:
    now: Any = {"step": 1200, "seconds": 60.0}
    lost = "collector 3 was lost; 7 of 8 play"
    records = [
        CollectorChange(collector=3, playing=7, of=8, why="was lost", text=lost, **now),
        Restart(env=2, episode=5, why="was killed by SIGKILL", **now),
        HealthWarning(name="collapsed", text="the policy plays one action", **now),
        Stop(watcher="StopAtReturn", reason="a mean return of 300", **now),
    ]
    assert shown(records).splitlines() == [
        "step 1,200: collector 3 was lost; 7 of 8 play",
        "step 1,200: the process of environment 2 was killed by SIGKILL; restarted, "
        "with a new episode",
        "step 1,200, warning: the policy plays one action",
        "step 1,200: StopAtReturn stops the run: a mean return of 300",
    ]


def test_a_clock_reads_like_one() -> None:
    assert [clock(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]
