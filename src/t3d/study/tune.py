"""A search for better knobs: a study of many trials, each a run in a folder of its own.

runs/tune-ENV/
  study.db         the trials and their results (storage.py)
  trial-0007/      a run like any other
  best.toml        the best knobs, as a preset
  importance.png   which knobs mattered; and .svg
  .folder          the identity of the folder; locked while a trial is chosen
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from t3d.base import files, schema
from t3d.base.errors import BadInput, BrokenWatcher, Diverged
from t3d.base.randomness import derived_seed
from t3d.config import Config, Span, search_ranges
from t3d.play.envs import EnvMaker
from t3d.presets import Preset, resolve, to_toml
from t3d.run import checkpoint
from t3d.run.folder import RunFolder
from t3d.run.lock import alone, is_locked
from t3d.run.loop import Run
from t3d.run.records import Evaluation, Json, Record, finite
from t3d.run.session import open_run, train_to_end
from t3d.run.watchers import Watcher
from t3d.study.plan import HERE, Plan, as_knobs, as_stored
from t3d.study.storage import STORAGE_ERRORS, optuna, reading, unreachable

TrialState = optuna.trial.TrialState

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_MINIMUM_TRIALS = 5  # finished ones, to say which knobs mattered


class Result(NamedTuple):
    """The result of a trial."""

    number: int
    ended: Literal["finished", "pruned", "diverged"]
    value: float | None  # its score; of one that did not finish, its last evaluation
    step: int
    knobs: Json


class Observer(Protocol):
    """Follows a search."""

    def watch(self, number: int) -> Watcher:
        """A watcher for the run of a trial that starts or resumes."""

    def compiling(self) -> None:
        """Called before the fused engine is compiled, which takes a while."""

    def update(self, results: Sequence[Result]) -> None:
        """Called with all results so far, whenever a trial has ended."""


def search(plan: Plan, study: optuna.Study, stop: Callable[[], bool], observer: Observer) -> None:
    """Run trials until there are enough, or until `stop` returns True; a later search resumes."""
    try:
        while not stop():
            with alone(plan.out) as owner:
                with reading(plan):
                    trial = _next_trial(plan, study, owner)
                if trial is None:
                    return
                run = _run_of(plan, trial, observer.compiling)
                if run is None:
                    study.tell(trial, _value(plan.folder(trial.number)))
            if run is not None:
                with closing(run):
                    _train(study, trial, run, observer.watch(trial.number), stop)
            observer.update(results(plan, study))
    except STORAGE_ERRORS as error:
        again = "once it can be used, run the same command again to resume"
        raise BadInput(f"{unreachable(plan, error)}; {again}") from error


def _next_trial(plan: Plan, study: optuna.Study, owner: str) -> optuna.Trial | None:
    """An abandoned trial of this folder, or else a new one; None if there are enough."""

    def running() -> list[Any]:
        trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [each for each in trials if each.user_attrs.get("owner") == owner]

    abandoned = {each.number for each in running() if not is_locked(plan.folder(each.number))}
    for each in running():  # read again: it may have ended before its lock was checked
        if each.number in abandoned:
            return optuna.Trial(study, each._trial_id)  # as `ask` does for one that waits
    # Read once: between two reads a trial may end, and would be in neither count.
    trials = study.get_trials(deepcopy=False)
    active = [
        t for t in trials if t.state == TrialState.RUNNING and t.user_attrs.get("owner") == owner
    ]
    if len(active) + sum(t.state in _ENDED for t in trials) >= plan.trials:
        return None
    trial = study.ask()
    trial.set_user_attr("owner", owner)
    return trial


def _run_of(plan: Plan, trial: optuna.Trial, waiting: Callable[[], None]) -> Run | None:
    """The run of a trial, new or resumed; None if it is finished but has no result yet."""
    # Each trial seeds its own sampler, so a resumed study suggests what it would have anyway.
    seed = derived_seed(plan.base.seed, "search", trial.number)
    trial.study.sampler = optuna.samplers.TPESampler(seed=seed)
    with reading(plan):
        params = {name: _suggest(plan, trial, name) for name in plan.searched}
        config = dataclasses.replace(plan.base, **as_knobs(params))
    folder = plan.folder(trial.number)
    if folder.path.exists():
        started = folder.config()
        # What a run may choose by itself: where it computes, and whether it remakes environments.
        local = {name: getattr(started, name) for name in (*HERE, "remake_envs")}
        if dataclasses.replace(config, **local) != started:
            raise BadInput(f"{folder.path} is a run of something else; choose another with --out")
        if checkpoint.has_finished(folder, config.steps):
            return None
        config = started
    return open_run(EnvMaker(config.env, config), folder, plan.about, waiting)


def _suggest(plan: Plan, trial: optuna.Trial, name: str) -> Any:
    """A value for a knob, from its range, which is widened to include the value at the start."""
    span, start = search_ranges[name], as_stored(getattr(plan.base, name))
    if isinstance(span, Span):
        low, high = min(span.low, start), max(span.high, start)
        return trial.suggest_float(name, low, high, log=span.log and low > 0)
    choices = dict.fromkeys([*map(as_stored, span), start])
    return trial.suggest_categorical(name, list(choices))


def _train(
    study: optuna.Study,
    trial: optuna.Trial,
    run: Run,
    progress: Watcher,
    stop: Callable[[], bool],
) -> None:
    """Train a trial's run and report its result to the study, unless the run was stopped."""
    pruning = Pruning(trial, run)
    try:
        if not pruning.hopeless:
            train_to_end(run, [progress, pruning], stop)
    except Diverged:  # other failures (environment, disk ...) say nothing about the knobs
        trial.set_user_attr("diverged", run.collector.steps)
        study.tell(trial, state=TrialState.PRUNED)
        return
    except BrokenWatcher as error:
        raise error.__cause__ if isinstance(error.__cause__, STORAGE_ERRORS) else error from error
    # Report before the run is unlocked: otherwise another process would start the trial.
    if run.finished:
        study.tell(trial, _value(run.folder))
    elif pruning.hopeless:
        study.tell(trial, state=TrialState.PRUNED)


