"""The folder of one run: its paths and its plain files.

config.json          every knob
run.json             the command, the preset and the versions that made it, and its origin
metrics.jsonl        one JSON object per line: episodes, training, evaluations (records.py)
lock                 held by the process that trains (lock.py)
tensorboard/         the same for TensorBoard
tracking.json        the id of the run's record in experiment trackers (tracking.py)
best.safetensors     the agent with the best evaluation so far
score.json           the returns of that agent on test episodes, at the end of training
checkpoints/         the complete state of the run at some steps (checkpoint.py)
"""

import hashlib
import itertools
import json
import os
import platform
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, overload

from t3d.base import files, schema
from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.base.text import did_you_mean, typed_path
from t3d.config import Config
from t3d.run.records import KINDS, Json, Kind, Record, finite

_LONGEST_NAME = 200  # bytes; file systems allow 255
_LONGEST_LINE = 8 * 2**20  # bytes of metrics.jsonl: an evaluation lists all of its returns
_LARGEST_METRICS = 2**30  # bytes


@dataclass(frozen=True)
class Origin:
    """The agent that a run started from, if it did not start from random networks."""

    path: str  # as it was typed: of a run, or of an agent's file
    agent: str  # best, last or file; memory if it was passed from Python
    sha256: str  # of the agent's file
    step: int | None  # of its run, if that is known
    updates: int
    taken: list[str]  # besides networks and normaliser: optimizers, memory
    observation_map: list[Any] | None = None

    def __str__(self) -> str:
        """In words."""
        which = {"best": "the best agent of ", "last": "the last agent of "}.get(self.agent, "")
        when = "" if self.step is None else f"step {self.step:,}, "
        taken = f", with its {' and '.join(self.taken)}" if self.taken else ""
        return f"{which}{self.path} ({when}{self.updates:,} updates){taken}"


@dataclass(frozen=True)
class _About:
    """The shape of run.json."""

    preset: str | None = None
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    origin: Origin | None = None


