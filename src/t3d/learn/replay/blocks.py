"""Step 1: the memory in pieces, for checkpoints, and its restoration from untrusted files.

A memory has two tables: *rows* (transitions) and *ends* (observations that no row begins with).
Each table is cut into blocks of a few megabytes. A block knows when it last changed, so that a
checkpoint writes only the blocks that differ from the one before.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.numbers import Array, all_finite

BLOCK_BYTES = 4 * 2**20  # about
Table = Literal["rows", "ends"]


class Block(NamedTuple):
    """A few megabytes of a memory."""

    table: Table
    low: int
    high: int  # one after the last
    changed: int  # how many transitions had been added when it last changed


class Blocks:
    """The blocks of one table, and when each last changed."""

    def __init__(self, table: Table, room: int, item_bytes: int) -> None:
        """Cut a table of `room` items of so many bytes each."""
        self.table: Table = table
        self._length = BLOCK_BYTES // item_bytes or 1
        self._changed = [0] * -(-room // self._length)

    def mark(self, item: int, added: int) -> None:
        """Note that an item changed when so many transitions had been added."""
        self._changed[item // self._length] = added

    def stamps(self, items: int) -> list[int]:
        """When the blocks of the first items last changed."""
        return self._changed[: -(-items // self._length)]

    def restore(self, items: int, stamps: Any, added: int) -> None:
        """Load what `stamps` returned, from a file; None means that all changed now."""
        blocks = -(-items // self._length)
        if stamps is None:
            stamps = [added] * blocks
        if not isinstance(stamps, list) or len(stamps) != blocks or not _integers(stamps):
            raise BadInput(f"the stored memory does not say when its {self.table} changed")
        self._changed[:blocks] = stamps

    def cut(self, items: int) -> Iterator[Block]:
        """The blocks of the first items."""
        for i, low in enumerate(range(0, items, self._length)):
            yield Block(self.table, low, min(low + self._length, items), self._changed[i])


class Facts(NamedTuple):
    """Everything about a stored memory except the numbers in its blocks."""

    added: int
    last: list[int]  # the newest row of each environment whose episode continues, or -1
    rows: int  # rows that are stored
    ends: int  # ends that are stored
    changed: dict[str, Any]  # when the blocks of each table changed: see `Blocks.restore`


def check_facts(facts: dict[str, Any], capacity: int, room: int, num_envs: int) -> Facts:
    """Check that stored facts fit a memory, and make sense."""
    added, last, ends, changed = (facts[key] for key in ("added", "last", "ends", "changed"))
    if facts["capacity"] != capacity:
        raise BadInput(f"the stored memory has capacity {facts['capacity']}; expected {capacity}")
    if not _integers([added, ends]) or not 0 <= added < 2**62:
        raise BadInput(f"the stored memory does not fit: {added} added, {ends} ends")
    rows = min(added, room)
    if not 0 <= ends <= rows:
        raise BadInput(f"the stored memory does not fit: {ends} ends of {rows} rows")
    if not isinstance(last, list) or len(last) != num_envs or not _integers(last):
        raise BadInput(f"the stored memory does not fit: last rows {last}; expected {num_envs}")
    open_rows = [row for row in last if row != -1]
    if len(set(open_rows)) != len(open_rows) or not all(0 <= row < rows for row in open_rows):
        raise BadInput(f"the stored memory does not fit: last rows {last} of {rows}")
    if not isinstance(changed, dict) or changed.keys() != {"rows", "ends"}:
        raise BadInput("the stored memory does not say when it changed")
    return Facts(added, last, rows, ends, changed)


def _integers(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def fill(stores: dict[str, Array], arrays: dict[str, Array], limits: dict[str, int]) -> None:
    """Copy the arrays of a stored block, if all have the right form.

    `limits` are those of the arrays that point to rows or places; -1 in `before` points nowhere.
    """
    missing = stores.keys() - arrays.keys()
    if missing:
        raise BadInput(f"the stored memory lacks {', '.join(sorted(missing))}")
    for name, store in stores.items():
        array = arrays[name]
        if array.shape != store.shape or array.dtype != store.dtype:
            expected = f"{store.dtype}{store.shape}"
            raise BadInput(f"stored {name} is {array.dtype}{array.shape}; expected {expected}")
        lowest = -1 if name == "before" else 0
        if array.dtype.kind == "f" and not all_finite(array):
            raise BadInput(f"stored {name} holds numbers that are not finite")
        if name in limits and (array.min() < lowest or array.max() >= limits[name]):
            raise BadInput(f"stored {name} points outside of the memory")
    for name, store in stores.items():
        store[:] = arrays[name]


def write_file(path: str | Path, arrays: dict[str, Array]) -> None:
    """Write arrays to a safetensors file."""
    try:
        save_file({name: np.asarray(a, order="C") for name, a in arrays.items()}, path)
    except (OSError, SafetensorError) as error:
        raise CannotWrite(f"memory {path} cannot be written: {error}") from error


def read_file(path: str | Path) -> dict[str, Array]:
    """Read what `write_file` wrote. No code in the file can run."""
    try:
        files.header(Path(path).resolve())
        arrays: dict[str, Array] = load_file(path)
    except (OSError, SafetensorError, T3DError) as error:
        raise BadInput(f"{path} is not a stored memory: {error}") from error
    return arrays


def facts_of(arrays: dict[str, Array]) -> dict[str, Any]:
    """The facts of a memory that was stored as plain arrays."""
    axes = {"capacity": 0, "added": 0, "last": 1, "end": 2}
    missing = axes.keys() - arrays.keys()
    if missing:
        raise BadInput(f"the stored memory lacks {', '.join(sorted(missing))}")
    for name, count in axes.items():
        if arrays[name].ndim != count:
            raise BadInput(f"stored {name} has {arrays[name].ndim} axes; expected {count}")
        if name != "end" and arrays[name].dtype != np.int64:
            raise BadInput(f"stored {name} is {arrays[name].dtype}; expected int64")
    return {
        "capacity": int(arrays["capacity"]),
        "added": int(arrays["added"]),
        "last": arrays["last"].tolist(),
        "ends": len(arrays["end"]),
        "changed": {"rows": None, "ends": None},
    }
