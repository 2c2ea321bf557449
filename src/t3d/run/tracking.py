"""What all experiment trackers log of a run, and under which id: W&B, Trackio, MLflow.

The id is in the run's folder, in tracking.json, before any tracker hears of it. A run that is
killed at any time, even before its first checkpoint, therefore continues the same record.
"""

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.base.extras import how_to_install
from t3d.base.text import blame
from t3d.run.records import Evaluation, Json, Record
from t3d.run.watchers import Watcher

if TYPE_CHECKING:
    from t3d.run.finish import Finished
    from t3d.run.folder import RunFolder
    from t3d.run.loop import Run

PROJECT = "t3d"  # the project or experiment, unless the tracker's own environment variable says so
_ID = re.compile(r"[0-9a-f]{12}")
_NAMES = ("name", "watcher", "env", "collector")  # of what a note is about
_TEXTS = ("text", "reason", "why")


class ExperimentTracker(Watcher):
    """Logs the config, every number of the records, warnings, the score and the files of a run.

    A subclass talks to one tracker, by the methods that raise NotImplementedError here. The record
    stays open from `on_end` to `on_finish` if the run is going to be scored.
    """

    optional = True
    _is_open = False

    def begin(self, folder: "RunFolder", id: str) -> None:
        """Open the record of this id, or create it, with the config of the run."""
        raise NotImplementedError

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers of one step."""
        raise NotImplementedError

    def note(self, title: str, text: str, step: int) -> None:
        """Log a warning, a restart or a stop."""
        raise NotImplementedError

    def keep(self, paths: dict[str, Path], step: int) -> None:
        """Keep files: the report, the curve, the video, the score and the config."""
        raise NotImplementedError

    def end(self, state: str) -> None:
        """Close the record of a run that is finished, stopped or failed."""
        raise NotImplementedError

    def has(self, name: str, step: int) -> bool:
        """Whether the record has this number of this step from before it was opened."""
        return False

    def on_start(self, run: "Run") -> None:
        """Open the record."""
        self._open(run.folder)
        # A run that resumes to the same bits logs the same numbers again. One that does not has
        # others, and its record shows both.
        self._repeats = not run.progress.not_bit_exact

    def on_record(self, record: Record) -> None:
        """Log one line of metrics.jsonl."""
        numbers = {
            name: value
            for name, value in record.numbers().items()
            if not (self._repeats and self.has(name, record.step))
        }
        if numbers:
            self.log(numbers, record.step)
        line = record.to_json()
        text = next((line[key] for key in _TEXTS if line.get(key)), None)
        if text:
            about = [str(line[key]) for key in _NAMES if key in line]
            self.note(" ".join([record.kind, *about]), text, record.step)

    def on_end(self, run: "Run") -> None:
        """Close the record, unless the run will be scored."""
        failed = sys.exception() is not None
        if failed or not (run.finished or run.stopped_by):
            self._close("failed" if failed else "stopped")

    def on_finish(self, folder: "RunFolder", finished: "Finished") -> None:
        """Log the score, keep the files, and close the record."""
        self._open(folder)
        step = max((each.step for each in folder.records(Evaluation)), default=0)
        if finished.score:
            score = finished.score
            numbers = {"mean": score.mean, "std": score.std, "episodes": len(score.returns)}
            numbers |= {} if score.success is None else {"success": score.success}
            numbers |= {f"info/{name}": mean for name, mean in score.info.items()}
            self.log({f"score/{name}": value for name, value in numbers.items()}, step)
        written = {"score": folder.score_path, "config": folder.path / "config.json"}
        paths = {name: path for name, path in written.items() if path.is_file()}
        self.keep(finished.files | paths, step)
        failed = "failed" if sys.exception() else "stopped"  # before it had anything to score
        self._close("finished" if finished.score else failed)

    def _open(self, folder: "RunFolder") -> None:
        if not self._is_open:
            self.begin(folder, record_id(folder))
            self._is_open = True

    def _close(self, state: str) -> None:
        if self._is_open:
            self._is_open = False
            self.end(state)


def record_id(folder: "RunFolder") -> str:
    """The id of the run's record, the same for all trackers; made when it is first asked for."""
    path = folder.path / "tracking.json"
    if not path.is_file():
        new = secrets.token_hex(6)
        files.save(path, (json.dumps({"id": new}) + "\n").encode())
        return new
    identity = files.read_json(path).get("id")
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        raise BadInput(f"{path} has no id; delete it to begin a new record")
    return identity


def facts(folder: "RunFolder") -> Json:
    """What a record says about a run: its knobs, preset, command and the installed versions."""
    about: dict[str, Any] = folder.about()
    versions = {f"version/{name}": version for name, version in about.pop("versions").items()}
    return vars(folder.config()) | about | versions


class Tracker(NamedTuple):
    """A watcher that is chosen by name, which is also that of its extra."""

    make: Callable[[], Watcher]  # BadInput if it lacks something else, such as an account
    module: str  # the package that it needs


def _tensorboard() -> Watcher:
    from t3d.run.tensorboard import TensorBoard

    return TensorBoard()


def _wandb() -> Watcher:
    from t3d.run.wandb import Wandb

    return Wandb()


def _trackio() -> Watcher:
    from t3d.run.trackio import Trackio

    return Trackio()


def _mlflow() -> Watcher:
    from t3d.run.mlflow import MLflow

    return MLflow()


WATCHERS = {
    "tensorboard": Tracker(_tensorboard, "tensorboard"),
    "wandb": Tracker(_wandb, "wandb"),
    "trackio": Tracker(_trackio, "trackio"),
    "mlflow": Tracker(_mlflow, "mlflow"),
}


def chosen(track: Iterable[str] = ()) -> tuple[list[Watcher], list[str]]:
    """TensorBoard, if it is installed, and the trackers of the knob `track`; and what to tell.

    Whoever names a tracker wants it: one that cannot be used is an error.
    """
    for name in track:
        if not _is_installed(name):
            raise BadInput(f"track names {name}, which is not installed: {how_to_install(name)}")
    missing = []
    if not _is_installed("tensorboard"):
        missing = [f"no TensorBoard events; to have them: {how_to_install('tensorboard')}"]
    names = [*([] if missing else ["tensorboard"]), *track]
    return [_make(name) for name in names], missing


def _make(name: str) -> Watcher:
    try:
        return WATCHERS[name].make()
    except T3DError:
        raise
    except ImportError as error:
        raise BadInput(f"{name} is installed and cannot be imported: {error}") from error
    except Exception as error:  # of what its environment variables say, such as WANDB_MODE=off
        raise BadInput(f"{name} cannot be used: {blame(error)}") from error


def _is_installed(name: str) -> bool:
    """Whether the package is there. A folder of its name, as W&B makes one, is no package."""
    spec = find_spec(WATCHERS[name].module)
    return spec is not None and spec.origin is not None
