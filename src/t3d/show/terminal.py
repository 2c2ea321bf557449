"""A run on the terminal: a live table, or plain lines where there is no terminal."""

import os
import sys
import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from t3d.config import Config
from t3d.run.folder import Record
from t3d.show.words import clock

_PLAIN_EVERY = 10.0  # seconds between plain lines, evaluations aside


class PatientConsole(Console):
    """A console whose reader may leave, as `head` does, without ending the run."""

    def on_broken_pipe(self) -> None:
        """Go on in silence."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class TerminalWatcher:
    """Shows progress with the time left, speed, returns, losses and mean Q."""

    def __init__(self, console: Console, config: Config, first_step: int = 0) -> None:
        self._console = console
        self._config = config
        self._first_step = first_step
        self._started = time.monotonic()
        self._returns: deque[float] = deque(maxlen=10)
        self._train: Record = {}
        self._evaluation: Record = {}
        self._drawn = 0.0
        self._step = first_step
        self._live: Live | None = None
        self._bar = Progress(
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=config.steps, completed=first_step)
        if console.is_terminal:
            self._live = Live(self._table(), console=console, auto_refresh=False)
            self._live.start()

    def tick(self, step: int) -> None:
        """Draw, but not more often than an eye can see."""
        self._step = step
        now = time.monotonic()
        if self._live and now - self._drawn > 0.2:
            self._drawn = now
            self._draw()

    def record(self, record: Record) -> None:
        """Remember a line of metrics.jsonl, and show it."""
        self._step = record["step"]
        if record["kind"] == "episode":
            self._returns.append(record["return"])
            return
        if record["kind"] == "warning":
            say(self._console, f"step {self._step:,}, warning: {record['text']}")
            return
        if record["kind"] == "restart":
            what = f"the process of environment {record['env']} {record['why']}"
            say(self._console, f"step {self._step:,}: {what}; restarted, with a new episode")
            return
        if record["kind"] == "collectors":
            say(self._console, f"step {self._step:,}: {record['text']}")
            return
        if record["kind"] == "train":
            self._train = record
        else:
            self._evaluation = record
        now = time.monotonic()
        if self._live:
            self._draw()
        elif record["kind"] == "evaluation" or now - self._drawn > _PLAIN_EVERY:
            self._drawn = now
            say(self._console, self._line())

    def close(self) -> None:
        """Leave the last state of the table on the screen."""
        if self._live:
            self._draw()
            self._live.stop()

    def time_left(self) -> str:
        """An estimate from the pace of this process so far."""
        done = self._step - self._first_step
        if done <= 0:
            return "?"
        # Random steps cost nothing beside the ones with updates; they would flatter the pace.
        recent = self._train.get("steps_per_second")
        learning = self._step > self._config.random_steps
        pace = recent if recent and learning else done / (time.monotonic() - self._started)
        return clock((self._config.steps - self._step) / max(pace, 1e-9))

    def _facts(self) -> dict[str, str]:
        facts = {}
        if "steps_per_second" in self._train:
            facts["speed"] = f"{self._train['steps_per_second']:,.0f} steps/s"
        if "collectors" in self._train:
            old = f"policies {self._train['staleness']:,.0f} steps old"
            facts["collectors"] = (
                f"{self._train['collectors']:.0f} of {self._config.collectors}, {old}"
            )
        if self._returns:
            mean = sum(self._returns) / len(self._returns)
            last = (
                f"last {len(self._returns)} episodes" if len(self._returns) > 1 else "one episode"
            )
            facts["return"] = f"{mean:,.1f} ({last})"
        if self._evaluation:
            mean, std = self._evaluation["mean"], self._evaluation["std"]
            best = f"best {self._evaluation['best_mean']:,.1f} at {self._evaluation['best_step']:,}"
            facts["evaluation"] = f"{mean:,.1f} ± {std:,.1f} ({best})"
        for name in ("critic_loss", "actor_loss", "mean_Q"):
            if self._train.get(name) is not None:
                facts[name.replace("_", " ")] = f"{self._train[name]:,.4g}"
        return facts

    def _table(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", justify="right")
        table.add_column()
        for name, value in self._facts().items():
            table.add_row(name, value)
        if self._step >= self._config.steps:
            table.add_row("done in", clock(time.monotonic() - self._started))
        else:
            playing = self._step < self._config.random_steps
            table.add_row("now", "random play, to fill the memory" if playing else "learning")
            table.add_row("time left", self.time_left())
        return Group(self._bar, table)

    def _draw(self) -> None:
        assert self._live is not None
        self._bar.update(self._task, completed=min(self._step, self._config.steps))
        self._live.update(self._table(), refresh=True)

    def _line(self) -> str:
        facts = [f"{name} {value}" for name, value in self._facts().items()]
        share = f"step {self._step:,} of {self._config.steps:,}"
        return ", ".join([share, *facts, f"{self.time_left()} left"])


def say(console: Console, text: str) -> None:
    """Print a line as it is: no colours, no markup, no breaks but the terminal's own."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
