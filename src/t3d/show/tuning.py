"""A search for knobs, on the terminal and as a picture."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from t3d.run.folder import Record
from t3d.show import plots
from t3d.show.terminal import say
from t3d.show.words import clock
from t3d.study.tune import Plan, Result, best_of

_PLAIN_EVERY = 60.0  # seconds between lines about a trial, where there is no terminal


class TuningWatcher:
    """A line for every trial that ended and, on a terminal, one about the trial that goes on."""

    def __init__(self, console: Console, plan: Plan, found: Sequence[Result]) -> None:
        self._console = console
        self._plan = plan
        self._shown = {each.number for each in found}
        self._found = found
        self._first = len(found)
        self._started = self._drawn = time.monotonic()
        self._status: Status | None = None
        self._number = 0
        self._share = 0.0  # of the trial that goes on
        self._evaluation = ""

    def watch(self, number: int) -> "TuningWatcher":
        """Follow a trial."""
        self._number, self._evaluation = number, ""
        if self._console.is_terminal:
            self._status = self._console.status(f"trial {number}")
            self._status.start()
        return self

    def tick(self, step: int) -> None:
        """Say where the trial is, but not more often than somebody looks."""
        self._share = step / self._plan.base.steps
        now = time.monotonic()
        if now - self._drawn < (0.2 if self._status else _PLAIN_EVERY):
            return
        self._drawn = now
        share = f"step {step:,} of {self._plan.base.steps:,}"
        line = f"trial {self._number}: {share}{self._evaluation}, {self._left()}"
        if self._status:
            self._status.update(line)
        else:
            say(self._console, line)

    def record(self, record: Record) -> None:
        """Remember an evaluation."""
        if record["kind"] == "evaluation":
            self._evaluation = f", evaluation {record['mean']:,.1f}"

    def close(self) -> None:
        """The trial is over, for now."""
        self._share = 0.0
        if self._status:
            self._status.stop()
            self._status = None

    def tell(self, found: Sequence[Result]) -> None:
        """Say what came of the trials that ended since, whoever ran them."""
        self._found = found
        best = best_of(found)
        for each in found:
            if each.number in self._shown:
                continue
            self._shown.add(each.number)
            reached = "" if each.value is None else f"{each.value:,.1f}"
            if each.ended != "finished":
                reached = f"{each.ended} at step {each.step:,}"
            beside = f"best {best.value:,.1f} (trial {best.number})" if best else "no best yet"
            count = f"{len(self._shown):>3} of {self._plan.trials}"
            line = f"{count}  trial {each.number:<3} {reached:>21}  {beside:<24} {self._left()}"
            say(self._console, f"{line}  {_words(each.knobs)}")

    def _left(self) -> str:
        """An estimate from the pace of this process so far."""
        done = len(self._found) - self._first + self._share
        missing = max(0, self._plan.trials - len(self._found) - self._share)
        if not done:
            return "? left"
        return f"{clock(missing * (time.monotonic() - self._started) / done)} left"


def _words(knobs: Record) -> str:
    """Knobs with as many digits as an eye wants."""

    def short(value: Any) -> str:
        if isinstance(value, tuple):
            return " ".join(map(str, value))
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {short(value)}" for name, value in knobs.items())


def draw(title: str, found: Sequence[Result], shares: dict[str, float], out: Path) -> list[Path]:
    """Draw what each trial reached, and which knobs mattered, as PNG and SVG; returns the files."""
    figure = plots.new_figure(6.4 * 2, 4.2)
    axes = figure.add_subplot(1, 2, 1)
    kinds = {"finished": ("o", "C0"), "pruned": ("x", "0.6"), "diverged": ("v", "C3")}
    for kind, (marker, color) in kinds.items():
        some = [each for each in found if each.ended == kind and each.value is not None]
        if some:
            numbers, values = zip(*[(each.number, each.value) for each in some])
            axes.scatter(numbers, values, marker=marker, color=color, label=kind, zorder=3)
    so_far = [(each.number, best_of(found[: i + 1])) for i, each in enumerate(found)]
    line = [(number, best.value) for number, best in so_far if best]
    axes.step(*zip(*line), where="post", color="C0", lw=2, alpha=0.6, label="best so far")
    note = "mean of the last third of its evaluations;\nif it did not finish, its last one"
    axes.set(title=title, xlabel="trial", ylabel=f"return\n({note})")
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    axes = figure.add_subplot(1, 2, 2)
    names = list(reversed(shares))
    axes.barh(names, [shares[name] for name in names], color="C0")
    what = "what set the best quarter apart"
    axes.set(title=what, xlabel=f"share (PED-ANOVA of {len(found)} trials)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    return plots.save(figure, out)
