"""The known runs of an environment, and the band in which further runs like them lie.

They are several seeds of one setting for each environment, in curves.json, which
benchmarks/draw_results.py writes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t3d.base import files, schema
from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import Config, knobs_of
from t3d.run.records import Json

_MINIMUM_RUNS = 3  # that make a band
# Student's t: 97.5 % are below, from 2 degrees of freedom on. Beyond, the last is a little wide.
_T = np.array([4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157])
_MINIMUM_SD = 0.01  # of the mean curve's range: where all runs are equal, a point is no alarm
# Knobs that change what a step and a return are.
_OTHER_TASK = sorted(knobs_of("task") - {"env", "seed", "steps"})
DECIMALS = 3  # of an evaluation in curves.json
# The best return that a task's rewards allow: no run can be above it.
_HIGHEST = {"InvertedPendulum-v5": 1000.0, "Pendulum-v1": 0.0, "Reacher-v5": 0.0}


@dataclass(frozen=True)
class _Curves:
    """An entry of curves.json."""

    config: dict[str, Any]
    versions: dict[str, str]
    step: list[int]
    runs: dict[str, list[float]]  # by seed

    def __post_init__(self) -> None:
        """Refuse runs without steps."""
        longest = max(map(len, self.runs.values()), default=0)
        if not 2 <= longest <= len(self.step) or not all(self.runs.values()):
            raise ValueError("its runs do not fit its steps")


class KnownRuns(NamedTuple):
    """The known runs of an environment."""

    config: Config
    versions: Json
    step: Array  # (points,)
    returns: dict[int, list[float]]  # by seed, at all of these steps or at the first of them

    @property
    def first(self) -> int:
        """The first step at which a run is judged: some learning is done, and was measured."""
        return max(2 * self.config.random_steps, int(self.step[1]))

    @property
    def last(self) -> int:
        """The last step that enough runs reached to make a band."""
        longest = sorted(map(len, self.returns.values()))[-_MINIMUM_RUNS]
        return int(self.step[longest - 1])

    @property
    def highest(self) -> float:
        """The best return that the task allows; infinite if it is not known."""
        return _HIGHEST.get(self.config.env, np.inf)

    def at(self, step: Array) -> Array:
        """Every run's returns at other steps, by straight lines; nan where it has none."""
        outside: Any = {"left": np.nan, "right": np.nan}
        runs = self.returns.values()
        return np.array([np.interp(step, self.step[: len(r)], r, **outside) for r in runs])


def known_for(config: Config, all_curves: Json | None = None) -> KnownRuns:
    """The known runs that a run with this config can be compared with."""
    all_curves = known_curves() if all_curves is None else all_curves
    entry = all_curves.get(config.env)
    if entry is None:
        advice = "to compare runs of your own, use t3d compare"
        known_envs = ", ".join(all_curves)
        raise BadInput(f"no curves of {config.env} are known, only of {known_envs}; {advice}")
    try:
        curves = schema.parse(_Curves, entry)
        runs = {int(seed): returns for seed, returns in curves.runs.items()}
    except ValueError as error:
        raise BadInput(f"the known curves of {config.env} are damaged: {error}") from error
    step = np.array(curves.step)
    known = KnownRuns(Config.from_dict(curves.config), curves.versions, step, runs)
    if len(known.returns) < _MINIMUM_RUNS:
        what = f"too few curves of {config.env} are known: {len(known.returns)}"
        raise BadInput(f"{what}; expected at least {_MINIMUM_RUNS}")
    for knob in _OTHER_TASK:
        here, there = getattr(config, knob), getattr(known.config, knob)
        if here != there:
            why = "its steps and returns cannot be compared with theirs"
            raise BadInput(f"{knob} is {here}, the known runs have {there}: {why}")
    return known


def known_curves() -> Json:
    """The curves that come with the package, by environment."""
    return files.read_json(Path(__file__).with_name("curves.json"))


def recent(step: Array, returns: Array) -> Array:
    """At each step, the mean of the evaluations over the last half of the steps until then."""
    first = np.minimum(np.searchsorted(2 * step, step, side="right"), np.arange(len(step)))
    means = [returns[..., a : b + 1].mean(axis=-1) for b, a in enumerate(first)]
    return np.stack(means, axis=-1)


def band(step: Array, known: Array, highest: float = np.inf) -> tuple[Array, Array]:
    """Where 95 % of further runs like these (runs, points) are, if they are normally distributed.

    It ends at `highest`, the best return that is possible.
    The spread is pooled from half as many steps to twice as many: a run that falls over may do so
    at any time, also when none of a few others does.
    """
    present = np.isfinite(known)
    count = present.sum(axis=0)
    enough = count >= _MINIMUM_RUNS
    mean = np.where(present, known, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(present, (known - mean) ** 2, 0).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1)
    half = np.full(len(step), np.nan)
    for place in np.flatnonzero(enough):
        near = enough & (2 * step >= step[place]) & (step <= 2 * step[place])
        spread = max(np.sqrt(variance[near].mean()), _MINIMUM_SD * np.ptp(mean[enough]))
        t = _T[min(count[place] - _MINIMUM_RUNS, len(_T) - 1)]
        half[place] = t * spread * np.sqrt(1 + 1 / count[place])
    return mean - half, np.minimum(mean + half, highest)
