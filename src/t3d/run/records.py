"""The lines of metrics.jsonl: as types in a program, as JSON in the file."""

import hashlib
import json
import os
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin

from t3d.base import files, schema
from t3d.base.errors import BadInput
from t3d.play.info import LIMIT, shown_name

Json = dict[str, Any]  # a JSON object
_LARGEST = 1e100  # far beyond any return; the squares and sums of such numbers are still finite


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of metrics.jsonl.

    A run writes all fields that apply to it. A line of another version or program may lack any
    field that has a default, and may have more keys than there are fields.
    """

    kind: ClassVar[str] = "unknown"  # a line of a kind that is not in KINDS is a plain Record

    step: int  # environment steps so far
    seconds: float = 0.0  # of training so far, over all processes of the run

    def to_json(self) -> Json:
        """The line as a JSON object. An optional value that is missing is left out."""
        line: Json = {"kind": self.kind, "step": self.step}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "measures":
                line |= value
            elif value is not None and value != {} and each.name not in line:
                line[_key(each.name)] = value
        return line | {"seconds": line.pop("seconds")}  # last, after the facts

    def numbers(self) -> dict[str, float]:
        """The measured numbers of the line, by the names that trackers show: train/critic_loss."""
        line = self.to_json()
        line |= {f"info/{name}": value for name, value in line.pop("info", {}).items()}
        return {
            f"{self.kind}/{name}": value
            for name, value in line.items()
            if isinstance(value, (int, float)) and name not in ("step", "env", "episode")
        }

    @classmethod
    def from_json(cls, line: Json) -> Self:
        """The record of a line; ValueError if a value is wrong, or missing without a default.

        Other keys are the record's `measures`, if it has those.
        """
        rest = {key: value for key, value in line.items() if key != "kind"}
        values: Json = {}
        for each in fields(cls):
            key = _key(each.name)
            if key in rest and key != "measures":
                values[each.name] = _read(key, each.type, rest.pop(key))
            elif each.default is each.default_factory is MISSING:
                raise ValueError(f"it has no {key}")
        if "measures" in cls.__dataclass_fields__:
            values["measures"] = {key: _measure(value) for key, value in rest.items()}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Episode(Record):
    """A finished episode of training, with exploration noise."""

    kind: ClassVar[str] = "episode"

    env: int | None = None  # which environment
    episode: int | None = None  # its number there
    length: int | None = None
    return_: float  # undiscounted; "return" in the file
    success: int | None = None  # 1 or 0, if the environment's info says so
    info: dict[str, float] = field(default_factory=dict)  # the means of the info's numbers


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """How learning goes, every `log_every` steps."""

    kind: ClassVar[str] = "train"

    updates: int | None = None
    memory: int | None = None  # transitions stored
    # The last of each: critic_loss, actor_loss, mean_Q, and what else agent and collectors measure;
    # None if it is not finite.
    measures: dict[str, float | None] = field(default_factory=dict)
    exploration: float | None = None  # standard deviation of the noise, in half-ranges
    saturation: float | None = None  # share of the last actions at an end of their range
    steps_per_second: float | None = None
    success_rate: float | None = None  # share of the last training episodes, up to 100


@dataclass(frozen=True, kw_only=True)
class Evaluation(Record):
    """Episodes without noise."""

    kind: ClassVar[str] = "evaluation"

    mean: float
    std: float | None = None
    estimated_Q: float | None = None  # noqa: N815  the critic's mean value of the first states
    true_Q: float | None = None  # noqa: N815  the mean discounted return from there
    cut_off: float | None = None  # the mean weight of what time limits cut off
    best_mean: float | None = None
    best_step: int | None = None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    success: float | None = None  # share of the episodes, if the environment's info says so
    info: dict[str, float] = field(default_factory=dict)  # the means of the info's numbers


@dataclass(frozen=True, kw_only=True)
class HealthWarning(Record):
    """Numbers of the agent that point to trouble. Each kind is recorded once per run."""

    kind: ClassVar[str] = "warning"

    name: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Restart(Record):
    """The process of an environment was lost and restarted."""

    kind: ClassVar[str] = "restart"

    env: int | None = None
    episode: int | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectorChange(Record):
    """A collector was lost, or is back."""

    kind: ClassVar[str] = "collectors"

    collector: int | None = None
    playing: int | None = None  # collectors that play now
    of: int | None = None
    why: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Stop(Record):
    """A watcher stopped the run."""

    kind: ClassVar[str] = "stop"

    watcher: str = ""  # the name of its class
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class KnobChange(Record):
    """A resumed run has another value of a knob from here on."""

    kind: ClassVar[str] = "change"

    knob: str = ""
    text: str = ""


_CLASSES: tuple[type[Record], ...] = (
    *(Episode, Training, Evaluation, HealthWarning, Restart, CollectorChange, Stop, KnobChange),
)
KINDS: dict[str, type[Record]] = {each.kind: each for each in _CLASSES}


Kind = TypeVar("Kind", bound=Record)


def record_of(line: Json) -> Record:
    """A line of metrics.jsonl as the record of its kind; ValueError if it is none."""
    return KINDS.get(line["kind"], Record).from_json(line)


def of_kind(kind: type[Kind], records: Iterable[Record]) -> list[Kind]:
    """The records of one kind, in their order."""
    return [record for record in records if isinstance(record, kind)]


def finite(value: Any) -> float:
    """A finite number with which statistics can be computed; ValueError if the value is none."""
    return schema.finite(value, _LARGEST)


def _key(name: str) -> str:
    """The key of a field in JSON: `return` is a word of Python and no name for a field."""
    return name.removesuffix("_")


def _read(key: str, kind: Any, value: Any) -> Any:
    """A value of JSON as a field's type; ValueError if it is no such thing."""
    options = get_args(kind) or (kind,)  # of a list, the type of its members
    if get_origin(kind) is dict:
        return _info(key, value)
    try:
        if get_origin(kind) is list:
            if not isinstance(value, list):
                raise ValueError("it is no list")
            return [_number(options, each) for each in value]
        if value is None and type(None) in options:
            return None
        if kind is not str:
            number = _number(options, value)
            if key == "success" and not 0 <= number <= 1:
                raise ValueError("it is no share")
            return number
    except ValueError as error:
        expected = "finite numbers" if get_origin(kind) is list else "a finite number"
        expected = "a number from 0 to 1" if key == "success" else expected
        raise ValueError(f"its {key} is {reprlib.repr(value)}; expected {expected}") from error
    if not isinstance(value, str):
        raise ValueError(f"its {key} is {reprlib.repr(value)}; expected a text")
    return value


