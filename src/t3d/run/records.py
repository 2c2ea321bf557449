"""The lines of metrics.jsonl: as types in a program, as JSON in the file."""

import hashlib
import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from t3d.base import files
from t3d.base.errors import BadInput

Json = dict[str, Any]  # a JSON object


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of metrics.jsonl."""

    kind: ClassVar[str]

    step: int  # environment steps so far
    seconds: float  # of training so far, over all processes of the run

    def to_json(self) -> Json:
        """The line as a JSON object. An optional value that is missing is left out."""
        line: Json = {"kind": self.kind, "step": self.step}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                line |= value
            elif value is not None and field.name not in line:
                line[_key(field.name)] = value
        return line | {"seconds": line.pop("seconds")}  # last, after the facts

    @classmethod
    def from_json(cls, line: Json) -> Self:
        """The record of a line; ValueError, KeyError or TypeError if it is none.

        Keys that are no field of the record are its `measures`, if it has those, or else ignored.
        """
        kinds = get_type_hints(cls)
        rest = {key: value for key, value in line.items() if key != "kind"}
        values: Json = {}
        for field in fields(cls):
            key = _key(field.name)
            if field.name != "measures" and key in rest:
                values[field.name] = _read(kinds[field.name], rest.pop(key))
        if "measures" in kinds:
            values["measures"] = {key: _read(float | None, value) for key, value in rest.items()}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Episode(Record):
    """A finished episode of training, with exploration noise."""

    kind: ClassVar[str] = "episode"

    env: int  # which environment
    episode: int  # its number there
    length: int
    return_: float  # undiscounted; "return" in the file


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """How learning goes, every `log_every` steps."""

    kind: ClassVar[str] = "train"

    updates: int
    memory: int  # transitions stored
    # The last of each: critic_loss, actor_loss, mean_Q, and what else agent and collectors measure;
    # None if it was not finite.
    measures: dict[str, float | None]
    exploration: float | None = None  # standard deviation of the noise, in half-ranges
    saturation: float | None = None  # share of the last actions at an end of their range
    steps_per_second: float


@dataclass(frozen=True, kw_only=True)
class Evaluation(Record):
    """Episodes without noise."""

    kind: ClassVar[str] = "evaluation"

    mean: float
    std: float
    estimated_Q: float | None = None  # noqa: N815  the critic's mean value of the first states
    true_Q: float | None = None  # noqa: N815  the mean discounted return from there
    cut_off: float | None = None  # the mean weight of what time limits cut off
    best_mean: float
    best_step: int
    returns: list[float]
    lengths: list[int]


@dataclass(frozen=True, kw_only=True)
class HealthWarning(Record):
    """Numbers of the agent that point to trouble. Each kind is recorded once per run."""

    kind: ClassVar[str] = "warning"

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Restart(Record):
    """The process of an environment was lost and restarted."""

    kind: ClassVar[str] = "restart"

    env: int
    episode: int
    why: str


@dataclass(frozen=True, kw_only=True)
class CollectorChange(Record):
    """A collector was lost, or is back."""

    kind: ClassVar[str] = "collectors"

    collector: int
    playing: int  # collectors that play now
    of: int
    why: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Stop(Record):
    """A watcher stopped the run."""

    kind: ClassVar[str] = "stop"

    watcher: str  # the name of its class
    reason: str


KINDS: dict[str, type[Record]] = {
    record.kind: record
    for record in (Episode, Training, Evaluation, HealthWarning, Restart, CollectorChange, Stop)
}


def record_of(line: Json) -> Record:
    """A line of metrics.jsonl as the record of its kind; an error if it is none."""
    return KINDS[line["kind"]].from_json(line)


def finite(value: Any) -> float:
    """A finite float; ValueError, TypeError or OverflowError if the value is none."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def _key(name: str) -> str:
    """The key of a field in JSON: `return` is a word of Python and no name for a field."""
    return name.removesuffix("_")


def _read(kind: Any, value: Any) -> Any:
    """A value of JSON as a field's type."""
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
        return [_read(kind, each) for each in list(value)]
    if kind == float | None:
        return None if value is None else finite(value)
    if kind is float:
        return finite(value)
    if kind is int:
        return int(finite(value))
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


class MetricsFile:
    """Appends lines to metrics.jsonl, after the first `start` bytes."""

    def __init__(self, path: Path, start: int = 0) -> None:
        """Drop what is beyond `start`: a resumed run writes it again."""
        self._path = path
        try:
            if path.stat().st_size < start:
                raise BadInput(f"{path} is shorter than the checkpoint says: lines are lost")
            os.truncate(path, start)
            self._hash = hashlib.sha256(path.read_bytes())
            self._file = path.open("a")
        except OSError as error:
            raise files.cannot_write(path, error) from error

    def write(self, line: Json) -> None:
        """Append one line, and hand it to the system."""
        try:
            text = json.dumps(line, allow_nan=False) + "\n"
            self._file.write(text)
            self._file.flush()
            self._hash.update(text.encode())
        except OSError as error:
            raise files.cannot_write(self._path, error) from error

    def position(self) -> Json:
        """How much has been written, by now also to the disk: where a resumed run begins."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise files.cannot_write(self._path, error) from error
        return {"bytes": self._file.tell(), "sha256": self._hash.hexdigest()}

    def matches(self, position: Json) -> bool:
        """Whether the file is what it was at a position."""
        return bool(self._hash.hexdigest() == position["sha256"])

    def close(self) -> None:
        """Close the file. A failed write raised when it happened."""
        with suppress(OSError):
            self._file.close()
