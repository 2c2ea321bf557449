"""Watchers follow a run, and may stop it: the terminal's table, TensorBoard, a user's own.

class StopAtReturn(t3d.Watcher):
    def on_record(self, record):
        if isinstance(record, t3d.Evaluation) and record.mean >= 300:
            return f"a mean return of {record.mean:.0f}"

t3d.train("Hopper-v5", watchers=[StopAtReturn()])
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from t3d.base.arguments import Arguments, calls, refused
from t3d.base.errors import BadInput, BrokenWatcher, Diverged, T3DError
from t3d.base.imports import import_callable
from t3d.base.output import complain
from t3d.base.text import blame, did_you_mean, shown
from t3d.play.making import raise_interrupt
from t3d.run.records import Json, Record

if TYPE_CHECKING:
    from t3d.run.finish import Finished
    from t3d.run.folder import RunFolder
    from t3d.run.loop import Run


WAIT_SECONDS = 10.0  # between two calls of `on_wait`
_LARGEST_STATE = 2**20  # characters of a watcher's state in a checkpoint


def regularly(tell: Callable[[str], None]) -> Callable[[], None]:
    """A function to call often; every ten seconds it tells for how long that goes on."""
    began = last = time.monotonic()

    def beat() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= WAIT_SECONDS:
            last = now
            tell(f"for {now - began:.0f} s so far")

    return beat


class Watcher:
    """A callback that follows a run. Every method does nothing by default; override what you need.

    If `on_step` or `on_record` returns a reason, the run stops at the end of the step; it is saved
    and can be resumed. If a method raises, the run is saved too, and ends with an error; unless the
    watcher is `optional`: then the run says so in one line and continues without it.
    """

    optional = False  # of one that only shows something: its error does not end the run
    changes_run = True  # False of one that takes the run and only reads it: a resume may lack it

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

    def on_finish(self, folder: "RunFolder", finished: "Finished") -> None:
        """Called last: the run is scored, and its curve, video and report are written.

        Not after a signal or an error, which end a run before it is scored. If scoring itself
        fails, `finished` is empty.
        """

    def state_dict(self) -> Json:
        """What a resumed run needs of this watcher, as plain JSON values; checkpoints have it."""
        return {}

    def load_state_dict(self, state: Json) -> None:
        """Called before `on_start` of a resumed run, with what `state_dict` returned."""


class Watchers:
    """The watchers of one run.

    A stop or an error takes effect at the end of the step: a run that is saved in the middle of a
    step would not resume to the same bits.
    """

    def __init__(self, watchers: Iterable[Watcher] = ()) -> None:
        self.stop: tuple[str, str] | None = None  # the first watcher that stopped the run, and why
        self.failure: BrokenWatcher | None = None  # the first error
        self._waiting: list[Watcher] = []
        self._watching: list[Watcher] = []
        self._broken: list[Watcher] = []  # raised; only `on_end` and `on_finish` are still called
        self._ended: list[Watcher] = []
        self._blamed: list[Watcher] = []  # of those that have ended: their error was said
        self._names: dict[int, str] = {}  # by id(): under which name its state is saved
        for watcher in watchers:
            self.append(watcher)

    def append(self, watcher: Watcher) -> None:
        """Add a watcher. It starts when the loop does."""
        self._waiting += checked([watcher])
        name, names = type(watcher).__name__, self._names.values()
        same = sum(each.split()[0] == name for each in names)
        self._names[id(watcher)] = f"{name} {same + 1}" if same else name

    def start(self, run: "Run") -> None:
        """Start the new watchers, with their state; forget what stopped an earlier loop."""
        self.stop = self.failure = None
        waiting, self._waiting = self._waiting, []
        progress = run.progress
        saved, progress.watchers = progress.watchers, {}
        attached = saved.keys() if progress.attached is None else progress.attached
        lost = [name for name in attached if name not in self._names.values()]
        changing = filter(_may_change, self._watching + self._broken + waiting)
        progress.attached = [self._names[id(each)] for each in changing]
        for watcher in waiting:
            self._watching.append(watcher)
            state = saved.pop(self._names[id(watcher)], None)
            if state is None or self._call(watcher, "load_state_dict", state):
                self._call(watcher, "on_start", run)
        for name in lost:
            what = f"the watcher {name} was attached to this run and is not any more"
            complain(f"{what}; from here on the run is not bit-exact")
            progress.not_bit_exact.append(f"at step {run.collector.steps:,} {what}")

    def state_dict(self) -> dict[str, Json]:
        """The state of every watcher that has one."""
        states = {self._names[id(each)]: self._state_of(each) for each in tuple(self._watching)}
        return {name: state for name, state in states.items() if state}

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

        def tell(since: str) -> None:
            for watcher in tuple(self._watching):
                self._call(watcher, "on_wait", f"{what}, {since}")

        return regularly(tell)

    def end(self, run: "Run") -> None:
        """End all that were started, each of them even if another raises.

        A watcher that raises here does not hide the error that ended the run: it becomes a note.
        """
        earlier = sys.exception()
        self._ended, self._blamed = self._broken + self._watching, self._broken
        self._broken, self._watching = [], []
        saved = run.store.how_to_resume(run.collector.steps)
        with ExitStack() as last_first:
            for watcher in self._ended:
                last_first.callback(self._end, watcher, "on_end", (run,), earlier, saved)

    def finish(self, folder: "RunFolder", finished: "Finished") -> None:
        """The run is scored: say so to all that have ended, or were not needed for that."""
        earlier = sys.exception()
        with ExitStack() as last_first:
            for watcher in self._ended + self._waiting:
                last_first.callback(
                    self._end, watcher, "on_finish", (folder, finished), earlier, ""
                )

    def _call(self, watcher: Watcher, method: str, argument: Any) -> bool:
        """Call a method; False if it raised."""
        try:
            reason = getattr(watcher, method)(argument)
            if reason is not None and not isinstance(reason, str):
                raise TypeError(
                    f"it returned {reason!r}; expected None, or why the run should stop"
                )
        except Diverged:  # the agent's fault: the watcher only used it
            raise
        except BaseException as error:  # also SystemExit: the run is saved first
            raise_interrupt(error)
            self._drop(watcher, method, error)
            return False
        if reason is not None and self.stop is None:
            self.stop = type(watcher).__name__, reason
        return True

    def _state_of(self, watcher: Watcher) -> Json:
        try:
            state = watcher.state_dict()
            text = require_json("it", state)
            if not isinstance(state, dict):
                raise TypeError(f"it returned {shown(state)}; expected a dict of plain JSON values")
            if len(text) > _LARGEST_STATE:
                limit = f"expected at most {_LARGEST_STATE:,}"
                raise ValueError(f"it returned {len(text):,} characters; {limit}")
        except BaseException as error:
            raise_interrupt(error)
            self._drop(watcher, "state_dict", error)
            return {}
        return state

    def _drop(self, watcher: Watcher, method: str, error: BaseException) -> None:
        """Call a watcher that raised no more; the run ends, unless the watcher is optional."""
        self._watching.remove(watcher)
        self._broken.append(watcher)
        if watcher.optional:
            complain(f"{_blamed(watcher, method, error)}; the run continues without it")
        else:
            self.failure = self.failure or _blamed(watcher, method, error)

    def _end(
        self,
        watcher: Watcher,
        method: str,
        arguments: tuple[Any, ...],
        earlier: BaseException | None,
        saved: str,
    ) -> None:
        try:
            getattr(watcher, method)(*arguments)
        except BaseException as error:
            raise_interrupt(error)
            failure = _blamed(watcher, method, error)
            if watcher.optional:
                if watcher not in self._blamed:
                    self._blamed.append(watcher)
                    complain(f"{failure}")
                return
            if earlier is None:
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
        for name in dir(each):
            if name.startswith("on_") and not hasattr(Watcher, name):
                methods = [method for method in dir(Watcher) if method.startswith("on_")]
                near = did_you_mean(name, methods) or f"; expected one of: {', '.join(methods)}"
                what = f"watcher {type(each).__name__} has {name}, which nothing calls"
                raise BadInput(f"{what}{near}")
    return watchers


def by_name(words: Iterable[str]) -> list[Watcher]:
    """The watchers that some words name: module:Class, each with arguments NAME=VALUE after it."""
    return checked(
        _made(name, arguments) for name, arguments in calls("watcher", words, "goal=-200")
    )


def _made(name: str, arguments: Arguments) -> Any:
    kind = import_callable(name, "watcher", "watchers")
    try:
        return kind(**arguments)
    except T3DError as error:
        raise BadInput(f"watcher {name}: {error}") from error
    except BaseException as error:
        raise_interrupt(error)
        refusal = refused(f"watcher {name}", kind, arguments, error)
        raise BadInput(refusal or f"watcher {name} cannot be made: {blame(error)}") from error


def require_json(what: str, value: Any) -> str:
    """The JSON of a value that comes back from it as the same value; else an error."""
    try:
        text = json.dumps(value, allow_nan=False)
        same = json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise BadInput(f"{what} is {shown(value)}; expected plain JSON values")
    return text


def _may_change(watcher: Watcher) -> bool:
    """Whether a run may have other bits without this watcher.

    One that does not take the run, and keeps no state, has nothing to change it with.
    """
    own = vars(Watcher)
    takes = any(
        getattr(type(watcher), each) is not own[each] for each in ("on_start", "state_dict")
    )
    return takes and watcher.changes_run and not watcher.optional


def _blamed(watcher: Watcher, method: str, error: BaseException) -> BrokenWatcher:
    """A one-line error about a watcher that raised; the original error is its cause."""
    failure = BrokenWatcher(f"watcher {type(watcher).__name__}, {method}() raised {blame(error)}")
    failure.__cause__ = error
    return failure