def _info(key: str, value: Any) -> dict[str, float]:
    """Numbers by name: few, and with names that are safe to print."""
    expected = f"expected up to {LIMIT} finite numbers by name"
    if not isinstance(value, dict) or len(value) > LIMIT:
        raise ValueError(f"its {key} is {reprlib.repr(value)}; {expected}")
    try:
        return {shown_name(name): finite(each) for name, each in value.items()}
    except ValueError as error:
        raise ValueError(f"its {key} is {reprlib.repr(value)}; {expected}") from error


def _number(options: tuple[Any, ...], value: Any) -> float:
    return schema.whole(value) if int in options else finite(value)


def _measure(value: Any) -> float | None:
    """A measured number; None if it is not finite, or none."""
    try:
        return finite(value)
    except ValueError:
        return None


@dataclass(frozen=True)
class Position:
    """How much of metrics.jsonl belongs to a checkpoint."""

    bytes: int
    sha256: str


class MetricsFile:
    """Appends lines to metrics.jsonl, after the first `start` bytes."""

    def __init__(self, path: Path, start: int = 0) -> None:
        """Drop what is beyond `start`: a resumed run writes it again."""
        self._path = path
        try:
            files.require_regular(path)
            if path.stat().st_size < start:
                raise BadInput(f"{path} is shorter than the checkpoint says: lines are lost")
            os.truncate(path, start)
            with files.open_regular(path) as file:
                self._hash = hashlib.file_digest(file, "sha256")
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

    def position(self) -> Position:
        """How much has been written, by now also to the disk: where a resumed run begins."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise files.cannot_write(self._path, error) from error
        return Position(self._file.tell(), self._hash.hexdigest())

    def matches(self, position: Position) -> bool:
        """Whether the file is what it was at a position."""
        return self._hash.hexdigest() == position.sha256

    def close(self) -> None:
        """Close the file. A failed write raised when it happened."""
        with suppress(OSError):
            self._file.close()
