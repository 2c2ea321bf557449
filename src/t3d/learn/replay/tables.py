"""Step 1: the arrays of the replay memory, and what a checkpoint stores of them."""

import heapq
import math
import mmap
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from t3d.base import files
from t3d.base.arguments import with_advice
from t3d.base.errors import BadInput
from t3d.base.numbers import Array, as_whole
from t3d.base.observation import Layout
from t3d.learn.replay.blocks import (
    Block,
    Blocks,
    check_facts,
    facts_of,
    fill,
    read_file,
    write_file,
)
from t3d.learn.replay.frames import FrameStack

_ORDER = "expected ReplayBuffer(capacity, state_dim, action_dim)"
_NOTES = "t3d.notes.ReplayBuffer takes those of the notes and of the author's code"
_WIDEST_ACTION = 100  # dimensions; more, for fewer transitions, are arguments in another order


class Tables:
    """Two tables: rows (transitions), and ends (observations that no row begins with)."""

    @with_advice(f"{_ORDER}; {_NOTES}")
    def __init__(
        self,
        capacity: float,
        state_dim: int | Layout,
        action_dim: int,
        *,
        num_envs: int = 1,
        max_row_gap: int | None = None,
        file: BinaryIO | None = None,
    ) -> None:
        """Reserve room.

        `state_dim` is the length of a state, or its layout where it has images. Consecutive rows
        of an environment are at most `max_row_gap` rows apart, by default as many as there are
        environments. With a `file`, the observations are there instead of in RAM.
        """
        self.layout = Layout(state_dim) if isinstance(state_dim, int) else state_dim
        capacity = as_whole("capacity", capacity, 1)
        if self.layout.size < 1:
            raise BadInput(f"state_dim is {state_dim}; expected at least 1")
        if action_dim > max(capacity, _WIDEST_ACTION):
            what = f"action_dim is {action_dim:,} and capacity {capacity:,}"
            raise BadInput(f"{what}; {_ORDER}; {_NOTES}")
        self.capacity = capacity
        self.num_envs = num_envs
        self.max_row_gap = max_row_gap or num_envs
        older = self.layout.frame_stack - 1 if self.layout.images else 0
        # The oldest transitions need the frames of rows before them, which must still be there.
        self.room = capacity + older * self.max_row_gap
        if 2 * self.room > np.iinfo(np.int32).max:
            raise BadInput(
                f"capacity is {capacity}; expected at most {2**30 - 1:,} with all frames"
            )
        width = self.layout.size - older * self.layout.frame_size
        self.observation = _reserve((2 * self.room, width), self.layout.dtype, file)
        self.action = np.zeros((self.room, action_dim), np.float32)
        self.reward = np.zeros(self.room, np.float32)
        self.done = np.zeros(self.room, np.float32)
        self.next_at = np.zeros(self.room, np.int32)  # which observation a step led to
        self.frames = FrameStack(self.layout, self.room) if older else None
        self.added = 0  # transitions so far, including those overwritten since
        # The number of each environment's newest transition if its episode continues, or -1.
        self._newest = [-1] * num_envs
        self._ends = FreePlaces(self.room)
        self._row_blocks = Blocks("rows", self.room, self.row_bytes)
        self._end_blocks = Blocks("ends", self.room, self.end_bytes)

    def __len__(self) -> int:
        """How many transitions are stored."""
        return self.size

    @property
    def size(self) -> int:
        """How many transitions are stored."""
        return min(self.added, self.capacity)

    @property
    def position(self) -> int:
        """The row that the next `add` writes."""
        return self.added % self.room

    @property
    def state_shape(self) -> tuple[int, ...]:
        """The shape of a state."""
        return (self.layout.size,)

    @property
    def state(self) -> Array:
        """The states of all rows; of stacked ones, what each adds to the row before."""
        return self.observation[: self.room]

    @property
    def next_state(self) -> Array:
        """Where each row led, like `state`. A copy: in the memory they are not contiguous."""
        return self.observation[self.next_at]

    @property
    def row_bytes(self) -> int:
        """Bytes of one transition."""
        return sum(store[:1].nbytes for store in self._rows(0, 1).values())

    @property
    def end_bytes(self) -> int:
        """Bytes of the last observation of an episode."""
        return int(self.observation[:1].nbytes)

    def _rows(self, low: int, high: int) -> dict[str, Array]:
        stores = {
            "state": self.state,
            "action": self.action,
            "reward": self.reward,
            "done": self.done,
            "next_at": self.next_at,
        }
        if self.frames:
            stores["before"] = self.frames.before
        return {name: store[low:high] for name, store in stores.items()}

    def _end_rows(self, low: int, high: int) -> dict[str, Array]:
        return {"end": self.observation[self.room + low : self.room + high]}

    def facts(self) -> dict[str, Any]:
        """Everything about the memory except the numbers in its blocks."""
        rows = min(self.added, self.room)
        ends = max(0, int(self.next_at[:rows].max(initial=0)) + 1 - self.room)
        oldest = max(0, self.added - self.room)
        return {
            "capacity": self.capacity,
            "added": self.added,
            "last": [n % self.room if n >= oldest else -1 for n in self._newest],
            "ends": ends,
            "changed": {
                "rows": self._row_blocks.stamps(rows),
                "ends": self._end_blocks.stamps(ends),
            },
        }

    def blocks(self) -> Iterator[Block]:
        """The stored rows in blocks that know when they changed: a copy updates only some."""
        return self._cut(min(self.added, self.room), self.facts()["ends"])

    def _cut(self, rows: int, ends: int) -> Iterator[Block]:
        yield from self._row_blocks.cut(rows)
        yield from self._end_blocks.cut(ends)

    def read(self, block: Block) -> dict[str, Array]:
        """The arrays of a block (views, not copies)."""
        table = self._rows if block.table == "rows" else self._end_rows
        return table(block.low, block.high)

    def restore(self, facts: dict[str, Any], read: Callable[[Block], dict[str, Array]]) -> None:
        """Take over a memory from its facts and a function that reads the arrays of a block."""
        added, last, rows, ends, changed = check_facts(
            facts, self.capacity, self.room, self.num_envs
        )
        self._row_blocks.restore(rows, changed["rows"], added)
        self._end_blocks.restore(ends, changed["ends"], added)
        limits = {"next_at": 2 * self.room, "before": self.room}
        for block in self._cut(rows, ends):
            fill(self.read(block), read(block), limits)
        if any(row >= 0 and self.next_at[row] < self.room for row in last):
            raise BadInput(f"the stored memory does not fit: last rows {last} are not the last")
        self.added = added
        # Of the numbers that share a row, the newest is the stored one.
        newest = added - 1
        self._newest = [newest - (newest - row) % self.room if row >= 0 else -1 for row in last]
        places = self.next_at[:rows]
        self._ends = FreePlaces(self.room, ends, set(places[places >= self.room].tolist()))

    def state_dict(self) -> dict[str, Array]:
        """What is stored, as plain arrays (views, not copies)."""
        facts = self.facts()
        counts = {name: np.array(facts[name], np.int64) for name in ("capacity", "added", "last")}
        return counts | self._rows(0, min(self.added, self.room)) | self._end_rows(0, facts["ends"])

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Take over what `state_dict` returned; it must fit this memory."""
        numbers = {name: array for name, array in arrays.items() if array.ndim > 0}
        self.restore(
            facts_of(arrays),
            lambda block: {name: a[block.low : block.high] for name, a in numbers.items()},
        )

    def save(self, path: str | Path) -> None:
        """Write what is stored to a safetensors file."""
        write_file(path, self.state_dict())

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote. No code in the file can run."""
        self.load_state_dict(read_file(path))


