"""What a sweep trains: environments x variants x knobs x seeds, each a run of its own."""

import dataclasses
import itertools
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from t3d.base import files
from t3d.base.errors import BadInput
from t3d.base.text import did_you_mean
from t3d.config import Config, knob_types, unknown_knob
from t3d.presets import resolve
from t3d.run.folder import safe_name
from t3d.run.records import Json

_MAXIMUM_RUNS = 10_000
_LARGEST_SPEC = 2**20


@dataclass(frozen=True)
class Spec:
    """The definition of a sweep. A knob with a list (of lists, if it takes lists) is an axis.

    A variant is a name for some knobs that change together, as those of an ablation do.
    """

    env: list[str]
    seeds: list[int]
    preset: str
    knobs: Json
    variants: dict[str, Json] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Json) -> "Spec":
        """Check the entries of sweep.toml or sweep.json. `Config` checks the knobs' values."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                advice = did_you_mean(name, names) or f"; expected one of: {', '.join(names)}"
                if name in knob_types and name != "seed":
                    advice = "; knobs go under [knobs]"
                raise BadInput(f"a sweep has no {name!r}{advice}")
        env = values.get("env")
        env = [env] if isinstance(env, str) else env
        if not isinstance(env, list) or not env or not all(isinstance(e, str) for e in env):
            raise BadInput(f"env is {env!r}; expected the name of an environment, or a list")
        preset = values.get("preset", "auto")
        if not isinstance(preset, str):
            raise BadInput(f"preset is {preset!r}; expected a name that `t3d presets` lists")
        knobs, variants = values.get("knobs", {}), values.get("variants", {})
        _check_knobs("knobs", knobs)
        spec = cls(env, _seeds(values.get("seeds", 1)), preset, knobs, variants)
        spec._check_variants()
        return spec

    def _check_variants(self) -> None:
        if not isinstance(self.variants, dict):
            raise BadInput(f"variants is {self.variants!r}; expected tables, [variants.NAME]")
        axes = self.axes()
        for variant, knobs in self.variants.items():
            _check_knobs(f"variants.{variant}", knobs)
            for name in knobs:
                if name in axes or name == "threads":
                    what = "an axis" if name in axes else "the same for all runs"
                    raise BadInput(f"{name} is {what}; take it out of [variants.{variant}]")

    def axes(self) -> dict[str, list[Any]]:
        """The knobs with several values to try, in the order of `Config`, as in folder names."""
        axes = {}
        for name in knob_types:
            value = self.knobs.get(name)
            if isinstance(value, list):
                takes_lists = get_origin(knob_types[name]) is tuple
                if not takes_lists or any(isinstance(item, list) for item in value):
                    axes[name] = value
        return axes


def _check_knobs(table: str, knobs: Any) -> None:
    if not isinstance(knobs, dict):
        raise BadInput(f"{table} is {knobs!r}; expected a table, [{table}]")
    for name, value in knobs.items():
        if name in ("env", "seed"):
            instead = "seeds" if name == "seed" else name
            raise BadInput(f"{name} is no knob of a sweep; set {instead} above [{table}]")
        if name not in knob_types:
            raise unknown_knob(name)
        if value == []:
            raise BadInput(f"{name} is an empty list; expected at least one value")


def _seeds(seeds: Any) -> list[int]:
    """A list of seeds, from that list or from their number."""
    listed = seeds if isinstance(seeds, list) else [seeds]
    if not listed or not all(type(seed) is int and seed >= 0 for seed in listed) or seeds == 0:
        raise BadInput(f"seeds is {seeds!r}; expected their number, at least 1, or a list of them")
    if len(set(listed)) < len(listed):
        raise BadInput(f"seeds is {seeds!r}; expected each seed once")
    return listed if isinstance(seeds, list) else list(range(min(seeds, _MAXIMUM_RUNS + 1)))


def read_spec(path: Path) -> Spec:
    """The spec in a TOML file, or in the folder of a sweep that was started."""
    if files.usable(path).is_dir():
        if not (path / "sweep.json").is_file():
            raise BadInput(f"{path} is not the folder of a sweep: it has no sweep.json")
        return Spec.from_dict(files.read_json(path / "sweep.json"))
    try:
        return Spec.from_dict(tomllib.loads(files.read(path, _LARGEST_SPEC).decode()))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error


@dataclass
class SweepRun:
    """One run of a sweep, and its state."""

    path: Path
    setting: str  # the values of the axes, in words
    preset: str
    config: Config
    state: str = "waiting"  # then training, and then finished, stopped or failed
    why: str = ""  # it failed

    @property
    def log(self) -> Path:
        """The output of its process; the file stays if it fails."""
        return self.path.with_name(f"{self.path.name}.log")


def runs_of(spec: Spec, out: Path) -> list[SweepRun]:
    """Every run of a sweep, with its config checked."""
    axes, variants = spec.axes(), spec.variants or {"": {}}
    count = len(spec.env) * len(variants) * len(spec.seeds) * math.prod(map(len, axes.values()))
    if count > _MAXIMUM_RUNS:
        raise BadInput(f"the sweep has {count:,} runs or more; expected at most {_MAXIMUM_RUNS:,}")
    runs: dict[str, SweepRun] = {}
    for env in spec.env:
        preset, base = resolve(env, spec.preset)
        for variant, *values in itertools.product(variants, *axes.values()):
            knobs = dataclasses.asdict(base) | spec.knobs | variants[variant]
            knobs |= dict(zip(axes, values))
            for seed in spec.seeds:
                config = Config.from_dict(knobs | {"env": env, "seed": seed})
                words = [f"{axis} {_in_name(getattr(config, axis))}" for axis in axes]
                words = [variant, *words] if variant else words
                name = safe_name("-".join([env, *words, f"seed{seed}"]))
                if name in runs:
                    what = "a value of an axis, a variant or an environment is listed twice"
                    raise BadInput(f"two runs would be named {name}: {what}")
                runs[name] = SweepRun(out / name, ", ".join(words), preset, config)
    return list(runs.values())


def _in_name(value: Any) -> str:
    """A value as part of a folder's name: 64x64."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
