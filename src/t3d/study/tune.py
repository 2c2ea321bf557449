"""A search for better knobs: a study of many runs, kept by Optuna, each in a folder of its own.

runs/tune-ENV/
  study.db         what was tried and what came of it; or elsewhere, at a storage's URL
  trial-0007/      a run like any other
  best.toml        the best knobs, as a preset
  importance.png   what mattered; and .svg
  .folder          which folder this is; held while a trial is taken

Optuna's tables hold numbers and JSON. Nothing of it is unpickled: what does that in Optuna, the
journal storage and the CMA-ES sampler, is not used.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from t3d.base import files
from t3d.base.errors import BadInput, BrokenWatcher, CannotWrite, Diverged
from t3d.base.randomness import derived_seed
from t3d.base.text import did_you_mean
from t3d.config import Config, Span, knob_types, knobs_of, search_ranges
from t3d.play.envs import EnvMaker
from t3d.presets import Preset, to_toml
from t3d.run import checkpoint
from t3d.run.folder import Record, RunFolder
from t3d.run.lock import alone, is_locked
from t3d.run.loop import Run
from t3d.run.records import Evaluation
from t3d.run.records import Record as TypedRecord
from t3d.run.session import open_run, train_to_end
from t3d.run.watchers import Watcher

try:
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError
except ModuleNotFoundError as error:
    raise BadInput("tune needs an extra: pip install 't3d[tune]'") from error

_STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
# Where to compute, which each machine decides for itself.
# Not what an environment needs, such as a process of its own: that goes with the preset.
_HERE = knobs_of("machine") - {
    *("env_backend", "env_deadline", "env_restarts", "overlap", "replay_on_disk")
}
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_ENOUGH = 5  # finished trials, to say what mattered


@dataclass(frozen=True)
class Plan:
    """What to search, from where on, how long, and where it is kept."""

    base: Config  # where the search begins: the preset, and what was typed
    searched: tuple[str, ...]
    trials: int
    out: Path
    storage: str | None
    about: Record  # the preset, the command and the versions

    @property
    def url(self) -> str:
        """Of the database."""
        return self.storage or f"sqlite:///{self.out / 'study.db'}"

    def fixed(self) -> Record:
        """What all trials have in common, and where they begin."""
        knobs = dataclasses.asdict(self.base).items()
        return {name: _plain(value) for name, value in knobs if name not in _HERE}

    def folder(self, number: int) -> RunFolder:
        """The run of a trial."""
        return RunFolder(self.out / f"trial-{number:04}")


class Result(NamedTuple):
    """What came of a trial."""

    number: int
    ended: Literal["finished", "pruned", "diverged"]
    value: float | None  # what it reached; of one that did not finish, its last evaluation
    step: int
    knobs: Record


def choose(base: Config, typed: Collection[str], asked: Sequence[str]) -> tuple[str, ...]:
    """The knobs to search: those asked for, or all that have a range and were not typed."""
    for name in asked:
        if name not in search_ranges:
            what = "has no range to search" if name in knob_types else "is no knob"
            known = f"; expected some of: {', '.join(search_ranges)}"
            raise BadInput(f"{name} {what}{did_you_mean(name, search_ranges) or known}")
        if name in typed:
            raise BadInput(f"{name} is typed and so fixed; leave it out of --search, or its flag")
    found = []
    for name in asked or [name for name in search_ranges if name not in typed]:
        start = getattr(base, name)
        if isinstance(search_ranges[name], Span) and isinstance(start, tuple) and len(start) > 1:
            if asked:
                raise BadInput(f"{name} is {start}; one for each dimension cannot be searched")
        else:
            found.append(name)
    if not found:
        raise BadInput("nothing is left to search: all knobs that could be are typed")
    return tuple(dict.fromkeys(found))


def open_study(plan: Plan) -> optuna.Study:
    """The study of a plan, new or as it was left. One of another plan is refused."""
    if plan.trials < 1:
        raise BadInput(f"trials is {plan.trials}; expected at least 1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    local, out = plan.storage is None, plan.out
    used = out.exists() and (not out.is_dir() or any(out.glob("[!.]*")))
    if used and not (out / ".folder").is_file():
        raise BadInput(f"{out} exists and is not of a search; choose another with --out")
    if not used:  # whatever is wrong with the environment or a knob is said now
        Run(EnvMaker(plan.base.env, plan.base), RunFolder(out)).close()
    try:
        storage = None if local else _connect(plan)
        out.mkdir(parents=True, exist_ok=True)
        with alone(out):
            storage = storage or _connect(plan)
            study = optuna.create_study(
                storage=storage,
                study_name=out.name,
                direction="maximize",
                load_if_exists=True,
                # The first trials set the standard; then what stays below the median goes.
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=5,
                    n_warmup_steps=max(plan.base.random_steps, plan.base.steps // 3),
                ),
            )
            _same_plan(plan, study)
    except (*_STORAGE_ERRORS, ImportError) as error:
        raise BadInput(_unreachable(plan, error)) from error
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written: {error.strerror or error}") from error
    return study


def _connect(plan: Plan) -> optuna.storages.RDBStorage:
    # Many processes may write to one SQLite file; each waits for its turn.
    patience = {"connect_args": {"timeout": 60}} if plan.url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(plan.url, engine_kwargs=patience)
    except (ValueError, LookupError, RuntimeError) as error:
        raise BadInput(_unreachable(plan, error)) from error


def _unreachable(plan: Plan, error: Exception) -> str:
    why = str(error.__cause__ or error).partition("\n")[0]
    return f"the storage {hide_password(plan.url)} cannot be used: {why}"


def hide_password(url: str) -> str:
    """A storage's URL as it may be written down."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return url


