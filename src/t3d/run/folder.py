"""The folder of one run: what is in it is written and read here.

config.json          every knob
run.json             the command, the preset and the versions that made it
metrics.jsonl        one JSON object per line: episodes, training, evaluations
lock                 held by the process that trains; free again when that ends
tensorboard/         the same for TensorBoard
best.safetensors     the agent with the best evaluation so far
score.json           what that agent reached on test episodes, at the end of training
checkpoints/         the whole state of the run at some steps
"""

import hashlib
import json
import math
import os
import platform
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # pragma: no cover, not on Windows
    fcntl = None  # type: ignore[assignment]

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.text import did_you_mean
from t3d.config import Config

Record = dict[str, Any]


class RunFolder:
    """Paths of a run, and its plain files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics_path = self.path / "metrics.jsonl"
        self.best_agent = self.path / "best.safetensors"
        self.score_path = self.path / "score.json"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"

    def create(self, config: Config, about: Record) -> None:
        """Make the folder on disk, whole or not at all. One that exists is never touched."""
        if self.path.exists() or self.path.is_symlink():
            advice = "choose another with --run"
            if (self.path / "config.json").is_file():
                advice += f", or go on with it: t3d resume {self}"
            raise BadInput(f"run folder {self.path} exists; {advice}")
        aside = RunFolder(self.path.with_name(f".{self.path.name}-{os.getpid()}"))
        shutil.rmtree(aside.path, ignore_errors=True)
        try:
            aside.checkpoints.mkdir(parents=True)
            aside.write_config(config)
            files.write(aside.path / "run.json", (json.dumps(about, indent=2) + "\n").encode())
            files.write(aside.metrics_path, b"")
            os.rename(aside.path, self.path)
            files.flush_folder(self.path.parent)
        except T3DError:
            shutil.rmtree(aside.path, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(aside.path, ignore_errors=True)
            reason = error.strerror or str(error)
            raise CannotWrite(f"run folder {self.path} cannot be written: {reason}") from error

    def write_config(self, config: Config) -> None:
        """Write config.json, whole or not at all."""
        try:
            files.replace(self.path / "config.json", config.to_json().encode())
        except OSError as error:
            raise CannotWrite(f"{self.path / 'config.json'} cannot be written: {error}") from error

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
        again = 2
        while path.exists():
            path = path.with_name(f"{name}-seed{seed}-{again}")
            again += 1
        return path

    def config(self) -> Config:
        """The knobs of the run."""
        values = self._json("config.json")
        try:
            return Config.from_dict(values)
        except T3DError as error:
            raise BadInput(f"{self.path / 'config.json'}: {error}") from error

    def about(self) -> Record:
        """The command, the preset and the versions that made the run."""
        return self._json("run.json")

    def write_score(self, score: Record) -> None:
        """Keep what the best agent reached on test episodes."""
        try:
            files.replace(self.score_path, (json.dumps(score) + "\n").encode())
        except OSError as error:
            raise CannotWrite(f"{self.score_path} cannot be written: {error}") from error

    def score(self) -> Record | None:
        """What the best agent reached on test episodes: mean, std, episodes and its step."""
        if not self.score_path.exists():
            return None
        found = self._json("score.json")
        try:
            return {name: finite(found[name]) for name in ("mean", "std", "episodes", "step")}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"{self.score_path} is no score: {error}") from error

    def _json(self, name: str) -> Record:
        return files.read_json(self.path / name)

    def metrics(self, kind: str | None = None, until: int | None = None) -> Iterator[Record]:
        """The records of metrics.jsonl, all or of one kind, without a half-written last line.

        Those of the first `until` bytes, if that is given.
        """
        try:
            lines = self.metrics_path.read_bytes()[:until].decode().split("\n")
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.metrics_path} cannot be read: {error}") from error
        for number, line in enumerate(lines[:-1], start=1):
            try:
                record = json.loads(line, parse_constant=_no_number)
                wanted = record["kind"] == kind or kind is None
                if not isinstance(record["kind"], str):
                    raise TypeError("a kind is a word")
                int(record["step"])
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise BadInput(f"{self.metrics_path}, line {number} is no record") from error
            if wanted:
                yield record

    def __str__(self) -> str:
        """The folder as it is typed in a shell."""
        return shlex.quote(str(self.path))

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint with the most steps; None if there is none."""
        found = self.all_checkpoints()
        return found[-1] if found else None

    def all_checkpoints(self) -> list[Path]:
        """The checkpoints, the oldest first."""
        return sorted(self.checkpoints.glob("step-*"))

    def last_agent(self) -> Path | None:
        """The agent of the newest checkpoint."""
        newest = self.newest_checkpoint()
        return newest / "agent.safetensors" if newest else None


