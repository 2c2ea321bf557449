"""Ready watchers: stop a run early, change its learning rate or its environments, keep agents.

t3d.train("Hopper-v5", watchers=[t3d.StopAtReturn(2000), t3d.StopAfter(minutes=30)])
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from t3d.base.errors import BadInput
from t3d.base.numbers import as_whole
from t3d.base.text import percent, shown
from t3d.play.envs import EnvMaker
from t3d.play.vector import make_vector
from t3d.run.records import Evaluation, Json, Record
from t3d.run.watchers import Watcher, require_json

if TYPE_CHECKING:
    from t3d.run.loop import Run

_RATES = ("learning_rate", "actor_learning_rate", "critic_learning_rate")
Stairs = Sequence[Sequence[Any]]  # (step, value): from that step on, that value


class StopAtReturn(Watcher):
    """Stop as soon as the mean return of an evaluation is at least `goal`."""

    def __init__(self, goal: float) -> None:
        self.goal = _number("goal", goal)

    def on_record(self, record: Record) -> str | None:
        """Compare an evaluation with the goal."""
        if isinstance(record, Evaluation) and record.mean >= self.goal:
            return f"a mean return of {record.mean:,.1f}, the goal was {self.goal:,g}"
        return None


class StopAtSuccess(Watcher):
    """Stop as soon as the success rate of an evaluation is at least `rate`, such as 0.95."""

    def __init__(self, rate: float) -> None:
        self.rate = _number("rate", rate, minimum=0)
        if rate > 1:
            raise BadInput(f"rate is {shown(rate)}; expected a share from 0 to 1, such as 0.95")

    def on_record(self, record: Record) -> str | None:
        """Compare an evaluation with the rate."""
        if not isinstance(record, Evaluation):
            return None
        if record.success is None:
            what = "the environment reports no success; expected info['is_success']"
            raise BadInput(f"{what} at the last step of an episode")
        if record.success >= self.rate:
            return f"a success rate of {percent(record.success)}, the goal was {percent(self.rate)}"
        return None


class StopWithoutImprovement(Watcher):
    """Stop when this many evaluations in a row were not better than the best, by at least `by`."""

    changes_run = False

    def __init__(self, evaluations: int, by: float = 0.0) -> None:
        self.evaluations = as_whole("evaluations", evaluations, 1)
        self.by = _number("by", by, minimum=0)
        self.best: float | None = None
        self.since = 0  # evaluations since then

    def on_record(self, record: Record) -> str | None:
        """Count the evaluations since the best one."""
        if not isinstance(record, Evaluation):
            return None
        if self.best is None or record.mean > self.best + self.by:
            self.best, self.since = record.mean, 0
            return None
        self.since += 1
        if self.since < self.evaluations:
            return None
        evaluations = "evaluation" if self.since == 1 else "evaluations"
        return f"{self.since} {evaluations} without improvement on {self.best:,.1f}"

    def state_dict(self) -> Json:
        """The best mean, and how many evaluations ago it was."""
        return {"best": self.best, "since": self.since}

    def load_state_dict(self, state: Json) -> None:
        """Go on counting."""
        self.best, self.since = state["best"], state["since"]


class StopAfter(Watcher):
    """Stop after this many minutes of training. A resumed run has as many again."""

    changes_run = False

    def __init__(self, minutes: float) -> None:
        self.minutes = _number("minutes", minutes, minimum=0)

    def on_start(self, run: "Run") -> None:
        """Start the clock."""
        self.deadline = time.monotonic() + 60 * self.minutes

    def on_step(self, step: int) -> str | None:
        """Look at the clock."""
        return f"{self.minutes:g} minutes are over" if time.monotonic() >= self.deadline else None


class LearningRateSchedule(Watcher):
    """Set the learning rate by the number of environment steps so far.

    `rate` is a function of the step, or a list of (step, rate): from that step on, that rate.
    `knob` may be actor_learning_rate or critic_learning_rate instead, for that network alone.
    """

    def __init__(self, rate: Callable[[int], float] | Stairs, knob: str = "learning_rate") -> None:
        if knob not in _RATES:
            raise BadInput(f"knob is {shown(knob)}; expected one of: {', '.join(_RATES)}")
        expected = "a function, or a list such as [[0, 1e-3], [50000, 1e-4]]"
        self.rate = rate if callable(rate) else _stairs("rate", rate, expected)
        if not callable(rate):
            for _, value in rate:
                _number("a rate", value, minimum=0)
        self.knob = knob
        self._resumed: float | None = None

    def on_start(self, run: "Run") -> None:
        """Set the rate of the first step."""
        self.run = run
        config = run.agent.config
        if self.knob == "learning_rate" and all(getattr(config, own) for own in _RATES[1:]):
            others = f"{_RATES[1]} and {_RATES[2]} are used instead of it"
            raise BadInput(f"learning_rate would change nothing: {others}; set knob to one of them")
        self.current, self._resumed = self._resumed or getattr(config, self.knob), None
        self.on_step(run.collector.steps)

    def on_step(self, step: int) -> None:
        """Set the rate of the next step, if it is another."""
        rate = self.rate(step)
        if rate is not None and rate != self.current:
            if not rate > 0:  # as a knob, 0 may mean another rate
                raise BadInput(f"the rate of step {step:,} is {rate}; expected a number above 0")
            self.run.agent.change(**{self.knob: rate})
            self.current = float(rate)

    def state_dict(self) -> Json:
        """The rate that it has set. If another watcher has changed it since, that stays so."""
        return {"rate": self.current}

    def load_state_dict(self, state: Json) -> None:
        """Set no rate again that is set."""
        self._resumed = state["rate"]


class Curriculum(Watcher):
    """Set an attribute of every training environment by the number of environment steps so far.

    `stages` is a list of (step, value): the episodes that begin from that step on have that value,
    a plain JSON value. Evaluations stay as they are: they measure the task itself.
    """

    def __init__(self, attribute: str, stages: Stairs) -> None:
        if not isinstance(attribute, str) or not attribute.isidentifier():
            raise BadInput(f"attribute is {shown(attribute)}; expected a name such as 'gravity'")
        expected = "a list such as [[0, 5.0], [20000, 10.0]]"
        self.attribute, self.value = attribute, _stairs("stages", stages, expected)
        self._first = self.value(min(step for step, _ in stages))
        for _, value in stages:
            require_json(f"a stage of {attribute}", value)

    def check(self, maker: EnvMaker) -> None:
        """Refuse environments that cannot be set, before a run with them is written."""
        config = maker.config
        for knob in ("collectors", "single_env"):
            if getattr(config, knob):
                name = knob.replace("_", "-")
                what = f"Curriculum cannot set {self.attribute!r} with --{name}"
                raise BadInput(f"{what}; train without --{name}, or without the curriculum")
        if config.env_backend == "batched":
            what = f"Curriculum cannot set {self.attribute!r} in a batch of environments"
            advice = "train with --env-backend inline or processes, or without the curriculum"
            raise BadInput(f"{what}; {advice}")
        once = replace(maker, config=replace(config, env_restarts=0))
        with closing(make_vector(once, range(1))) as env:
            env.configure(0, {self.attribute: self._first})
            env.reset({0: config.seed})

    def on_start(self, run: "Run") -> None:
        """Set the value of the first episodes."""
        self.collector = run.collector
        self.on_step(run.collector.steps)

    def on_step(self, step: int) -> None:
        """Set the value of the next episodes."""
        value = self.value(step)
        if value is not None:
            self.collector.set_attribute(self.attribute, value)


class SaveAgents(Watcher):
    """Save the agent of every evaluation to the run's folder, in agents/step-N.safetensors."""

    changes_run = False

    def on_start(self, run: "Run") -> None:
        """Make the folder."""
        self.run = run
        self.folder = run.folder.path / "agents"
        self.folder.mkdir(exist_ok=True)

    def on_record(self, record: Record) -> None:
        """Save what was evaluated."""
        if isinstance(record, Evaluation):
            self.run.agent.save(self.folder / f"step-{record.step:012d}.safetensors")


def _number(name: str, value: float, minimum: float = -math.inf) -> float:
    """A finite number, at least `minimum`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < minimum:
        expected = "a number" if minimum == -math.inf else f"a number, at least {minimum:g}"
        raise BadInput(f"{name} is {shown(value)}; expected {expected}")
    return value


def _stairs(name: str, points: Stairs, expected: str) -> Callable[[int], Any]:
    """The value of the last of these steps; None before the first."""
    try:
        steps, values = zip(*sorted(((step, value) for step, value in points), key=itemgetter(0)))
        for step in steps:
            _number("a step", step, minimum=0)
    except (TypeError, ValueError):
        raise BadInput(f"{name} is {shown(points)}; expected {expected}") from None

    def value_at(step: int) -> Any:
        passed = bisect_right(steps, step)
        return values[passed - 1] if passed else None

    return value_at
