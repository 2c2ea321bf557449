"""A session of training: start or resume a run, and train it to its end."""

import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder, versions
from t3d.run.loop import Run
from t3d.run.records import Json, Stop
from t3d.run.resume import resume
from t3d.run.signals import StopSignal, never
from t3d.run.watchers import Watcher


def about(preset: str, command: str | None = None) -> Json:
    """The origin of a run, for run.json; `command` defaults to this process's."""
    typed = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"preset": preset, "command": command or typed, "versions": versions()}


def open_run(
    maker: EnvMaker,
    folder: RunFolder,
    about: Json,
    waiting: Callable[[], None] = lambda: None,
) -> Run:
    """The run of a folder, ready to train: new if there is no folder yet, or else resumed.

    A resumed run keeps the config of `maker` from here on, and loses its score, which is of an
    agent that may not stay the best. The caller closes the run.
    """
    if not folder.path.exists():
        return Run.start(maker, folder, about, waiting)
    run = resume(maker, folder, waiting)
    try:
        folder.write_config(maker.config)
        folder.score_path.unlink(missing_ok=True)
    except BaseException:
        run.close()
        raise
    return run


class Outcome(NamedTuple):
    """How a session ended."""

    folder: RunFolder
    signal: int | None  # the signal that stopped it
    stopped_by: Stop | None = None  # the watcher that stopped it, and why


def train_to_end(
    run: Run, watchers: Iterable[Watcher] = (), stop: Callable[[], bool] = never
) -> Outcome:
    """Train until the run is finished, or `stop` or a watcher stops it; it is saved in any case."""
    for watcher in watchers:
        run.watchers.append(watcher)
    finished = run.loop(stop)
    signal = stop.number if isinstance(stop, StopSignal) and not finished else None
    return Outcome(run.folder, signal, run.stopped_by)
