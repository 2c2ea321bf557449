"""The folder of one run: what is in it is written and read here.

config.json          every knob
run.json             the command, the preset and the versions that made it
metrics.jsonl        one JSON object per line: episodes, training, evaluations
tensorboard/         the same for TensorBoard
best.safetensors     the agent with the best evaluation so far
checkpoints/         the whole state of the run at some steps
"""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t3d.config import Config
from t3d.errors import T3DError

Record = dict[str, Any]


class RunFolder:
    """Paths of a run, and its plain files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics_path = self.path / "metrics.jsonl"
        self.best_agent = self.path / "best.safetensors"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"

    def create(self, config: Config, about: Record) -> None:
        """Make the folder on disk. One that exists is never touched."""
        try:
            self.path.mkdir(parents=True)
            self.checkpoints.mkdir()
            self.write_config(config)
            (self.path / "run.json").write_text(json.dumps(about, indent=2) + "\n")
            self.metrics_path.touch()
        except FileExistsError as error:
            advice = "choose another with --run"
            if (self.path / "config.json").is_file():
                advice += f", or go on with it: t3d resume {self}"
            raise T3DError(f"run folder {self.path} exists; {advice}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise T3DError(f"run folder {self.path} cannot be written: {reason}") from error

    def write_config(self, config: Config) -> None:
        """Write config.json, whole or not at all."""
        aside = self.path / "config.json.writing"
        try:
            aside.write_text(config.to_json())
            aside.replace(self.path / "config.json")
        except OSError as error:
            raise T3DError(f"{self.path / 'config.json'} cannot be written: {error}") from error

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run folder."""
        folder = cls(path)
        if not folder.path.is_dir():
            near = sorted(f"{p}" for p in Path("runs").glob("*") if p.is_dir())[-3:]
            advice = f"; there is {', '.join(near)}" if near else "; t3d train makes one"
            raise T3DError(f"no run folder at {path}{advice}")
        if not (folder.path / "config.json").is_file():
            raise T3DError(f"{path} is not a run folder: it has no config.json")
        return folder

    @staticmethod
    def free_path(env: str, seed: int) -> Path:
        """The default place for a new run: the first free name under runs/."""
        name = "".join(c if c.isalnum() or c in "-._" else "-" for c in env)
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
            raise T3DError(f"{self.path / 'config.json'}: {error}") from error

    def about(self) -> Record:
        """The command, the preset and the versions that made the run."""
        return self._json("run.json")

    def _json(self, name: str) -> Record:
        path = self.path / name
        try:
            values = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise T3DError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise T3DError(f"{path} is not a JSON object")
        return values

    def metrics(self, kind: str | None = None) -> Iterator[Record]:
        """The records of metrics.jsonl, all or of one kind, without a half-written last line."""
        try:
            lines = self.metrics_path.read_text().split("\n")
        except (OSError, ValueError) as error:
            raise T3DError(f"{self.metrics_path} cannot be read: {error}") from error
        for number, line in enumerate(lines[:-1], start=1):
            try:
                record = json.loads(line)
                wanted = kind is None or record["kind"] == kind
            except (ValueError, TypeError, KeyError) as error:
                raise T3DError(f"{self.metrics_path}, line {number} is no record") from error
            if wanted:
                yield record

    def __str__(self) -> str:
        """The folder as it is typed in a shell."""
        return shlex.quote(str(self.path))

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint with the most steps; None if there is none."""
        found = sorted(self.checkpoints.glob("step-*"))
        return found[-1] if found else None

    def newest_step(self) -> int:
        """The step of the newest checkpoint."""
        newest = self.newest_checkpoint()
        if newest is None:
            raise T3DError(f"{self.path} has no checkpoint to go on from; train it anew")
        return int(newest.name.removeprefix("step-"))

    def last_agent(self) -> Path | None:
        """The agent of the newest checkpoint."""
        newest = self.newest_checkpoint()
        return newest / "agent.safetensors" if newest else None


class MetricsFile:
    """Appends records to metrics.jsonl, from a given byte on."""

    def __init__(self, folder: RunFolder, start: int = 0) -> None:
        self._path = folder.metrics_path
        try:
            if self._path.stat().st_size < start:
                raise T3DError(f"{self._path} is shorter than the checkpoint says: lines are lost")
            os.truncate(self._path, start)
            self._file = self._path.open("a")
        except OSError as error:
            raise T3DError(f"{self._path} cannot be written: {error}") from error

    def write(self, record: Record) -> None:
        """Append one line, and hand it to the system."""
        try:
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise T3DError(f"{self._path} cannot be written: {error}") from error

    def position(self) -> int:
        """How many bytes have been written: where a resumed run goes on."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