class Pruning(Watcher):
    """Reports a run's evaluations to its study, and stops a run that the study prunes."""

    def __init__(self, trial: optuna.Trial, run: Run) -> None:
        self._trial = trial
        self._steps = run.config.steps
        reported = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        self._last = max(reported, default=-1)  # a resumed run plays some evaluations again
        self.hopeless = self._last == run.progress.evaluated_at and self._should_prune()

    def on_record(self, record: Record) -> str | None:
        """Report an evaluation."""
        if not isinstance(record, Evaluation) or record.step < self._last:
            return None
        if record.step > self._last:
            self._trial.report(record.mean, record.step)
            self._last = record.step
        self.hopeless = self._should_prune()
        return "below the median of the other trials" if self.hopeless else None

    def _should_prune(self) -> bool:
        return 0 <= self._last < self._steps and self._trial.should_prune()


def _value(folder: RunFolder) -> float:
    """The score of a run: the mean of the last third of its evaluations, not its luckiest one."""
    means = [evaluation.mean for evaluation in folder.records(Evaluation)]
    last = means[-math.ceil(len(means) / 3) :]
    return sum(last) / len(last)


def results(plan: Plan, study: optuna.Study) -> list[Result]:
    """The results of the trials that ended, with knobs that the plan's config can have."""
    ended_trials = []
    with reading(plan):
        for each in study.get_trials(deepcopy=False, states=_ENDED):
            diverged, step = each.user_attrs.get("diverged"), each.last_step or 0
            ended: Any = "finished" if each.state == TrialState.COMPLETE else "pruned"
            if diverged is not None:
                ended, step = "diverged", schema.whole(diverged)
            knobs = as_knobs({name: each.params[name] for name in plan.searched})
            dataclasses.replace(plan.base, **knobs)
            value = None if each.value is None else finite(each.value)
            ended_trials.append(Result(each.number, ended, value, step, knobs))
    return ended_trials


def best_of(trials: Sequence[Result]) -> Result | None:
    """The best finished trial; the first one of equals."""
    finished = [each for each in trials if each.ended == "finished" and each.value is not None]
    return max(finished, key=lambda each: (each.value, -each.number), default=None)


def importances(study: optuna.Study) -> dict[str, float]:
    """The share of each knob in the difference between the best quarter of the trials and all."""
    finished = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    if finished < _MINIMUM_TRIALS:
        advice = f"it takes {_MINIMUM_TRIALS} to say which knobs mattered"
        raise BadInput(f"{finished} trials finished, and {advice}")
    # Optuna would ignore pruned trials, which tell just as much about bad values.
    with_pruned = optuna.create_study(direction="maximize")
    for each in study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)):
        if each.value is not None:
            each.state = TrialState.COMPLETE
            with_pruned.add_trial(each)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where all are equal, it warns and gives equal shares
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        return optuna.importance.get_param_importances(with_pruned, evaluator=evaluator)


def write_best(plan: Plan, best: Result, trials: int) -> Path:
    """Write the best knobs as a preset, which lies over that of its environment.

    It has all that were searched or differ from the defaults or from that preset. It has no steps,
    as those of a trial are few, and none of `HERE`.
    """
    config = dataclasses.asdict(dataclasses.replace(plan.base, **best.knobs))
    names = set(plan.searched)
    for usual in (Config(), resolve(plan.base.env)[1]):
        others = dataclasses.asdict(usual)
        names |= {name for name, value in config.items() if value != others[name]}
    names -= {"env", "seed", "steps", *HERE}
    knobs = {name: value for name, value in config.items() if name in names}
    score = f"{best.value:,.1f} on {plan.base.env} after {plan.base.steps:,} steps"
    why = f"trial {best.number} of {trials}, with a score of {score}: {plan.about['command']}"
    path = plan.out / "best.toml"
    files.save(path, to_toml(Preset(why, knobs, plan.base.env)).encode())
    return path
