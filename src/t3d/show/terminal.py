"""A run on the terminal: a live table, or plain lines where there is no terminal."""

import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from t3d.base.text import clean, percent
from t3d.play.envs import env_role
from t3d.run.loop import Run
from t3d.run.records import (
    CollectorChange,
    Episode,
    Evaluation,
    HealthWarning,
    KnobChange,
    Record,
    Restart,
    Stop,
    Training,
)
from t3d.run.watchers import Watcher
from t3d.show.words import clock

_FEW = 4  # numbers of an info in the table
_PLAIN_EVERY = 10.0  # seconds between plain lines, evaluations aside


class PatientConsole(Console):
    """A console whose reader may leave, as `head` does. For all else, see base/output.py."""

    def on_broken_pipe(self) -> None:
        """Continue in silence."""
        self.quiet = True


class TerminalWatcher(Watcher):
    """Shows progress with the time left, speed, returns, losses and mean Q."""

    optional = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._returns: deque[float] = deque(maxlen=10)
        self._training: Training | None = None
        self._evaluation: Evaluation | None = None
        self._info: dict[str, float] = {}  # of the last episode
        self._live: Live | None = None
        self._drawn = 0.0

    def on_start(self, run: Run) -> None:
        """Begin to draw."""
        self._config = run.config
        self._step = self._logged = run.collector.steps
        self._started = time.monotonic()
        # Random steps are far faster than those with updates: they say nothing about these.
        learns = run.config.steps > run.config.random_steps
        self._learns_from = run.config.random_steps if learns else 0
        self._began: tuple[int, float] | None = None  # the first step of learning, and when
        self._speed = 0.0  # of learning, in steps per second; 0 = unknown
        self._bar = Progress(
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=run.config.steps, completed=self._step)
        if self._console.is_terminal:
            self._live = Live(self._table(), console=self._console, auto_refresh=False)
            self._live.start()

    def on_step(self, step: int) -> None:
        """Draw, but not more often than an eye can see."""
        self._step = step
        now = time.monotonic()
        if self._began is None and step >= self._learns_from:
            self._began = step, now
        if self._live and now - self._drawn > 0.2:
            self._drawn = now
            self._draw()
        elif not self._live and now - max(self._drawn, self._started) > _PLAIN_EVERY:
            self._drawn = now  # steps that take long: the next record may be hours away
            say(self._console, self._line())

    def on_record(self, record: Record) -> None:
        """Remember the numbers of a record, and show it."""
        self._step = record.step
        if isinstance(record, Episode):
            self._returns.append(record.return_)
            self._info = record.info
            return
        if isinstance(record, Training):
            self._training = record
            if self._logged >= self._learns_from:
                self._speed = record.steps_per_second or 0.0
            self._logged = record.step
        elif isinstance(record, Evaluation):
            self._evaluation = record
        else:
            say(self._console, _sentence(record))
            return
        now = time.monotonic()
        if self._live:
            self._draw()
        elif isinstance(record, Evaluation) or now - self._drawn > _PLAIN_EVERY:
            self._drawn = now
            say(self._console, self._line())

    def on_wait(self, what: str) -> None:
        """Show what takes long."""
        say(self._console, f"step {self._step:,}: {what}")

    def on_end(self, run: Run) -> None:
        """Leave the last state of the table on the screen."""
        if self._live:
            self._draw()
            self._live.stop()

    def time_left(self) -> str:
        """An estimate from the speed of learning; empty as long as that is unknown."""
        left, speed = self._config.steps - self._step, self._speed
        if not speed and self._began:  # no record of learning alone yet
            step, then = self._began
            speed = (self._step - step) / max(time.monotonic() - then, 1e-9)
        return clock(left / speed) if speed > 0 else ""

    def _facts(self) -> dict[str, str]:
        facts = {}
        training, evaluation = self._training, self._evaluation
        measures = training.measures if training else {}
        if training:
            facts["speed"] = f"{training.steps_per_second:,.0f} steps/s"
        if "late_steps" in measures:
            late = f"{measures['late_steps']:,.0f} steps"
            facts["late"] = f"{late}, by up to {measures['late_ms']:,.1f} ms"
        if "collectors" in measures:
            old = f"policies {measures['staleness']:,.0f} steps old"
            facts["collectors"] = (
                f"{measures['collectors']:.0f} of {self._config.collectors}, {old}"
            )
        if self._returns:
            mean, count = sum(self._returns) / len(self._returns), len(self._returns)
            last = f"last {count} episodes" if count > 1 else "one episode"
            facts["return"] = f"{mean:,.1f} ({last})"
        if evaluation:
            best = f"best {evaluation.best_mean:,.1f} at {evaluation.best_step:,}"
            facts["evaluation"] = f"{evaluation.mean:,.1f} ± {evaluation.std:,.1f} ({best})"
        rates = {
            "of recent episodes": training.success_rate if training else None,
            "in the evaluation": evaluation.success if evaluation else None,
        }
        successes = [
            f"{percent(rate)} {where}" for where, rate in rates.items() if rate is not None
        ]
        if successes:
            facts["success"] = " and ".join(successes)
        for name in ("critic_loss", "actor_loss", "mean_Q"):
            value = measures.get(name)
            if value is not None:
                facts[name.replace("_", " ")] = f"{value:,.4g}"
        return facts

    def _table(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", justify="right")
        table.add_column()
        for name, value in self._facts().items():
            table.add_row(name, value)
        if self._info:
            table.add_row("info", Text(_few(self._info)))  # a name may look like markup
        if self._step >= self._config.steps:
            table.add_row("done in", clock(time.monotonic() - self._started))
        else:
            playing = self._step < self._config.random_steps
            table.add_row("now", "random play, to fill the memory" if playing else "learning")
            table.add_row("time left", self.time_left() or "estimating")
        return Group(self._bar, table)

    def _draw(self) -> None:
        assert self._live is not None
        self._bar.update(self._task, completed=min(self._step, self._config.steps))
        self._live.update(self._table(), refresh=True)

    def _line(self) -> str:
        facts = [f"{name} {value}" for name, value in self._facts().items()]
        share = f"step {self._step:,} of {self._config.steps:,}"
        left = self.time_left()
        return ", ".join([share, *facts, *([f"{left} left"] if left else [])])


def _few(info: dict[str, float]) -> str:
    """The first numbers of an info."""
    first = [f"{name} {value:,.4g}" for name, value in list(info.items())[:_FEW]]
    more = [f"{len(info) - _FEW} more"] if len(info) > _FEW else []
    return ", ".join(first + more)


def _sentence(record: Record) -> str:
    """What happened, in words."""
    match record:
        case HealthWarning():
            return f"step {record.step:,}, warning: {record.text}"
        case Restart():
            episode = "its episode again" if record.env is None else "a new episode"
            lost = f"the process of {env_role(record.env)} {record.why}"
            return f"step {record.step:,}: {lost}; restarted, with {episode}"
        case CollectorChange() | KnobChange():
            return f"step {record.step:,}: {record.text}"
        case Stop():
            return f"step {record.step:,}: {record.watcher} stops the run: {record.reason}"
    return f"step {record.step:,}: {record.kind}"


def say(console: Console, text: str) -> None:
    """Print a line: no colours, no markup, no breaks but the terminal's own."""
    console.print(clean(text), highlight=False, markup=False, soft_wrap=True)
