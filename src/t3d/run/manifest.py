"""The manifest of a checkpoint: its facts, with a SHA-256 of every other file and of itself.

A manifest may come from anybody. Its shape is checked here, once; the rest of the program uses
the fields of `Manifest`. To add a fact, add a field with a default, so that older checkpoints
are still read. It does not enter a run's digest (checkpoint.py) unless it is named there.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from t3d.base import files, schema
from t3d.base.errors import BadInput
from t3d.run.records import Json, Position

FORMAT = 2
_MAXIMUM = 16 * 2**20  # bytes; about 230 per block of a few megabytes of the replay memory


@dataclass
class Progress:
    """Where the loop itself stands."""

    best_mean: float | None = None
    best_step: int = 0
    evaluated_at: int = -1  # the step of the last evaluation
    measured: dict[str, float] = field(default_factory=dict)  # the last of each measure
    seconds: float = 0.0  # spent by the processes before this one
    not_bit_exact: list[str] = field(default_factory=list)  # why, since when; empty while exact
    warned: list[str] = field(default_factory=list)  # names of past warnings
    checked: dict[str, str] = field(default_factory=dict)  # what was checked of bit-exactness
    watchers: dict[str, dict[str, Any]] = field(default_factory=dict)  # their state, by name
    attached: list[str] | None = None  # watchers that may change the run; earlier versions: unknown
    changed: dict[str, Any] = field(default_factory=dict)  # knobs by `Agent.change`
    successes: list[bool] = field(default_factory=list)  # of the last training episodes


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint."""

    bytes: int
    sha256: str
    block: list[Any] | None = None  # of the replay memory: see `Block`


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The facts of a checkpoint."""

    format: int = FORMAT
    step: int
    updates: int
    made_by: dict[str, Any]  # what the bits depend on besides the config
    progress: Progress
    metrics: Position
    memory: dict[str, Any]  # `ReplayBuffer.restore` checks it against the memory
    files: dict[str, Part]

    def __post_init__(self) -> None:
        """Refuse counts that nothing can have."""
        counts = {"step": self.step, "updates": self.updates, "metrics.bytes": self.metrics.bytes}
        counts |= {"progress.best_step": self.progress.best_step}
        counts |= {f"files.{name}.bytes": part.bytes for name, part in self.files.items()}
        for name, count in counts.items():
            if count < 0:
                raise ValueError(f"its {name} is {count}; expected at least 0")

    def sealed(self) -> bytes:
        """The manifest as text. An optional fact that is missing is left out."""
        values = asdict(self)
        for part in values["files"].values():
            if part["block"] is None:
                del part["block"]
        return seal(values)


def seal(values: Json) -> bytes:
    """The values of a manifest as text, with a SHA-256 of its own: a changed character shows."""
    text = json.dumps(values, sort_keys=True)
    own = hashlib.sha256(text.encode()).hexdigest()
    return (json.dumps(values | {"sha256": own}, sort_keys=True, indent=1) + "\n").encode()


def read(path: Path) -> Manifest:
    """The manifest in a file, if nothing has changed it."""
    content = files.read(path, _MAXIMUM)
    try:
        values = files.parse_json(content)
    except ValueError as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        written = values.get("format") if isinstance(values, dict) else None
        advice = f"this version of t3d reads format {FORMAT}"
        raise BadInput(f"{path} has format {written!r}; {advice}")
    if values.pop("sha256", None) is None or content != seal(values):
        raise BadInput(f"{path} is damaged: it does not fit its own SHA-256")
    try:
        return schema.parse(Manifest, values)
    except ValueError as error:
        raise BadInput(f"{path} is no manifest: {error}") from error