class RunFolder:
    """Paths of a run, and its plain files."""

    def __init__(self, path: str | Path) -> None:
        self.path = files.usable(path)
        self.metrics_path = self.path / "metrics.jsonl"
        self.best_agent = self.path / "best.safetensors"
        self.score_path = self.path / "score.json"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.watchers: tuple[str, ...] = ()  # of this session, as typed on the command line

    def require_free(self) -> None:
        """Refuse a path that exists: a new run never touches what is there."""
        if self.path.exists() or self.path.is_symlink():
            advice = "choose another with --run (in Python, run=)"
            if (self.path / "config.json").is_file():
                advice += f", or resume it: t3d resume {self}"
            raise BadInput(f"run folder {self.path} exists; {advice}")

    def create(self, config: Config, about: Json) -> None:
        """Make the folder on disk, complete or not at all."""
        self.require_free()
        # A name of its own: the run's may be as long as the system allows.
        draft = RunFolder(self.path.with_name(f".new-{os.getpid()}-{threading.get_ident()}"))
        shutil.rmtree(draft.path, ignore_errors=True)
        try:
            draft.checkpoints.mkdir(parents=True)
            draft.write_config(config)
            files.write(draft.path / "run.json", (json.dumps(about, indent=2) + "\n").encode())
            files.write(draft.metrics_path, b"")
            os.rename(draft.path, self.path)
            files.flush_folder(self.path.parent)
        except BaseException as error:
            shutil.rmtree(draft.path, ignore_errors=True)
            if isinstance(error, OSError):
                self.require_free()  # another run may have taken it just now
                raise files.cannot_write(f"run folder {self.path}", error) from error
            raise

    def write_config(self, config: Config) -> None:
        """Write config.json, complete or not at all."""
        files.save(self.path / "config.json", config.to_json().encode())

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run folder."""
        folder = cls(path)
        if not folder.path.is_dir():
            runs = sorted(f"{p}" for p in Path("runs").glob("*") if p.is_dir())
            advice = f"; there is {', '.join(runs[-3:])}" if runs else "; t3d train makes one"
            advice = did_you_mean(str(path), runs) or advice
            raise BadInput(f"no run folder at {path}{advice}")
        if (folder.path / "sweep.json").is_file():
            advice = f"name one of its runs, or take all: t3d sweep {folder}, t3d compare {folder}"
            raise BadInput(f"{path} is the folder of a sweep; {advice}")
        if not (folder.path / "config.json").is_file():
            raise BadInput(f"{path} is not a run folder: it has no config.json")
        return folder

    @staticmethod
    def free_path(env: str, seed: int) -> Path:
        """The default place for a new run: the first free name under runs/."""
        name = safe_name(env)
        path = Path("runs") / f"{name}-seed{seed}"
        number = 2
        while path.exists():
            path = path.with_name(f"{name}-seed{seed}-{number}")
            number += 1
        return path

    def config(self) -> Config:
        """The knobs of the run."""
        values = files.read_json(self.path / "config.json")
        try:
            return Config.from_dict(values)
        except T3DError as error:
            raise BadInput(f"{self.path / 'config.json'}: {error}") from error

    def about(self) -> Json:
        """The command, the preset and the versions that made the run."""
        return asdict(self._about())

    def origin(self) -> Origin | None:
        """The agent that the run started from; None if it started from random networks."""
        return self._about().origin

    def _about(self) -> _About:
        path = self.path / "run.json"
        try:
            return schema.parse(_About, files.read_json(path))
        except ValueError as error:
            raise BadInput(f"{path} does not say how the run was made: {error}") from error

    def write_score(self, score: Json) -> None:
        """Write the score of the best agent on test episodes."""
        files.save(self.score_path, (json.dumps(score) + "\n").encode())

    def score(self) -> Json | None:
        """The score of the best agent on test episodes: mean, std, episodes, its step, success."""
        if not os.path.lexists(self.score_path):
            return None
        values = files.read_json(self.score_path)
        try:
            names = [*("mean", "std", "episodes", "step"), *({"success"} & values.keys())]
            return {name: finite(values[name]) for name in names}
        except (KeyError, ValueError) as error:
            raise BadInput(f"{self.score_path} is no score: {error}") from error

    @overload
    def records(self) -> Iterator[Record]: ...
    @overload
    def records(self, kind: type[Kind]) -> Iterator[Kind]: ...
    def records(self, kind: type[Record] = Record) -> Iterator[Record]:
        """The records of metrics.jsonl, all or of one kind, less a half-written last line."""
        for number, line in self._lines():
            line_kind = KINDS.get(line["kind"], Record)
            if not issubclass(line_kind, kind):
                continue
            try:
                record = line_kind.from_json(line)
            except ValueError as error:
                where = f"{self.metrics_path}, line {number}"
                raise BadInput(f"{where} is no record: {error}") from error
            yield record

    def metrics(self, until: int | None = None) -> Iterator[Json]:
        """The same lines as plain JSON; those of the first `until` bytes, if that is given."""
        for _, line in self._lines(until):
            yield line

    def _lines(self, until: int | None = None) -> Iterator[tuple[int, Json]]:
        """Every line of metrics.jsonl with its number; each has a kind and a step."""
        left = _LARGEST_METRICS if until is None else until
        with files.open_regular(self.metrics_path, _LARGEST_METRICS) as file:
            for number in itertools.count(1):
                where = f"{self.metrics_path}, line {number}"
                text = file.readline(min(left, _LONGEST_LINE + 1))
                left -= len(text)
                if len(text) > _LONGEST_LINE:
                    raise BadInput(f"{where} has more than {_LONGEST_LINE:,} bytes")
                if not text.endswith(b"\n"):
                    return
                try:
                    line = files.parse_json(text)
                    if not isinstance(line["kind"], str) or schema.whole(line["step"]) < 0:
                        raise TypeError("a kind is a word, and a step is counted from 0")
                except (ValueError, TypeError, KeyError) as error:
                    raise BadInput(f"{where} is no record") from error
                yield number, line

    def __str__(self) -> str:
        """The folder as it is typed in a shell."""
        return typed_path(self.path)

    @property
    def to_resume(self) -> str:
        """What is typed after `t3d resume` to resume the run with the same watchers."""
        return f"{self} {flag('watcher', self.watchers)}" if self.watchers else f"{self}"

    @property
    def scored_agent(self) -> Literal["best", "last"]:
        """Which agent is scored: the best by evaluation or, without any evaluation, the last."""
        return "best" if self.best_agent.is_file() else "last"

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint with the most steps; None if there is none."""
        return max(self.all_checkpoints(), default=None)

    def all_checkpoints(self) -> list[Path]:
        """The checkpoints, the oldest first."""
        return sorted(self.checkpoints.glob("step-*"))

    def last_agent(self) -> Path | None:
        """The agent of the newest checkpoint."""
        newest = self.newest_checkpoint()
        return newest / "agent.safetensors" if newest else None


def safe_name(text: str) -> str:
    """A text as a file name that every file system allows, with room for more at its end."""
    name = "".join(c if c.isalnum() or c in "-._" else "-" for c in text)
    if len(name.encode(errors="replace")) <= _LONGEST_NAME:
        return name
    # Two long names that begin alike are still two.
    start = name.encode(errors="replace")[: _LONGEST_NAME - 17].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def versions() -> Json:
    """The installed versions that the bits of a run depend on."""
    installed = {"python": platform.python_version()}
    for package in ("t3d", "torch", "numpy", "numba", "gymnasium", "mujoco", "box2d"):
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed
