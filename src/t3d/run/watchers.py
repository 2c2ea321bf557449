"""Watchers follow a run, and may stop it: the terminal's table, TensorBoard, a user's own.

class StopAtReturn(t3d.Watcher):
    def on_record(self, record):
        if isinstance(record, t3d.Evaluation) and record.mean >= 300:
            return f"a mean return of {record.mean:.0f}"

t3d.train("Hopper-v5", watchers=[StopAtReturn()])
"""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from t3d.base.errors import BadInput, BrokenWatcher, Diverged
from t3d.base.extras import how_to_install
from t3d.base.output import complain
from t3d.base.text import blame
from t3d.run.records import Record

if TYPE_CHECKING:
    from t3d.run.loop import Run


WAIT_SECONDS = 10.0  # between two calls of `on_wait`


class Watcher:
    """A callback that follows a run. Every method does nothing by default; override what you need.

    If `on_step` or `on_record` returns a reason, the run stops at the end of the step; it is saved
    and can be resumed. If a method raises, the run is saved too, and ends with an error; unless the
    watcher is `optional`: then the run says so in one line and continues without it.
    """

    optional = False  # of one that only shows something: its error does not end the run

    def on_start(self, run: "Run") -> None:
        """Called before the first step, or the first after a resume."""

    def on_step(self, step: int) -> str | None:
        """Called after every step of the loop, with the environment steps so far."""

    def on_record(self, record: Record) -> str | None:
        """Called after every line of metrics.jsonl."""

    def on_wait(self, what: str) -> None:
        """Called every ten seconds while an evaluation or the updates of one step take so long."""

    def on_end(self, run: "Run") -> None:
        """Called once when the run is finished, stopped or has failed."""


class Watchers:
    """The watchers of one run.

    A stop or an error takes effect at the end of the step: a run that is saved in the middle of a
    step would not resume to the same bits.
    """

    def __init__(self) -> None:
        self.stop: tuple[str, str] | None = None  # the first watcher that stopped the run, and why
        self.failure: BrokenWatcher | None = None  # the first error
        self._waiting: list[Watcher] = []
        self._watching: list[Watcher] = []
        self._broken: list[Watcher] = []  # raised; only `on_end` is still called

    def append(self, watcher: Watcher) -> None:
        """Add a watcher. It starts when the loop does."""
        self._waiting += checked([watcher])

    def start(self, run: "Run") -> None:
        """Start the new watchers; forget what stopped an earlier loop."""
        self.stop = self.failure = None
        waiting, self._waiting = self._waiting, []
        for watcher in waiting:
            self._watching.append(watcher)
            self._call(watcher, "on_start", run)

    def step(self, step: int) -> None:
        """A step of the loop is done."""
        for watcher in tuple(self._watching):
            self._call(watcher, "on_step", step)

    def record(self, record: Record) -> None:
        """A line of metrics.jsonl was written."""
        for watcher in tuple(self._watching):
            self._call(watcher, "on_record", record)

    def heartbeat(self, what: str) -> Callable[[], None]:
        """A function to call often during something that may take long; watchers hear of it."""
        began = last = time.monotonic()

        def beat() -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= WAIT_SECONDS:
                last = now
                for watcher in tuple(self._watching):
                    self._call(watcher, "on_wait", f"{what}, for {now - began:.0f} s so far")

        return beat

    def end(self, run: "Run") -> None:
        """End all that were started, each of them even if another raises.

        A watcher that raises here does not hide the error that ended the run: it becomes a note.
        """
        earlier = sys.exception()
        broken, watching = self._broken, self._watching
        self._broken, self._watching = [], []
        with ExitStack() as last_first:
            for watcher in broken + watching:
                last_first.callback(self._end, watcher, run, earlier, watcher in broken)

    def _call(self, watcher: Watcher, method: str, argument: Any) -> None:
        try:
            reason = getattr(watcher, method)(argument)
            if reason is not None and not isinstance(reason, str):
                raise TypeError(
                    f"it returned {reason!r}; expected None, or why the run should stop"
                )
        except Diverged:  # the agent's fault: the watcher only used it
            raise
        except Exception as error:
            self._watching.remove(watcher)
            self._broken.append(watcher)
            if watcher.optional:
                complain(f"{_blamed(watcher, method, error)}; the run continues without it")
            else:
                self.failure = self.failure or _blamed(watcher, method, error)
            return
        if reason is not None and self.stop is None:
            self.stop = type(watcher).__name__, reason

    def _end(
        self, watcher: Watcher, run: "Run", earlier: BaseException | None, broken: bool
    ) -> None:
        try:
            watcher.on_end(run)
        except Exception as error:
            failure = _blamed(watcher, "on_end", error)
            if watcher.optional:
                if not broken:  # else its first error was said
                    complain(f"{failure}")
                return
            if earlier is None:
                saved = run.store.how_to_resume(run.collector.steps)
                raise BrokenWatcher(f"{failure}{saved}") from error
            earlier.add_note(str(failure))


def checked(watchers: Iterable[Watcher]) -> list[Watcher]:
    """The watchers as a list; an error if one of them is none."""
    if not isinstance(watchers, Iterable):
        what = type(watchers).__name__
        raise BadInput(f"watchers is a {what}; expected a list of watchers")
    watchers = list(watchers)
    for each in watchers:
        if not isinstance(each, Watcher):
            is_class = isinstance(each, type)
            what = f"the class {each.__name__}" if is_class else f"a {type(each).__name__}"
            advice = "create one: " + f"{each.__name__}()" if is_class else "subclass t3d.Watcher"
            raise BadInput(f"a watcher is {what}; expected an object of t3d.Watcher: {advice}")
    return watchers


def _blamed(watcher: Watcher, method: str, error: Exception) -> BrokenWatcher:
    """A one-line error about a watcher that raised; the original error is its cause."""
    failure = BrokenWatcher(f"watcher {type(watcher).__name__}, {method}() raised {blame(error)}")
    failure.__cause__ = error
    return failure


class Tracker(NamedTuple):
    """A watcher that is chosen by name, which is also that of its extra."""

    make: Callable[[], Watcher]
    module: str  # the package that it needs
    lacking: str  # what a run does not have if it is not installed


def _tensorboard() -> Watcher:
    from t3d.run.tensorboard import TensorBoard

    return TensorBoard()


WATCHERS = {
    "tensorboard": Tracker(
        make=_tensorboard,
        module="tensorboard",
        lacking="no TensorBoard events",
    ),
}


def chosen(names: Iterable[str] = tuple(WATCHERS)) -> tuple[list[Watcher], list[str]]:
    """The watchers of these names whose packages are installed, and a line about each other one."""
    usable = {name: bool(find_spec(WATCHERS[name].module)) for name in names}
    missing = [
        f"{WATCHERS[name].lacking}; to have them: {how_to_install(name)}"
        for name, here in usable.items()
        if not here
    ]
    return [WATCHERS[name].make() for name, here in usable.items() if here], missing