def _same_plan(plan: Plan, study: optuna.Study) -> None:
    """Give a new study its plan and its first trial, or compare the plan with the study's."""
    names = sorted(plan.searched)
    mine = plan.fixed() | {"search": " ".join(names)}
    mine["ranges"] = str({name: search_ranges[name] for name in names})  # of another version?
    if "plan" not in study.user_attrs:
        study.set_user_attr("plan", mine)
    theirs = study.user_attrs["plan"]
    for name, value in mine.items():
        if theirs.get(name) != value:
            has = f"the study of {plan.out} has {theirs.get(name)}"
            raise BadInput(f"{name} is {value}, and {has}; choose another with --out")
    if not study.get_trials(deepcopy=False):
        # The first is what one began with: no search ends worse.
        study.enqueue_trial({name: plan.fixed()[name] for name in plan.searched})


def search(
    plan: Plan,
    study: optuna.Study,
    stop: Callable[[], bool],
    watch: Callable[[int], Watcher],
    told: Callable[[], None],
    waiting: Callable[[], None],
) -> None:
    """Run trials until there are enough, or until `stop` says so; then they can go on later.

    `watch` gives a watcher for a trial, `told` is called when one has ended.
    """
    try:
        while not stop():
            with alone(plan.out) as owner:
                trial = _take(plan, study, owner)
                if trial is None:
                    return
                run = _run_of(plan, trial, waiting)
                if run is None:
                    study.tell(trial, _value(plan.folder(trial.number)))
            if run is not None:
                with closing(run):
                    _play(study, trial, run, watch(trial.number), stop)
            told()
    except _STORAGE_ERRORS as error:
        again = "start the command again when it can, and it goes on"
        raise BadInput(f"{_unreachable(plan, error)}; {again}") from error


def _take(plan: Plan, study: optuna.Study, owner: str) -> optuna.Trial | None:
    """A trial of this folder that nobody goes on with, or else a new one, if one is missing."""

    def running() -> list[Any]:
        found = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [each for each in found if each.user_attrs.get("owner") == owner]

    left = {each.number for each in running() if not is_locked(plan.folder(each.number))}
    for each in running():  # asked again: it may have ended before its lock was looked at
        if each.number in left:
            return optuna.Trial(study, each._trial_id)  # as `ask` does for one that waits
    # In one look: of two, one that ends in between would be in neither.
    every = study.get_trials(deepcopy=False)
    going = [
        t for t in every if t.state == TrialState.RUNNING and t.user_attrs.get("owner") == owner
    ]
    if len(going) + sum(t.state in _ENDED for t in every) >= plan.trials:
        return None
    trial = study.ask()
    trial.set_user_attr("owner", owner)
    return trial


def _run_of(plan: Plan, trial: optuna.Trial, waiting: Callable[[], None]) -> Run | None:
    """The run of a trial, new or resumed; None if it is finished but nobody told the study."""
    # A sampler for each trial: a study that was stopped goes on as if it had not been.
    seed = derived_seed(plan.base.seed, "search", trial.number)
    trial.study.sampler = optuna.samplers.TPESampler(seed=seed)
    found = {name: _suggest(plan, trial, name) for name in plan.searched}
    config = dataclasses.replace(plan.base, **_knobs(found))
    folder = plan.folder(trial.number)
    if folder.path.exists():
        started = folder.config()
        local = {name: getattr(started, name) for name in _HERE}
        if dataclasses.replace(config, **local) != started:
            raise BadInput(f"{folder.path} is a run of something else; choose another with --out")
        if checkpoint.has_finished(folder, config.steps):
            return None
        config = started
    return open_run(EnvMaker(config.env, config), folder, plan.about, waiting)


