import io
import json
from pathlib import Path

from rich.console import Console

from t3d.show.sweep import SweepDisplay, scores
from t3d.study.spec import Spec, SweepRun, runs_of


def some_runs(out: Path, seeds: int) -> list[SweepRun]:
    values = {"env": "Pendulum-v1", "seeds": seeds, "knobs": {"steps": 1000, "tau": [0.1, 0.2]}}
    return runs_of(Spec.from_dict(values), out)


def write(run: SweepRun, step: int, mean: float) -> None:
    """What a run's metrics.jsonl says at some step, with the beginning of a line to come."""
    run.path.mkdir(exist_ok=True)
    records = [
        {"kind": "evaluation", "step": 0, "mean": -9.0, "best_mean": -9.0},
        {"kind": "train", "step": step, "steps_per_second": 100.0},
        {"kind": "evaluation", "step": step, "mean": mean, "best_mean": max(-9.0, mean)},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run.path / "metrics.jsonl").write_text(lines + '{"kind": "tra')


def screen(runs: list[SweepRun], height: int) -> list[str]:
    """The last state of the table, as text."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, height=height, color_system=None)
    display = SweepDisplay(console, runs, jobs=2)
    output.truncate(0)
    output.seek(0)
    display.close()
    drawn = output.getvalue().rpartition("\x1b[1A")[2]  # what is there after the last clearing
    return [line.rstrip() for line in drawn.splitlines() if line.strip()]


def test_the_table_shows_every_run_and_the_time_left(tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 2)
    write(runs[0], 400, -5.0)
    write(runs[1], 200, -12.0)
    runs[0].state = runs[1].state = "training"
    runs[2].state, runs[2].why = "failed", "tau [is] no good " + 9 * "at all "
    bar, head, *_ = lines = screen(runs, 40)
    assert set(bar.removeprefix("\x1b[2K")) <= set("━╸╺ ")
    assert head.split() == ["run", "step", "evaluation", "best"]
    text = "\n".join(lines)
    assert "Pendulum-v1-tau-0.1-seed0  400 of 1,000        -5.0  -5.0  training" in text
    assert "Pendulum-v1-tau-0.1-seed1  200 of 1,000       -12.0  -9.0  training" in text
    assert "failed: tau [is] no good" in text
    # 600, 800 and 1,000 steps at 100 a second, two at a time.
    assert "step 600 of 4,000, 2 training, 1 failed, 1 waiting, 0:12 left" in text


def test_a_hiccup_does_not_upset_the_time_left(tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 1)
    write(runs[0], 400, -5.0)
    path = runs[0].path / "metrics.jsonl"
    slow = {"kind": "train", "step": 500, "steps_per_second": 10.0}
    path.write_text(path.read_text().rpartition("\n")[0] + "\n" + json.dumps(slow) + "\n")
    for run, state in zip(runs, ("training", "finished")):
        run.state = state
    # 500 steps at 0.9 / 100 + 0.1 / 10 seconds each, which is 9.5; at 10 a second, it would be 50.
    assert "1 training, 1 finished, 0:10 left" in "\n".join(screen(runs, 40))


def test_a_small_screen_shows_what_matters(tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 30)
    runs[37].state = runs[51].state = "training"
    runs[8].state, runs[8].why = "failed", "diverged"
    lines = screen(runs, 12)
    assert len(lines) <= 12
    shown = "\n".join(lines)
    for at in (37, 51, 8):
        assert runs[at].path.name in shown
    assert "2 training, 1 failed, 57 waiting" in shown


def test_what_went_back_to_a_checkpoint_is_read_again(tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 1)
    output = io.StringIO()
    display = SweepDisplay(Console(file=output, width=200), runs, jobs=1)
    write(runs[0], 900, 1.0)
    runs[0].state = "training"
    display.refresh()
    (runs[0].path / "metrics.jsonl").write_text('{"kind": "episode", "step": 100, "return": 1}\n')
    runs[0].state = "stopped"
    display.close()
    text = output.getvalue()
    assert "Pendulum-v1-tau-0.1-seed0: training at step 900, best evaluation 1.0\n" in text
    assert "Pendulum-v1-tau-0.1-seed0: stopped at step 100\n" in text
    assert "\x1b" not in text


def test_scores_are_means_over_the_seeds_that_finished(tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 3)
    assert scores(runs) == []
    for run, mean in zip(runs, (1.0, 2.0, 6.0, -4.0)):
        run.state = "finished"
        run.path.mkdir()
        facts = {"mean": mean, "std": 0.0, "episodes": 10, "step": 1000}
        (run.path / "score.json").write_text(json.dumps(facts))
    head, three, one = (line.split("  ") for line in scores(runs))
    assert [word.strip() for word in head if word] == [
        *("environment", "setting", "seeds", "score", "95 % interval")
    ]
    assert [word.strip() for word in three if word] == [
        *("Pendulum-v1", "tau 0.1", "3", "3.0", "1.0 to 6.0")
    ]
    assert [word.strip() for word in one if word] == ["Pendulum-v1", "tau 0.2", "1", "-4.0"]
