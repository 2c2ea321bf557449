"""What the infos of an episode come to: whether it was a success, and the mean of each number."""

from typing import Any, NamedTuple

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.text import clean, did_you_mean

LIMIT = 32  # numbers of an info that are recorded
_LONGEST = 64  # characters of a name
_AT_ONCE = 100  # steps
_LARGEST = float(np.finfo(np.float32).max)  # as for rewards; sums of such numbers stay finite
_SUCCESS = ("is_success", "success")  # the first that is there counts
# What is not about the task: success has a place of its own, and the rest is bookkeeping, of
# Gymnasium and of EnvPool.
_NOT_RECORDED = {*_SUCCESS, "TimeLimit.truncated", "elapsed_step", "env_id"}
# Exactly these: a subclass may do anything when it is asked for its value.
_NUMBERS = frozenset(
    {
        *(float, int, bool, np.bool_, np.float64, np.float32, np.float16),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    }
)


class EpisodeInfo(NamedTuple):
    """What the infos of one episode come to."""

    success: bool | None = None  # None if its last info does not say
    means: dict[str, float] = {}  # noqa: RUF012  by name, over the steps that had the number


def number(value: Any) -> float | None:
    """A plain number; None if the value is something else, not finite or too large."""
    if type(value) not in _NUMBERS:
        return None
    try:
        plain = float(value)
    except OverflowError:  # an integer larger than any float
        return None
    return plain if -_LARGEST <= plain <= _LARGEST else None


def shown_name(key: str) -> str:
    """A name as it is recorded: one printable line of bounded length."""
    return clean(key)[:_LONGEST]


def chosen_names(log_info: str) -> frozenset[str] | None:
    """The names that the knob `log_info` chooses; None for all."""
    if log_info in ("all", "none"):
        return None if log_info == "all" else frozenset()
    names = [name.strip() for name in log_info.split(",")]
    if not all(names) or len(names) > LIMIT:
        expected = f"expected all, none, or up to {LIMIT} names with commas between them"
        raise BadInput(f"log_info is {shown_name(log_info)!r}; {expected}")
    return frozenset(names)


def recorded(info: dict[Any, Any], log_info: str) -> list[str]:
    """The keys of an info that `log_info` chooses and whose values are numbers, or None so far."""
    chosen = chosen_names(log_info)

    def is_chosen(key: str) -> bool:
        if chosen is not None:
            return shown_name(key) in chosen
        return key not in _NOT_RECORDED and key[:1] not in ("", "_")  # `_x` is a mask of `x`

    return [
        key
        for key, value in info.items()
        if (value is None or type(value) in _NUMBERS) and type(key) is str and is_chosen(key)
    ]


class Tally:
    """Adds up the numbers in the infos of one episode.

    It depends on nothing but the episode, so a resumed run, which plays its episodes again, has
    the same sums.
    """

    def __init__(self, log_info: str) -> None:
        chosen_names(log_info)  # refuses what is none
        self._log_info = log_info
        self.clear()

    def clear(self) -> None:
        """Begin an episode."""
        self._sums: dict[str, list[float]] = {}  # by key: the sum, and of how many
        self._rows: list[tuple[Any, ...]] = []  # values of these keys that are not added yet
        self._keys: dict[Any, None] = {}  # of the info that was searched last
        self._last: dict[Any, Any] = {}

    def add(self, info: Any) -> None:
        """Add the info of one step. It is foreign: an exception may be of its own making."""
        self._last = info = info if type(info) is dict else dict(info)
        if info.keys() != self._keys.keys():
            self._search(info)
        self._rows.append(tuple(map(info.get, self._sums)))
        if len(self._rows) == _AT_ONCE:
            self._sum_up()

    def _search(self, info: dict[Any, Any]) -> None:
        """Take up the keys that are new; what is None now may be a number later."""
        self._sum_up()
        self._keys = dict.fromkeys(info)
        for key in recorded(info, self._log_info):
            if len(self._sums) < LIMIT:
                self._sums.setdefault(key, [0.0, 0])

    def _sum_up(self) -> None:
        """Many steps at once: that is faster than a few numbers in every step."""
        for sums, column in zip(self._sums.values(), zip(*self._rows)):
            numbers = [plain for plain in map(number, column) if plain is not None]
            sums[0] += sum(numbers)
            sums[1] += len(numbers)
        self._rows = []

    def summary(self) -> EpisodeInfo:
        """What the infos so far come to."""
        self._sum_up()
        ends = [number(self._last.get(key)) for key in _SUCCESS]
        success = next((end != 0 for end in ends if end is not None), None)
        sums = self._sums.items()
        means = {shown_name(key): total / count for key, (total, count) in sums if count}
        return EpisodeInfo(success, means)