class FreePlaces:
    """Which places among the ends are free; the first is used first."""

    def __init__(self, first: int, count: int = 0, used: set[int] | None = None) -> None:
        """Places from `first` on, of which only some of the first `count` may be used."""
        self._top = first + count  # from here on, all are free
        self._free = [place for place in range(first, self._top) if place not in (used or ())]

    def take(self) -> int:
        """Use the first free place."""
        if self._free:
            return heapq.heappop(self._free)
        self._top += 1
        return self._top - 1

    def give(self, place: int) -> None:
        """Free a place."""
        heapq.heappush(self._free, place)


_MAP_NORESERVE = 0x4000  # of Linux; Python 3.11 has no name for it


def _reserve(shape: tuple[int, int], dtype: DTypeLike, file: BinaryIO | None) -> Array:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        if file is not None:
            return np.memmap(file, dtype, "w+", shape=shape)
        if sys.platform != "linux":
            return np.zeros(shape, dtype)
        # Reserve address space without committing it: the whole buffer may exceed RAM.
        uncommitted = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        return np.frombuffer(mmap.mmap(-1, size, flags=uncommitted), dtype).reshape(shape)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        advice = f"lower --capacity: {error}"
        raise BadInput(f"no room for a memory of {files.size(size)}; {advice}") from error