def safe_name(text: str) -> str:
    """A text as a name that every file system takes."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text)


def finite(value: Any) -> float:
    """A number that is one, and not too large to be."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def versions() -> Record:
    """What is installed of that which the bits of a run depend on."""
    found = {"python": platform.python_version()}
    for package in ("t3d", "torch", "numpy", "numba", "gymnasium", "mujoco", "box2d"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


class Lock:
    """Held by the process that trains a run; when that ends, however it ends, it is free."""

    def __init__(self, folder: RunFolder) -> None:
        """Take it, or say who has it."""
        self._path = folder.path / "lock"
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotWrite(f"{self._path} cannot be written: {error}") from error
        if fcntl is None:  # pragma: no cover, not on Windows
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace") or "another"
            os.close(self._descriptor)
            advice = "stop that one, or train elsewhere with --run"
            raise BadInput(f"{folder.path} is in use by process {holder}; {advice}") from error
        with suppress(OSError):  # who has it is good to know, no more
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()} on {platform.node()}".encode(), 0)

    def release(self) -> None:
        """Let it go."""
        os.close(self._descriptor)


def is_locked(folder: RunFolder) -> bool:
    """Whether a process trains the run just now. Looking changes nothing."""
    if fcntl is None:  # pragma: no cover, not on Windows
        return False
    try:
        with (folder.path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


@contextmanager
def alone(path: Path) -> Iterator[str]:
    """Wait until no other process is here for the same folder; gives the name of the folder.

    That name is its own, whatever path leads to it and from which machine.
    """
    with (path / ".folder").open("a+") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        name = file.read(64)
        if not name:
            name = secrets.token_hex(16)
            file.write(name)
            file.flush()
        yield name


class MetricsFile:
    """Appends records to metrics.jsonl, from a given byte on."""

    def __init__(self, folder: RunFolder, start: int = 0) -> None:
        self._path = folder.metrics_path
        try:
            if self._path.stat().st_size < start:
                raise BadInput(f"{self._path} is shorter than the checkpoint says: lines are lost")
            os.truncate(self._path, start)
            self._hash = hashlib.sha256(self._path.read_bytes())
            self._file = self._path.open("a")
        except OSError as error:
            raise CannotWrite(f"{self._path} cannot be written: {error}") from error

    def write(self, record: Record) -> None:
        """Append one line, and hand it to the system."""
        try:
            line = json.dumps(record, allow_nan=False) + "\n"
            self._file.write(line)
            self._file.flush()
            self._hash.update(line.encode())
        except OSError as error:
            raise CannotWrite(f"{self._path} cannot be written: {error}") from error

    def position(self) -> Record:
        """How much has been written, by now also to the disk: where a resumed run goes on."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CannotWrite(f"{self._path} cannot be written: {error}") from error
        return {"bytes": self._file.tell(), "sha256": self._hash.hexdigest()}

    def is_as(self, position: Record) -> bool:
        """Whether what is there is what was there."""
        return bool(self._hash.hexdigest() == position["sha256"])

    def close(self) -> None:
        """Close the file. What could not be written was said when it was to be."""
        with suppress(OSError):
            self._file.close()
