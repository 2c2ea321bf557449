"""The plan of a search: which knobs to search, from which config, and where its runs are."""

import dataclasses
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t3d.base.errors import BadInput
from t3d.base.other_names import own_name
from t3d.base.text import did_you_mean
from t3d.config import Config, Span, knob_types, knobs_of, search_ranges
from t3d.run.folder import RunFolder
from t3d.run.records import Json

# Where to compute and to log, which each machine decides for itself.
# Not what an environment needs, such as a process of its own: that goes with the preset.
HERE = (knobs_of("machine") | {"track"}) - {
    *("env_backend", "env_deadline", "env_restarts", "overlap", "replay_on_disk")
}


@dataclass(frozen=True)
class Plan:
    """What to search, from which config on, how long, and where the study is stored."""

    base: Config  # where the search starts: the preset, and the knobs that were typed
    searched: tuple[str, ...]
    trials: int
    out: Path
    storage: str | None
    about: Json  # the preset, the command and the versions
    jobs: int = 1  # trials at a time

    @property
    def url(self) -> str:
        """The URL of the database."""
        return self.storage or f"sqlite:///{self.out / 'study.db'}"

    def fixed(self) -> Json:
        """The knobs that all trials share, and those with which the first starts."""
        knobs = dataclasses.asdict(self.base).items()
        return {name: as_stored(value) for name, value in knobs if name not in HERE}

    def to_json(self) -> str:
        """The plan as a line of JSON, for a process that searches."""
        return json.dumps(dataclasses.asdict(self) | {"out": str(self.out)})

    @classmethod
    def from_json(cls, values: Json) -> "Plan":
        """The plan that `to_json` wrote."""
        base, searched = Config.from_dict(values["base"]), tuple(values["searched"])
        return cls(**values | {"base": base, "searched": searched, "out": Path(values["out"])})

    def folder(self, number: int) -> RunFolder:
        """The run of a trial."""
        return RunFolder(self.out / f"trial-{number:04}")


def choose(base: Config, typed: Collection[str], names: Sequence[str]) -> tuple[str, ...]:
    """The knobs to search: `names`, or all that have a range and were not typed."""
    if base.single_env:
        raise BadInput("single_env is for one run; a search has many")
    for name in names:
        if name not in search_ranges:
            what = "has no range to search" if name in knob_types else "is no knob"
            expected = f"; expected some of: {', '.join(search_ranges)}"
            hint = did_you_mean(own_name(name), search_ranges) or expected
            raise BadInput(f"{name} {what}{hint}")
        if name in typed:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{name} has a fixed value; leave out {flag}, or search other knobs")
    searched = []
    for name in names or [name for name in search_ranges if name not in typed]:
        start = getattr(base, name)
        if isinstance(search_ranges[name], Span) and isinstance(start, tuple) and len(start) > 1:
            if names:
                raise BadInput(f"{name} is {start}; a value per dimension cannot be searched")
        else:
            searched.append(name)
    if not searched:
        raise BadInput("no knob is left to search: all that have a range have a fixed value")
    return tuple(dict.fromkeys(searched))


def as_stored(value: Any) -> Any:
    """A knob as the database stores it: a number or a text; a tuple of one as its only value."""
    if not isinstance(value, tuple):
        return value
    return value[0] if len(value) == 1 else " ".join(map(str, value))


def as_knobs(params: Json) -> Json:
    """Knobs as a config takes them, from the database."""
    lists = {name: v for name, v in params.items() if isinstance(v, str)}
    return params | {name: tuple(map(int, v.split())) for name, v in lists.items()}