def _suggest(plan: Plan, trial: optuna.Trial, name: str) -> Any:
    """A value for a knob, from its range, which is widened to have the value to begin with."""
    where, start = search_ranges[name], _plain(getattr(plan.base, name))
    if isinstance(where, Span):
        low, high = min(where.low, start), max(where.high, start)
        return trial.suggest_float(name, low, high, log=where.log and low > 0)
    choices = dict.fromkeys([*map(_plain, where), start])
    return trial.suggest_categorical(name, list(choices))


def _plain(value: Any) -> Any:
    """A knob as a database keeps it: a number or a word; one of a tuple is as good as the tuple."""
    if not isinstance(value, tuple):
        return value
    return value[0] if len(value) == 1 else " ".join(map(str, value))


def _knobs(params: Record) -> Record:
    """Knobs as a config takes them, from a database."""
    lists = {name: v for name, v in params.items() if isinstance(v, str)}
    return params | {name: tuple(map(int, v.split())) for name, v in lists.items()}


def _play(
    study: optuna.Study,
    trial: optuna.Trial,
    run: Run,
    progress: Watcher,
    stop: Callable[[], bool],
) -> None:
    """Train a trial's run and tell the study its result, unless the run was stopped."""
    pruning = Pruning(trial, run)
    try:
        if not pruning.hopeless:
            train_to_end(run, [progress, pruning], stop)
    except Diverged:  # other failures are no fault of the knobs: the environment, the disk ...
        trial.set_user_attr("diverged", run.collector.steps)
        study.tell(trial, state=TrialState.PRUNED)
        return
    except BrokenWatcher as error:
        raise error.__cause__ if isinstance(error.__cause__, _STORAGE_ERRORS) else error from error
    # Told before the run's lock goes, or another process would take the trial.
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

    def on_record(self, record: TypedRecord) -> str | None:
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
    """What a run reached: the mean of the last third of its evaluations, not its luckiest one."""
    means = [float(record["mean"]) for record in folder.metrics("evaluation")]
    last = means[-math.ceil(len(means) / 3) :]
    return sum(last) / len(last)


def results(study: optuna.Study) -> list[Result]:
    """What came of the trials that ended."""
    found = []
    for each in study.get_trials(deepcopy=False, states=_ENDED):
        diverged, step = each.user_attrs.get("diverged"), each.last_step or 0
        ended: Any = "finished" if each.state == TrialState.COMPLETE else "pruned"
        if diverged is not None:
            ended, step = "diverged", diverged
        found.append(Result(each.number, ended, each.value, step, _knobs(each.params)))
    return found


def best_of(found: Sequence[Result]) -> Result | None:
    """The best that finished; of equals the first."""
    finished = [each for each in found if each.ended == "finished" and each.value is not None]
    return max(finished, key=lambda each: (each.value, -each.number), default=None)


def importances(study: optuna.Study) -> dict[str, float]:
    """The share of each knob in what set the best quarter of the trials apart from all."""
    finished = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    if finished < _ENOUGH:
        raise BadInput(f"{finished} trials finished, and it takes {_ENOUGH} to say what mattered")
    # Optuna would leave out those that were pruned, which say as much about what is bad.
    whole = optuna.create_study(direction="maximize")
    for each in study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)):
        if each.value is not None:
            each.state = TrialState.COMPLETE
            whole.add_trial(each)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where all are equal, it says so and gives equal shares
        evaluator = PedAnovaImportanceEvaluator(target_quantile=0.25)
        return get_param_importances(whole, evaluator=evaluator)


def write_best(plan: Plan, best: Result, trials: int) -> Path:
    """Write the best knobs as a preset: all that are not the defaults, but for what is local."""
    config = dataclasses.asdict(dataclasses.replace(plan.base, **best.knobs))
    usual = dataclasses.asdict(Config())
    kept = {"steps", *plan.searched}
    kept |= {name for name, value in config.items() if value != usual[name]}
    knobs = {name: config[name] for name in config if name in kept - {"env", "seed", *_HERE}}
    reached = f"{best.value:,.1f} on {plan.base.env} after {plan.base.steps:,} steps"
    why = f"trial {best.number} of {trials}, which reached {reached}: {plan.about['command']}"
    path = plan.out / "best.toml"
    try:
        files.replace(path, to_toml(Preset(why, knobs, plan.base.env)).encode())
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from error
    return path
