"""Step 1: the replay memory."""

import heapq
import math
import mmap
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.numbers import Array, all_finite, as_floats
from t3d.base.observation import Layout

Rows = NDArray[np.int64]
_BLOCK = 4 * 2**20  # bytes of a block, about: see `ReplayBuffer.blocks`


class Batch(NamedTuple):
    """Transitions side by side: row i of every field belongs to the same step."""

    state: Tensor  # (batch, *state_shape)
    next_state: Tensor  # (batch, *state_shape), `steps` later
    action: Tensor  # (batch, action_dim), in the environment's units
    reward: Tensor  # (batch,): discounted, and summed over `steps`
    done: Tensor  # (batch,): 1 where the episode terminated, 0 elsewhere, a time limit included
    steps: Tensor  # (batch,): 1, or with n-step returns as many as there were, up to n

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        """The same transitions on a device, as floats of a precision; images stay bytes."""
        bytes_, kind = torch.uint8, dtype
        return Batch(*(f.to(device, bytes_ if f.dtype == bytes_ else kind) for f in self))


class Block(NamedTuple):
    """A few megabytes of a memory."""

    table: Literal["rows", "ends"]
    low: int
    high: int  # one after the last
    changed: int  # how many transitions had been added when it changed last


class ReplayBuffer:
    """Step 1: the last `capacity` transitions, drawn from uniformly.

    Consecutive steps look alike, and a network that learns from them one after the other
    forgets the rest; a uniform draw from a long memory does not. The arrays are reserved
    once, but the system only hands out pages that are written to: an empty memory of a
    million rows costs nothing.

    Every observation is stored once. Where a step leads is the state of the row that follows
    it, if one does; the last observation of an episode, and the newest of all, have a place of
    their own among the *ends*. Of states that are stacks of frames, each frame is stored once.

        row            0    1    2    3    4  |  ends  0    1
        observation    s0   s1   s2   z0   z1 |        s3   z2      s3: where an episode ended
        next_at        1    2   e0    4    e1 |
    """

    def __init__(
        self,
        capacity: int,
        state_shape: int | tuple[int, ...],
        action_dim: int,
        state_dtype: DTypeLike = np.float32,
        *,
        num_envs: int = 1,
        apart: int | None = None,
        frame_stack: int = 1,
        frame_size: int | None = None,
        file: BinaryIO | None = None,
    ) -> None:
        """Reserve room. `state_dtype` is float32, or uint8 for images.

        A state may begin with a stack of `frame_stack` frames, the oldest first, of `frame_size`
        numbers each (by default, the whole state is that stack). Two rows of an environment are
        at most `apart` rows apart, by default as many as there are environments. With a `file`,
        the observations are there instead of in RAM.
        """
        if capacity < 1:
            raise BadInput(f"capacity is {capacity}; expected at least 1")
        self.capacity = capacity
        self.state_shape = (state_shape,) if isinstance(state_shape, int) else tuple(state_shape)
        self.num_envs = num_envs
        self.apart = apart or num_envs
        self.frame_stack = frame_stack
        size = math.prod(self.state_shape)
        self._frame = size // frame_stack if frame_size is None else frame_size
        # The oldest transitions need frames of rows before them, which have to be there still.
        self.room = capacity + (frame_stack - 1) * self.apart
        if 2 * self.room > np.iinfo(np.int32).max:
            raise BadInput(
                f"capacity is {capacity}; expected at most {2**30 - 1:,} with all frames"
            )
        width = size - (frame_stack - 1) * self._frame
        self.observation = _reserve((2 * self.room, width), state_dtype, file)
        self.action = np.zeros((self.room, action_dim), np.float32)
        self.reward = np.zeros(self.room, np.float32)
        self.done = np.zeros(self.room, np.float32)
        self.next_at = np.zeros(self.room, np.int32)  # which observation a step led to
        self._before = np.zeros(self.room if frame_stack > 1 else 0, np.int32)  # the row, or -1
        self.added = 0  # transitions so far, those included that were overwritten
        self._last = [-1] * num_envs  # the row that each environment's next one follows
        self._env_of: dict[int, int] = {}  # the same the other way round
        self._free: list[int] = []  # places among the ends, a heap
        self._top = 0  # from here on, all places are free
        self._block = {"rows": _BLOCK // self.row_bytes or 1, "ends": _BLOCK // self.end_bytes or 1}
        self._changed = {name: [0] * -(-self.room // n) for name, n in self._block.items()}

    @classmethod
    def of(
        cls,
        layout: Layout,
        action_dim: int,
        capacity: int,
        num_envs: int = 1,
        file: BinaryIO | None = None,
        apart: int | None = None,
    ) -> "ReplayBuffer":
        """A memory of states of a layout."""
        return cls(
            capacity,
            layout.size,
            action_dim,
            layout.dtype,
            num_envs=num_envs,
            apart=apart,
            frame_stack=layout.frame_stack,
            frame_size=layout.frame_size,
            file=file,
        )

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
    def state(self) -> Array:
        """The states of all rows; of stacked ones, what each adds to the row before."""
        return self.observation[: self.room]

    @property
    def next_state(self) -> Array:
        """Where each row led, like `state`. A copy: in the memory they are not side by side."""
        return self.observation[self.next_at]

    @property
    def row_bytes(self) -> int:
        """What one transition takes."""
        return sum(store[:1].nbytes for store in self._rows(0, 1).values())

    @property
    def end_bytes(self) -> int:
        """What the last observation of an episode takes."""
        return int(self.observation[:1].nbytes)

    def add(
        self,
        state: ArrayLike,
        next_state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
        truncated: ArrayLike = False,
        envs: ArrayLike | None = None,
    ) -> None:
        """Store one transition, or a batch of them (then every argument has a leading axis).

        `done` means that the episode terminated; `truncated`, that it was cut off: no more than
        that, so its last state has a value. A batch is a step of each of `envs`, by default of
        environments 0, 1, 2 ..., or consecutive steps of one if it is longer than these. Once the
        memory is full, the oldest rows are overwritten. Shapes are checked, and nothing that is
        not finite gets in.
        """
        one = np.ndim(reward) == 0
        rows = 1 if one else np.shape(reward)[0]
        shape, kind = self.state_shape, self.observation.dtype
        states, nexts = (
            _checked(name, given, kind, shape, rows, one)
            for name, given in (("state", state), ("next_state", next_state))
        )
        actions = _checked("action", action, _FLOAT, self.action.shape[1:], rows, one)
        rewards = _checked("reward", reward, _FLOAT, (), rows, one)
        dones = _checked("done", done, _FLOAT, (), rows, one)
        if np.shape(truncated) not in ((), (rows,)):
            raise BadInput(f"truncated has shape {np.shape(truncated)}; expected {(rows,)}")
        ends = (dones.astype(bool) | np.asarray(truncated, bool)).tolist()
        whose = list(range(rows)) if rows <= self.num_envs else [0] * rows
        if envs is not None:
            whose = np.asarray(envs).tolist()
            if len(whose) != rows or not all(0 <= env < self.num_envs for env in whose):
                expected = f"{rows} numbers below num_envs, {self.num_envs}"
                raise BadInput(f"envs is {whose}; expected {expected}")
        continues: list[bool] | None = None
        if self.frame_stack > 1:
            states, nexts, continues = self._newest_frames(states, nexts, whose)
        for i, env in enumerate(whose):
            row, last = self.added % self.room, self._last[env]
            if self.added >= self.room:
                self._forget(row)
                last = self._last[env]
            place = self.next_at[last] if last >= 0 else 0
            follows = bool(place) and (
                self.observation[place].tobytes() == states[i].tobytes()
                if continues is None
                else continues[i]
            )
            self.added += 1
            if follows:  # what the row before led to is this row's state
                self.next_at[last] = row
                self._touch("rows", last)
                del self._env_of[last]
            else:
                if last >= 0:
                    del self._env_of[last]
                place = self._take()
            self.observation[row] = states[i]
            self.observation[place] = nexts[i]
            self.action[row] = actions[i]
            self.reward[row] = rewards[i]
            self.done[row] = dones[i]
            self.next_at[row] = place
            if self.frame_stack > 1:
                self._before[row] = last if follows else -1
            self._touch("rows", row)
            self._touch("ends", place - self.room)
            self._last[env] = -1 if ends[i] else row
            if not ends[i]:
                self._env_of[row] = env

    def end(self, env: int) -> None:
        """What comes next from an environment follows nothing that it gave before."""
        self._env_of.pop(self._last[env], None)
        self._last[env] = -1

    def _newest_frames(
        self, state: Array, after: Array, envs: list[int]
    ) -> tuple[Array, Array, list[bool]]:
        """Of stacked states what is new in each, and whether it continues; others are refused."""
        frame, older = self._frame, (self.frame_stack - 1) * self._frame
        shifted = np.array_equal(after[:, :older], state[:, frame : frame + older])
        continues, repeated = [], True
        for i, (row, env) in enumerate(zip(state, envs)):
            # What follows the row before continues its stack; anything else begins one.
            before = after[i - 1] if i and envs[i - 1] == env else None
            if before is None and self._last[env] >= 0:
                before = self._next_states(np.array([self._last[env]])).reshape(-1)
            continues.append(before is not None and np.array_equal(before, row))
            repeated &= continues[i] or np.array_equal(row[:older], row[frame : frame + older])
        if not (shifted and repeated):
            rule = "the first frame as often as fits, then each time one more for the oldest"
            raise BadInput(f"state is not a stack of {self.frame_stack} frames; expected {rule}")
        # How many rows ago an environment's last one was; its frames must not be overwritten yet.
        ago = [(self.added - 1 - row) % self.room + 1 for row in map(self._last.__getitem__, envs)]
        if any(n > self.apart and self._last[env] >= 0 for n, env in zip(ago, envs)):
            raise BadInput("with a frame stack, all environments must add a row in each round")
        return state[:, older:], after[:, older:], continues

    def _forget(self, row: int) -> None:
        """Give up what a row that is to be overwritten holds elsewhere."""
        if row in self._env_of:
            self._last[self._env_of.pop(row)] = -1
        if self.next_at[row] >= self.room:
            heapq.heappush(self._free, int(self.next_at[row]))

    def _take(self) -> int:
        """The first free place among the ends."""
        if self._free:
            return heapq.heappop(self._free)
        self._top += 1
        return self.room + self._top - 1

    def _touch(self, table: Literal["rows", "ends"], at: int) -> None:
        self._changed[table][at // self._block[table]] = self.added

    def check_draw(self, batch_size: int) -> None:
        """Refuse what cannot be drawn."""
        if self.added == 0:
            raise BadInput("the replay memory is empty; add transitions before sampling")
        if batch_size < 1:
            raise BadInput(f"batch_size is {batch_size}; expected at least 1")

    def draw(self, batch_size: int, generator: np.random.Generator) -> Rows:
        """Draw rows uniformly, with replacement."""
        self.check_draw(batch_size)
        drawn = (generator.random(batch_size) * self.size).astype(np.int64)
        if self.room == self.capacity:
            return drawn
        return (drawn + self.added - self.size) % self.room

    def newest(self, count: int) -> Rows:
        """The rows of the last few transitions, the oldest first."""
        return np.arange(self.added - min(count, self.size), self.added) % self.room

    def sample(
        self,
        batch_size: int,
        generator: np.random.Generator,
        n_step: int = 1,
        discount: float = 0.99,
    ) -> Batch:
        """The transitions of as many drawn rows; see `batch`."""
        return self.batch(self.draw(batch_size, generator), n_step, discount)

    def batch(self, rows: Rows, n_step: int = 1, discount: float = 0.99) -> Batch:
        """The transitions of some rows.

        With `n_step`, each takes in the steps that followed it, up to so many in all: their
        rewards are added, discounted, and the next state is where the last of them led. It stops
        at the end of the episode, however that came, and at the newest row.
        """
        reward, steps = self.reward[rows], np.ones(len(rows), np.float32)
        last = rows
        for step in range(1, n_step):
            following = self.next_at[last]
            goes_on = following < self.room
            if not goes_on.any():
                break
            last = np.where(goes_on, following, last)
            reward += np.where(goes_on, np.float32(discount**step) * self.reward[last], 0)
            steps += goes_on
        fields = (
            self._states(rows),
            self._next_states(last),
            self.action[rows],
            reward,
            self.done[last],
            steps,
        )
        return Batch(*map(torch.from_numpy, fields))

    def _states(self, rows: Rows) -> Array:
        if self.frame_stack == 1:
            return self.observation[rows].reshape(-1, *self.state_shape)
        return self._stacks(rows, self._before[rows])

    def _next_states(self, rows: Rows) -> Array:
        places = self.next_at[rows]
        if self.frame_stack == 1:
            return self.observation[places].reshape(-1, *self.state_shape)
        return self._stacks(places, rows)

    def _stacks(self, newest: Array, before: Array) -> Array:
        """Whole states: what is new in each, and the frames of the rows before.

        An episode that has not as many begins with its first frame several times.
        """
        frame, depth = self._frame, self.frame_stack
        places = np.empty((len(newest), depth), np.int64)
        places[:, -1] = newest
        for i in range(depth - 2, -1, -1):
            places[:, i] = np.where(before >= 0, before, places[:, i + 1])
            before = np.where(before >= 0, self._before[before], -1)
        if self.observation.shape[1] == frame:
            # PyTorch shares this out over its threads.
            frames, rows = torch.from_numpy(self.observation), torch.from_numpy(places.reshape(-1))
            stacks = frames.index_select(0, rows).numpy()
        else:
            older = self.observation[places[:, :-1], :frame].reshape(len(newest), -1)
            stacks = np.concatenate([older, self.observation[newest]], axis=1)
        return stacks.reshape(-1, *self.state_shape)

    def _rows(self, low: int, high: int) -> dict[str, Array]:
        stores = {
            "state": self.state,
            "action": self.action,
            "reward": self.reward,
            "done": self.done,
            "next_at": self.next_at,
        }
        if self.frame_stack > 1:
            stores["before"] = self._before
        return {name: store[low:high] for name, store in stores.items()}

    def _ends(self, low: int, high: int) -> dict[str, Array]:
        return {"end": self.observation[self.room + low : self.room + high]}

    def facts(self) -> dict[str, Any]:
        """All that is to know about the memory but the numbers in its blocks."""
        rows = min(self.added, self.room)
        ends = max(0, int(self.next_at[:rows].max(initial=0)) + 1 - self.room)
        return {
            "capacity": self.capacity,
            "added": self.added,
            "last": list(self._last),
            "ends": ends,
            "changed": {
                "rows": self._changed["rows"][: -(-rows // self._block["rows"])],
                "ends": self._changed["ends"][: -(-ends // self._block["ends"])],
            },
        }

    def blocks(self) -> Iterator[Block]:
        """What is stored, in pieces that know when they changed: a copy need only renew some."""
        facts = self.facts()
        return self._blocks(min(self.added, self.room), facts["ends"])

    def _blocks(self, rows: int, ends: int) -> Iterator[Block]:
        tables: dict[Literal["rows", "ends"], int] = {"rows": rows, "ends": ends}
        for table, count in tables.items():
            size = self._block[table]
            for i, low in enumerate(range(0, count, size)):
                yield Block(table, low, min(low + size, count), self._changed[table][i])

    def read(self, block: Block) -> dict[str, Array]:
        """The arrays of a block (views, not copies)."""
        return (self._rows if block.table == "rows" else self._ends)(block.low, block.high)

    def restore(self, facts: dict[str, Any], read: Callable[[Block], dict[str, Array]]) -> None:
        """Take over a memory from its facts, and what gives the arrays of each of its blocks."""
        capacity, added, ends = facts["capacity"], facts["added"], facts["ends"]
        if capacity != self.capacity:
            raise BadInput(f"the stored memory has capacity {capacity}; expected {self.capacity}")
        if not _whole([added, ends]) or not 0 <= added < 2**62:
            raise BadInput(f"the stored memory does not fit: {added} added, {ends} ends")
        rows, last, changed = min(added, self.room), facts["last"], facts["changed"]
        last = last if isinstance(last, list) else []
        open_rows = [row for row in last if row != -1]
        fits = 0 <= ends <= rows and _whole(open_rows) and len(last) == self.num_envs
        if not fits or len(set(open_rows)) != len(open_rows):
            raise BadInput(f"the stored memory does not fit: last rows {last}, {ends} ends")
        if not all(0 <= row < rows for row in open_rows):
            raise BadInput(f"the stored memory does not fit: last rows {last} of {rows}")
        for table, stamps in changed.items() if isinstance(changed, dict) else [("", None)]:
            room = len(self._changed.get(table, ()))
            if not (isinstance(stamps, list) and len(stamps) <= room and _whole(stamps)):
                raise BadInput("the stored memory does not say when it changed")
            self._changed[table][: len(stamps)] = stamps
        for block in self._blocks(rows, ends):
            self._put(block, read(block))
        if not all(self.next_at[row] >= self.room for row in open_rows):
            raise BadInput(f"the stored memory does not fit: last rows {last} are not the last")
        self.added = added
        self._last = list(last)
        self._env_of = {row: env for env, row in enumerate(last) if row >= 0}
        places = self.next_at[:rows]
        used = set(places[places >= self.room].tolist())
        self._top = ends
        self._free = [place for place in range(self.room, self.room + ends) if place not in used]

    def _put(self, block: Block, arrays: dict[str, Array]) -> None:
        stores = self.read(block)
        missing = stores.keys() - arrays.keys()
        if missing:
            raise BadInput(f"the stored memory lacks {', '.join(sorted(missing))}")
        for name, store in stores.items():
            found = arrays[name]
            if found.shape != store.shape or found.dtype != store.dtype:
                expected = f"{store.dtype}{store.shape}"
                raise BadInput(f"stored {name} is {found.dtype}{found.shape}; expected {expected}")
        if block.table == "rows":
            where = {"next_at": (0, 2 * self.room), "before": (-1, self.room)}
            for name in where.keys() & stores.keys():
                low, high = where[name]
                if arrays[name].min() < low or arrays[name].max() >= high:
                    raise BadInput(f"stored {name} points outside of the memory")
        for name, store in stores.items():
            store[:] = arrays[name]

    def state_dict(self) -> dict[str, Array]:
        """What is stored, as plain arrays (views, not copies)."""
        facts = self.facts()
        rows = min(self.added, self.room)
        counts = {name: np.array(facts[name], np.int64) for name in ("capacity", "added", "last")}
        return counts | self._rows(0, rows) | self._ends(0, facts["ends"])

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Take over what `state_dict` gave; it must fit this memory."""
        missing = {"capacity", "added", "last", "end"} - arrays.keys()
        if missing:
            raise BadInput(f"the stored memory lacks {', '.join(sorted(missing))}")
        shapes = [arrays[name].ndim for name in ("capacity", "added", "last", "end")]
        if shapes != [0, 0, 1, 2]:
            raise BadInput(f"the stored memory has arrays of {shapes} axes; expected [0, 0, 1, 2]")
        facts = {
            "capacity": int(arrays["capacity"]),
            "added": int(arrays["added"]),
            "last": arrays["last"].tolist(),
            "ends": len(arrays["end"]),
            "changed": {},
        }
        stored = {name: array for name, array in arrays.items() if array.ndim > 0}
        self.restore(
            facts, lambda block: {name: a[block.low : block.high] for name, a in stored.items()}
        )

    def save(self, path: str | Path) -> None:
        """Write what is stored to a safetensors file."""
        arrays = {name: np.asarray(a, order="C") for name, a in self.state_dict().items()}
        try:
            save_file(arrays, path)
        except (OSError, SafetensorError) as error:
            raise CannotWrite(f"memory {path} cannot be written: {error}") from error

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote. No code in the file can run."""
        try:
            files.header(Path(path).resolve())
            arrays = load_file(path)
        except (OSError, SafetensorError, T3DError) as error:
            raise BadInput(f"{path} is not a stored memory: {error}") from error
        self.load_state_dict(arrays)


def _whole(numbers: list[Any]) -> bool:
    return all(type(number) is int for number in numbers)


_FLOAT = np.dtype(np.float32)
_MAP_NORESERVE = 0x4000  # of Linux; Python 3.11 has no name for it


def _reserve(shape: tuple[int, int], dtype: DTypeLike, file: BinaryIO | None) -> Array:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        if file is not None:
            return np.memmap(file, dtype, "w+", shape=shape)
        if sys.platform != "linux":
            return np.zeros(shape, dtype)
        # Room that the system is not to count before it is used: all may be more than there is.
        uncounted = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        return np.frombuffer(mmap.mmap(-1, size, flags=uncounted), dtype).reshape(shape)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        advice = f"lower --capacity: {error}"
        raise BadInput(f"no room for a memory of {files.size(size)}; {advice}") from error


def _checked(
    name: str,
    given: ArrayLike,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    rows: int,
    one: bool,
) -> Array:
    """What was given, flat per row and in the memory's own type: what is checked is stored."""
    if dtype == np.uint8:
        value = np.asarray(given)
        if value.dtype != np.uint8:
            raise BadInput(f"{name} has type {value.dtype}; expected uint8, as this memory holds")
    else:
        try:
            value = as_floats(given)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name} is a {type(given).__name__}; expected numbers") from error
    expected = shape if one else (rows, *shape)
    if value.shape != expected:
        raise BadInput(f"{name} has shape {np.shape(given)}; expected {expected}")
    if dtype == np.float32 and not all_finite(value):
        bad = value[~np.isfinite(value)][0] if value.ndim else value
        raise BadInput(f"{name} holds {bad}; expected finite numbers, nothing was stored")
    return value.reshape(rows, math.prod(shape)) if shape else value.reshape(rows)