class BatchTally:
    """Adds up the numbers in the infos of a batch: arrays with a number of each environment."""

    def __init__(self, log_info: str, num_envs: int) -> None:
        chosen_names(log_info)  # refuses what is none
        self._log_info, self._num_envs = log_info, num_envs
        self.clear()

    def clear(self) -> None:
        """Begin an episode in all of them."""
        self._sums: dict[str, Any] = {}  # by key: the sums, and of how many
        self._last: dict[str, Any] = {}  # by key: the numbers of the last step
        self._there: dict[str, Any] = {}  # by key: who has one

    def add(self, info: dict[Any, Any], played: Any, ended: Any) -> None:
        """Add the infos of one step of those that played it.

        If there is a `final_info`, it is of the episodes that ended, and what the info itself says
        of these environments is of their next episodes.
        """
        final = info.get("final_info")
        self._last, self._there = {}, {}
        for part, whose in ((info, ~ended), (final, ended)) if final else ((info, played),):
            self._take(part, whose & played)
        sample = {key: number(values[0]) for key, values in self._last.items()}
        for key in recorded(sample, self._log_info):
            if key not in self._sums:
                if len(self._sums) == LIMIT:
                    continue
                self._sums[key] = np.zeros((2, self._num_envs))
            values = self._last[key].astype(np.float64)
            there = self._there[key] & (np.abs(values) <= _LARGEST)
            self._sums[key] += np.where(there, values, 0.0), there

    def _take(self, info: Any, whose: Any) -> None:
        """Note the numbers that an info has of some environments."""
        for key, values in info.items() if isinstance(info, dict) else ():
            if type(key) is not str or key[:1] == "_" or not self._is_column(values):
                continue
            # By Gymnasium's rule, `_x` says which environments have the number `x`.
            mask = info.get(f"_{key}")
            there = whose & mask.astype(np.bool_) if self._is_column(mask) else whose
            before = self._last.get(key, np.zeros_like(values))
            self._last[key] = np.where(there, values, before)
            self._there[key] = self._there.get(key, False) | there

    def _is_column(self, values: Any) -> bool:
        """Whether this has a number of each environment."""
        is_array = isinstance(values, np.ndarray) and values.shape == (self._num_envs,)
        return is_array and values.dtype.kind in "fiub"

    def end(self, index: int) -> EpisodeInfo:
        """What an environment's episode comes to; it begins again from nothing."""
        ends = [self._last[key][index] for key in _SUCCESS if self._has(key, index)]
        success = bool(ends[0] != 0) if ends else None
        means = {}
        for key, (sums, counts) in self._sums.items():
            if counts[index]:
                means[shown_name(key)] = float(sums[index] / counts[index])
            sums[index] = counts[index] = 0.0
        return EpisodeInfo(success, means)

    def _has(self, key: str, index: int) -> bool:
        return key in self._there and bool(self._there[key][index])


class Survey:
    """Which numbers the infos of some steps have, and which of them are odd."""

    def __init__(self) -> None:
        self._info: dict[str, Any] = {}  # by key, its last number, or else its first value
        self._finite: set[str] = set()  # keys that had a number which counts
        self._other: dict[str, str] = {}  # by key, the type of a value that is no number

    def add(self, info: dict[Any, Any]) -> None:
        """Look at the info of one step."""
        for key, value in info.items():
            if type(key) is not str:
                continue
            if type(value) in _NUMBERS:
                self._info[key] = value
                if number(value) is not None:
                    self._finite.add(key)
            elif value is not None:
                self._info.setdefault(key, value)
                self._other[key] = type(value).__name__
            else:
                self._info.setdefault(key, None)

    @property
    def names(self) -> list[str]:
        """The names of the numbers."""
        return [shown_name(key) for key in recorded(self._info, "all")]

    def advice(self, log_info: str) -> list[str]:
        """What a run that records `log_info` leaves out."""
        lines, chosen, keys = [], chosen_names(log_info), recorded(self._info, log_info)
        if chosen is None and len(keys) > LIMIT:
            what = f"the info has {len(keys):,} numbers, of which a run records the first {LIMIT}"
            lines.append(f"{what}; choose others with --log-info")
        for name in sorted((chosen or set()) - {shown_name(key) for key in keys}):
            what = f"--log-info has {name!r}, which is no number of the environment's info"
            lines.append(f"{what}{did_you_mean(name, self.names)}")
        for key in keys[:LIMIT]:
            name = f"{shown_name(key)!r} of the environment's info"
            if key in self._finite and key in self._other:
                lines.append(f"{name} is not always a number: a {self._other[key]} is left out")
            elif key not in self._finite and self._info[key] is not None:
                lines.append(f"{name} is never a finite number: left out")
        return lines
