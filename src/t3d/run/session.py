"""A session of training: start or resume a run, and train it to its end."""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from t3d.play.envs import EnvMaker
from t3d.play.repeating import Trial, try_to_repeat
from t3d.run.folder import RunFolder, versions
from t3d.run.loop import Run
from t3d.run.records import Json, Stop
from t3d.run.resume import resume
from t3d.run.signals import StopSignal, never
from t3d.run.start import Source
from t3d.run.watchers import Watcher, Watchers

_WORST_FIRST = ("never", "when new", "unknown", "always")
_TRIAL_SECONDS = 1.0  # about how long a new run may try whether its environment repeats episodes


def about(preset: str, command: str | None = None) -> Json:
    """The origin of a run, for run.json; `command` defaults to this process's."""
    typed = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"preset": preset, "command": command or typed, "versions": versions()}


def open_run(
    maker: EnvMaker,
    folder: RunFolder,
    about: Json,
    waiting: Callable[[], None] = lambda: None,
    changing: Collection[str] = (),
    source: Source | None = None,
) -> Run:
    """The run of a folder, ready to train: new if there is no folder yet, or else resumed.

    A resumed run keeps the config of `maker` from here on, in which only the knobs that
    `changing` names may be others than before. It loses its score, which is of an agent that may
    not stay the best. `source` is what a new run starts from. The caller closes the run.
    """
    if not folder.path.exists():
        return _start(maker, folder, about, waiting, source)
    run = resume(maker, folder, waiting, changing)
    try:
        folder.score_path.unlink(missing_ok=True)
    except BaseException:
        run.close()
        raise
    return run


def _start(
    maker: EnvMaker,
    folder: RunFolder,
    about: Json,
    waiting: Callable[[], None],
    source: Source | None,
) -> Run:
    """A new run, with `remake_envs` if the environment carries state from episode to episode."""
    if maker.config.single_env:
        trial = Trial("unknown", why="nothing is tried in the only environment")
    elif maker.config.env_backend == "batched":
        trial = Trial("unknown", why="a batch of environments cannot repeat an episode")
    else:
        trial = _trial(maker)
    if trial.repeats == "when new":
        config = dataclasses.replace(maker.config, remake_envs=True)
        maker = dataclasses.replace(maker, config=config)
    run = Run.start(maker, folder, about, waiting, source)
    if maker.config.env_backend == "batched":
        run.notes.append("a batch of environments: a resumed run begins new episodes in all")
    if trial.repeats == "when new":
        what = "the environment carries state from one episode to the next"
        run.notes.append(f"{what}: every episode gets a new one, as with --remake-envs")
    if trial.repeats == "never":
        what = "the environment is not deterministic: the same seed and actions led elsewhere"
        run.progress.not_bit_exact.append(what)
        run.notes.append(f"{what}, so a resumed run will be another")
    run.progress.checked["environment"] = trial.in_words()
    if source:
        _keep(run)
    return run


def _trial(maker: EnvMaker) -> Trial:
    """Whether the environments repeat episodes: the worse answer of training and evaluation."""
    variant = maker.for_evaluation()
    makers = [maker] if variant is maker else [maker, variant]
    trials = [try_to_repeat(each, _TRIAL_SECONDS) for each in makers]
    return min(trials, key=lambda trial: _WORST_FIRST.index(trial.repeats))


def _keep(run: Run) -> None:
    """Save what a run has taken from another, so that a resumed one does not need that."""
    try:
        run.checkpoint()
    except BaseException:
        run.close()
        raise


class Outcome(NamedTuple):
    """How a session ended."""

    folder: RunFolder
    signal: int | None  # the signal that stopped it
    stopped_by: Stop | None = None  # the watcher that stopped it, and why
    watchers: Watchers | None = None  # to be told when the run is scored


def train_to_end(
    run: Run, watchers: Iterable[Watcher] = (), stop: Callable[[], bool] = never
) -> Outcome:
    """Train until the run is finished, or `stop` or a watcher stops it; it is saved in any case."""
    for watcher in watchers:
        run.watchers.append(watcher)
    finished = run.loop(stop)
    signal = stop.number if isinstance(stop, StopSignal) and not finished else None
    return Outcome(run.folder, signal, run.stopped_by, run.watchers)
