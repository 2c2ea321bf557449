"""A search for knobs on the terminal, and as a picture."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status

from t3d.presets import preset_for
from t3d.run.loop import Run
from t3d.run.records import Evaluation, Record
from t3d.run.signals import StopSignal
from t3d.run.watchers import Watcher
from t3d.show import plots
from t3d.show.terminal import say
from t3d.show.words import COMPILING, STOPPING, clock, knobs_text
from t3d.study.plan import Plan
from t3d.study.searchers import search_in_parallel
from t3d.study.storage import open_study
from t3d.study.tune import Result, best_of, results, search

if TYPE_CHECKING:
    from optuna import Study

_PLAIN_EVERY = 60.0  # seconds between lines about a trial, where there is no terminal


def tune(plan: Plan, console: Console) -> tuple["Study", int | None]:
    """Search for knobs and show the progress; the study, and the signal that stopped it, if any."""
    study = open_study(plan)
    trials = results(plan, study)
    before = f", of which {len(trials)} have ended" if trials else ""
    head = f"{plan.base.env}, preset {plan.about['preset']}, {plan.base.steps:,} steps a trial"
    say(console, f"{head}, {plan.trials} trials{before}: {plan.out}")
    if plan.about["preset"] == "default" and not preset_for(plan.base.env):
        say(console, f"note: no preset for {plan.base.env}: default knobs")
    say(console, f"searched: {', '.join(plan.searched)}")
    watcher = TuningWatcher(console, plan, trials)
    with StopSignal(lambda: say(console, STOPPING)).caught() as stop:
        if plan.jobs == 1:
            search(plan, study, stop, watcher)
        else:
            with console.status(f"{plan.jobs} trials at a time"):
                search_in_parallel(plan, study, stop, watcher)
    return study, stop.number


class TuningWatcher(Watcher):
    """A line for every trial that ended and, on a terminal, one about the trial that trains."""

    optional = True

    def __init__(self, console: Console, plan: Plan, trials: Sequence[Result]) -> None:
        self._console = console
        self._plan = plan
        self._shown = {each.number for each in trials}
        self._ended = len(trials)
        self._ended_before = len(trials)
        self._started = self._drawn = time.monotonic()
        self._status: Status | None = None
        self._number = 0
        self._share = 0.0  # of the trial that trains
        self._evaluation = ""

    def watch(self, number: int) -> "TuningWatcher":
        """Follow a trial."""
        self._number, self._evaluation = number, ""
        if self._console.is_terminal:
            self._status = self._console.status(f"trial {number}")
            self._status.start()
        return self

    def on_step(self, step: int) -> None:
        """Show the step, but not more often than somebody looks."""
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

    def on_record(self, record: Record) -> None:
        """Remember an evaluation."""
        if isinstance(record, Evaluation):
            self._evaluation = f", evaluation {record.mean:,.1f}"

    def on_end(self, run: Run) -> None:
        """The trial is over, for now."""
        self._share = 0.0
        if self._status:
            self._status.stop()
            self._status = None

    def compiling(self) -> None:
        """Explain the wait."""
        say(self._console, COMPILING)

    def update(self, trials: Sequence[Result]) -> None:
        """Print the trials that ended since the last call, whichever process ran them."""
        self._ended = len(trials)
        best = best_of(trials)
        for each in trials:
            if each.number in self._shown:
                continue
            self._shown.add(each.number)
            score = "" if each.value is None else f"{each.value:,.1f}"
            if each.ended != "finished":
                score = f"{each.ended} at step {each.step:,}"
            best_text = f"best {best.value:,.1f} (trial {best.number})" if best else "no best yet"
            count = f"{len(self._shown):>3} of {self._plan.trials}"
            line = f"{count}  trial {each.number:<3} {score:>21}  {best_text:<24} {self._left()}"
            say(self._console, f"{line}  {knobs_text(each.knobs)}")

    def _left(self) -> str:
        """An estimate from the pace of this process so far."""
        done = self._ended - self._ended_before + self._share
        missing = max(0, self._plan.trials - self._ended - self._share)
        if not done:
            return "? left"
        return f"{clock(missing * (time.monotonic() - self._started) / done)} left"


def draw(title: str, trials: Sequence[Result], shares: dict[str, float], out: Path) -> list[Path]:
    """Draw the score of each trial, and which knobs mattered, as PNG and SVG; returns the files."""
    figure = plots.new_figure(6.4 * 2, 4.2)
    axes = figure.add_subplot(1, 2, 1)
    kinds = {"finished": ("o", "C0"), "pruned": ("x", "0.6"), "diverged": ("v", "C3")}
    for kind, (marker, color) in kinds.items():
        some = [each for each in trials if each.ended == kind and each.value is not None]
        if some:
            numbers, values = zip(*[(each.number, each.value) for each in some])
            axes.scatter(numbers, values, marker=marker, color=color, label=kind, zorder=3)
    so_far = [(each.number, best_of(trials[: i + 1])) for i, each in enumerate(trials)]
    line = [(number, best.value) for number, best in so_far if best]
    axes.step(*zip(*line), where="post", color="C0", lw=2, alpha=0.6, label="best so far")
    note = "mean of the last third of its evaluations;\nif it did not finish, its last one"
    axes.set(title=plots.named(title), xlabel="trial", ylabel=f"return\n({note})")
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    axes = figure.add_subplot(1, 2, 2)
    names = list(reversed(shares))
    axes.barh(names, [shares[name] for name in names], color="C0")
    axes.set(title="importance of the knobs for the best quarter")
    axes.set(xlabel=f"share of each knob (PED-ANOVA of {len(trials)} trials)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    return plots.save(figure, out)
