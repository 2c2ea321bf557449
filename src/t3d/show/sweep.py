"""A sweep on the terminal: a live table of its cells, or plain lines where there is no terminal."""

import json
import time
from collections import Counter

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from t3d.run.folder import RunFolder
from t3d.show.plots import Curve
from t3d.show.terminal import clock, say
from t3d.study.sweep import Cell

_LOOK_EVERY = 1.0  # seconds between looks at the cells' files
_PLAIN_EVERY = 10.0  # seconds between plain lines, unless a cell begins or ends
_SLOW_START = 15.0  # seconds without a step, after which to say why
_MATTERS = ["training", "failed", "stopped", "finished", "waiting"]  # most first


class _Progress:
    """What metrics.jsonl tells of one cell; only what is new is read."""

    def __init__(self, cell: Cell) -> None:
        self._path = RunFolder(cell.path).metrics_path
        self._forget()

    def _forget(self) -> None:
        self._read = 0
        self.step = 0
        self.speed = 0.0  # steps per second, of late
        self.last: float | None = None
        self.best: float | None = None

    def look(self) -> None:
        try:
            if self._path.stat().st_size < self._read:  # it went back to a checkpoint
                self._forget()
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            for line in whole.splitlines():
                record = json.loads(line)
                self.step = int(record["step"])
                if record["kind"] == "train":
                    now = float(record["steps_per_second"])  # a moment's: it may be a hiccup
                    self.speed = 1 / (0.9 / self.speed + 0.1 / now) if self.speed else now
                elif record["kind"] == "evaluation":
                    self.last, self.best = float(record["mean"]), float(record["best_mean"])
            self._read += len(whole)
        except FileNotFoundError:
            pass  # it has not begun
        except (OSError, ValueError, KeyError, TypeError):  # it was cut meanwhile: all over again
            self._forget()


class SweepWatcher:
    """Shows the state, steps and evaluations of every cell, and the time left."""

    def __init__(self, console: Console, cells: list[Cell], jobs: int) -> None:
        self._console = console
        self._cells = [(cell, _Progress(cell)) for cell in cells]
        self._jobs = jobs
        self._began = time.monotonic()
        self._states = ["waiting" for _ in cells]
        self._looked = self._said = 0.0
        self._live: Live | None = None
        self._steps = sum(cell.config.steps for cell in cells)
        if console.is_terminal:
            self._live = Live("", console=console, auto_refresh=False)
            self._live.start()
            self.look()

    def look(self) -> None:
        """Read what is new and show it, but not more often than is of use."""
        now = time.monotonic()
        if now - self._looked > _LOOK_EVERY:
            self._looked = now
            self._show()

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._show(last=True)
        if self._live:
            self._live.stop()

    def _show(self, last: bool = False) -> None:
        for _, progress in self._cells:
            progress.look()
        if self._live:
            self._live.update(self._table(), refresh=True)
            return
        for (cell, progress), before in zip(self._cells, self._states):
            if cell.state != before:
                say(self._console, f"{cell.path.name}: {_told(cell, progress)}")
        self._states = [cell.state for cell, _ in self._cells]
        if last or time.monotonic() - self._said > _PLAIN_EVERY:
            self._said = time.monotonic()
            say(self._console, self._summary())

    def _done(self) -> int:
        return sum(min(progress.step, cell.config.steps) for cell, progress in self._cells)

    def _summary(self) -> str:
        counts = Counter(cell.state for cell, _ in self._cells)
        told = [f"{counts[state]} {state}" for state in _MATTERS if counts[state]]
        steps = f"step {self._done():,} of {self._steps:,}"
        if counts["training"] or counts["waiting"]:
            told.append(f"{self.time_left()} left")
        if not self._done() and time.monotonic() - self._began > _SLOW_START:
            told.append("no step yet: the first start on a machine compiles for a minute")
        return ", ".join([steps, *told])

    def time_left(self) -> str:
        """An estimate from the pace of each cell, or of the others where it has none yet."""
        known = [progress.speed for _, progress in self._cells if progress.speed]
        if not known:
            return "?"
        usual = sum(known) / len(known)
        seconds = [
            max(0, cell.config.steps - progress.step) / (progress.speed or usual)
            for cell, progress in self._cells
            if cell.state in ("training", "waiting")
        ]
        return clock(max(sum(seconds) / self._jobs, max(seconds, default=0.0)))

    def _table(self) -> Group:
        """All cells, or, where the screen is too small, those that matter most."""
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        for _ in range(3):
            table.add_column(justify="right", no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")  # why it failed may be long
        table.add_row("cell", "step", "evaluation", "best", "", style="dim")
        room = max(1, self._console.height - 5)
        shown = self._cells
        if len(shown) > room:
            shown = sorted(shown, key=lambda pair: _MATTERS.index(pair[0].state))[:room]
        for cell, progress in shown:
            steps = f"{progress.step:,} of {cell.config.steps:,}"
            last, best = ("" if v is None else f"{v:,.1f}" for v in (progress.last, progress.best))
            style = {"failed": "red", "finished": "green", "waiting": "dim"}.get(cell.state, "")
            state = Text(f"failed: {cell.why}" if cell.why else cell.state, style)
            table.add_row(Text(cell.path.name), steps, last, best, state)
        bar = Table.grid(expand=True)  # alone, it would end without a new line
        bar.add_row(ProgressBar(total=self._steps, completed=self._done()))
        return Group(bar, table, Text(self._summary()))


def _told(cell: Cell, progress: _Progress) -> str:
    if cell.why:
        return f"failed: {cell.why}"
    step = f" at step {progress.step:,}" if progress.step else ""
    best = "" if progress.best is None else f", best evaluation {progress.best:,.1f}"
    return f"{cell.state}{step}{best}"


def scores(cells: list[Cell]) -> list[str]:
    """The scores of the finished cells by environment and setting, as the lines of a table."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for cell in cells:
        score = RunFolder(cell.path).score() if cell.state == "finished" else None
        if score:
            seeds = groups.setdefault((cell.config.env, cell.setting), {})
            seeds[cell.config.seed] = score["mean"]
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
