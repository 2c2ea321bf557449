"""A sweep on the terminal: a live table of its runs, or plain lines where there is no terminal."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.run.folder import RunFolder
from t3d.run.records import Evaluation, Training, record_of
from t3d.show.terminal import say
from t3d.show.words import clock
from t3d.study.evaluations import Curve
from t3d.study.spec import Spec, SweepRun
from t3d.study.sweep import SweepOutcome, train_sweep

_READ_EVERY = 1.0  # seconds between looks at the runs' files
_READ_AT_ONCE = 16 * 2**20  # bytes
_PLAIN_EVERY = 10.0  # seconds between plain lines, unless a run starts or ends
_SLOW_START = 15.0  # seconds without a step, after which to say why
_STATES = ["training", "failed", "stopped", "finished", "waiting"]  # the most interesting first


def sweep(
    spec: Spec, out: Path, jobs: int | None, address: str | None, console: Console
) -> SweepOutcome:
    """Train a sweep, as processes here or on a Ray cluster, and show its progress."""
    return train_sweep(
        spec,
        out,
        jobs,
        address,
        lambda runs, jobs: SweepDisplay(console, runs, jobs),
        lambda: say(console, "stopping, every run saves; once more to quit at once"),
    )


class _Progress:
    """How far a run is, by its metrics.jsonl; only new lines are read."""

    def __init__(self, run: SweepRun) -> None:
        self._path = RunFolder(run.path).metrics_path
        self._restart()

    def _restart(self) -> None:
        self._read = 0
        self.step = 0
        self.speed = 0.0  # steps per second, of late
        self.last: float | None = None
        self.best: float | None = None

    def read(self) -> None:
        try:
            if files.regular_size(self._path) < self._read:  # it went back to a checkpoint
                self._restart()
            with files.open_regular(self._path) as file:
                file.seek(self._read)
                new = file.read(_READ_AT_ONCE)
            complete = new[: new.rfind(b"\n") + 1]
            for line in complete.splitlines():
                record = record_of(files.parse_json(line))
                self.step = record.step
                if isinstance(record, Training) and record.steps_per_second:
                    now = record.steps_per_second  # smoothed: one may be a hiccup
                    self.speed = 1 / (0.9 / self.speed + 0.1 / now) if self.speed else now
                elif isinstance(record, Evaluation):
                    self.last, self.best = record.mean, record.best_mean
            self._read += len(complete)
        except BadInput:
            pass  # it has not started
        except (OSError, ValueError, KeyError, TypeError):  # it was cut meanwhile: read it again
            self._restart()


class SweepDisplay:
    """Shows the state, steps and evaluations of every run, and the time left."""

    def __init__(self, console: Console, runs: list[SweepRun], jobs: int) -> None:
        self._console = console
        self._runs = [(run, _Progress(run)) for run in runs]
        self._jobs = jobs
        self._started = time.monotonic()
        self._states = ["waiting" for _ in runs]
        self._last_read = self._last_line = 0.0
        self._live: Live | None = None
        self._steps = sum(run.config.steps for run in runs)
        if console.is_terminal:
            self._live = Live("", console=console, auto_refresh=False)
            self._live.start()
            self.refresh()

    def refresh(self) -> None:
        """Read new records and show them, once a second at most."""
        now = time.monotonic()
        if now - self._last_read > _READ_EVERY:
            self._last_read = now
            self._show()

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._show(last=True)
        if self._live:
            self._live.stop()

    def _show(self, last: bool = False) -> None:
        for _, progress in self._runs:
            progress.read()
        if self._live:
            self._live.update(self._table(), refresh=True)
            return
        for (run, progress), before in zip(self._runs, self._states):
            if run.state != before:
                say(self._console, f"{run.path.name}: {_state(run, progress)}")
        self._states = [run.state for run, _ in self._runs]
        if last or time.monotonic() - self._last_line > _PLAIN_EVERY:
            self._last_line = time.monotonic()
            say(self._console, self._summary())

    def _done(self) -> int:
        return sum(min(progress.step, run.config.steps) for run, progress in self._runs)

    def _summary(self) -> str:
        counts = Counter(run.state for run, _ in self._runs)
        parts = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
        steps = f"step {self._done():,} of {self._steps:,}"
        if counts["training"] or counts["waiting"]:
            parts.append(f"{self.time_left()} left")
        if not self._done() and time.monotonic() - self._started > _SLOW_START:
            parts.append("no step yet: the first start on a machine compiles for a minute")
        return ", ".join([steps, *parts])

    def time_left(self) -> str:
        """An estimate from the speed of each run, or of the others where it has none yet."""
        speeds = [progress.speed for _, progress in self._runs if progress.speed]
        if not speeds:
            return "?"
        mean = sum(speeds) / len(speeds)
        seconds = [
            max(0, run.config.steps - progress.step) / (progress.speed or mean)
            for run, progress in self._runs
            if run.state in ("training", "waiting")
        ]
        return clock(max(sum(seconds) / self._jobs, max(seconds, default=0.0)))

    def _table(self) -> Group:
        """All runs, or, where the screen is too small, the most interesting ones."""
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        for _ in range(3):
            table.add_column(justify="right", no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")  # why it failed may be long
        table.add_row("run", "step", "evaluation", "best", "", style="dim")
        lines = max(1, self._console.height - 5)
        shown = self._runs
        if len(shown) > lines:
            shown = sorted(shown, key=lambda pair: _STATES.index(pair[0].state))[:lines]
        for run, progress in shown:
            steps = f"{progress.step:,} of {run.config.steps:,}"
            last, best = ("" if v is None else f"{v:,.1f}" for v in (progress.last, progress.best))
            style = {"failed": "red", "finished": "green", "waiting": "dim"}.get(run.state, "")
            state = Text(f"failed: {run.why}" if run.why else run.state, style)
            table.add_row(Text(run.path.name), steps, last, best, state)
        bar = Table.grid(expand=True)  # alone, it would end without a new line
        bar.add_row(ProgressBar(total=self._steps, completed=self._done()))
        return Group(bar, table, Text(self._summary()))


def _state(run: SweepRun, progress: _Progress) -> str:
    if run.why:
        return f"failed: {run.why}"
    step = f" at step {progress.step:,}" if progress.step else ""
    best = "" if progress.best is None else f", best evaluation {progress.best:,.1f}"
    return f"{run.state}{step}{best}"


def scores(runs: list[SweepRun]) -> list[str]:
    """The scores of the finished runs by environment and setting, as the lines of a table."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for run in runs:
        score = RunFolder(run.path).score() if run.state == "finished" else None
        if score:
            seeds = groups.setdefault((run.config.env, run.setting), {})
            seeds[run.config.seed] = score["mean"]
    rows = [("environment", "setting", "seeds", "score", "95 % interval")]
    for (env, setting), seeds in groups.items():
        means = np.array(list(seeds.values()))[:, None]
        curve = Curve(setting, list(seeds), np.zeros(1), means)
        low, high = curve.interval()
        spread = f"{low[0]:,.1f} to {high[0]:,.1f}" if len(seeds) > 1 else ""
        rows.append((env, setting, str(len(seeds)), f"{curve.mean()[0]:,.1f}", spread))
    if not groups:
        return []
    columns = []
    for at, column in enumerate(zip(*rows)):
        if any(column[1:]):  # without axes, there are no settings; with one seed, no interval
            width = max(map(len, column))
            columns.append([f"{w:>{width}}" if at > 1 else f"{w:<{width}}" for w in column])
    return ["  ".join(row).rstrip() for row in zip(*columns)]
