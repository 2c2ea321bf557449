"""Step 1: the replay memory."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from t3d import files
from t3d.errors import T3DError
from t3d.numbers import all_finite, as_floats

Array = NDArray[Any]


class Batch(NamedTuple):
    """Transitions side by side: row i of every field belongs to the same step."""

    state: Tensor  # (batch, *state_shape)
    next_state: Tensor  # (batch, *state_shape)
    action: Tensor  # (batch, action_dim), in the environment's units
    reward: Tensor  # (batch,)
    done: Tensor  # (batch,): 1 where the episode terminated, 0 elsewhere, a time limit included

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        """The same transitions on a device, as floats of a precision."""
        return Batch(*(field.to(device, dtype) for field in self))


class ReplayBuffer:
    """Step 1: the last `capacity` transitions, drawn from uniformly.

    Consecutive steps look alike, and a network that learns from them one after the other
    forgets the rest; a uniform draw from a long memory does not. The arrays are reserved
    once, but the system only hands out pages that are written to: an empty memory of a
    million rows costs nothing.
    """

    def __init__(
        self,
        capacity: int,
        state_shape: int | tuple[int, ...],
        action_dim: int,
        state_dtype: DTypeLike = np.float32,
    ) -> None:
        """Reserve room. `state_dtype` is float32, or uint8 for images."""
        if capacity < 1:
            raise T3DError(f"capacity is {capacity}; expected at least 1")
        shape = (state_shape,) if isinstance(state_shape, int) else tuple(state_shape)
        self.capacity = capacity
        self.state = np.zeros((capacity, *shape), state_dtype)
        self.next_state = np.zeros((capacity, *shape), state_dtype)
        self.action = np.zeros((capacity, action_dim), np.float32)
        self.reward = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.added = 0  # transitions so far, those included that were overwritten
        self.position = 0  # the row that the next `add` writes
        self.size = 0

    def __len__(self) -> int:
        """How many transitions are stored."""
        return self.size

    def _fields(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in Batch._fields}

    def add(
        self,
        state: ArrayLike,
        next_state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
    ) -> None:
        """Store one transition, or a batch of them (then every argument has a leading axis).

        `done` means that the episode terminated; cut by a time limit, it did not. Once the
        memory is full, the oldest rows are overwritten. Shapes are checked, and nothing
        that is not finite gets in.
        """
        one = np.ndim(reward) == 0
        rows = 1 if one else len(reward)  # type: ignore[arg-type]
        values = []
        for name, given in zip(Batch._fields, (state, next_state, action, reward, done)):
            store = getattr(self, name)
            value = _as_stored(name, given, store.dtype)
            value = value[None] if one else value
            if value.shape != (rows, *store.shape[1:]):
                expected = store.shape[1:] if one else (rows, *store.shape[1:])
                raise T3DError(f"{name} has shape {np.shape(given)}; expected {expected}")
            if store.dtype == np.float32 and not all_finite(value):
                bad = value[~np.isfinite(value)][0]
                raise T3DError(f"{name} holds {bad}; expected finite numbers, nothing was stored")
            values.append(value[-self.capacity :])
        rows = min(rows, self.capacity)
        where: slice | NDArray[np.int64] = slice(self.position, self.position + rows)
        if self.position + rows > self.capacity:
            where = (self.position + np.arange(rows)) % self.capacity
        for name, value in zip(Batch._fields, values):
            getattr(self, name)[where] = value
        self.restore(self.added + rows)

    def restore(self, added: int) -> None:
        """Count as if so many had been added. The rows themselves are `put`."""
        self.added = added
        self.position = added % self.capacity
        self.size = min(added, self.capacity)

    def check_draw(self, batch_size: int) -> None:
        """Refuse what cannot be drawn."""
        if self.size == 0:
            raise T3DError("the replay memory is empty; add transitions before sampling")
        if batch_size < 1:
            raise T3DError(f"batch_size is {batch_size}; expected at least 1")

    def draw(self, batch_size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw rows uniformly, with replacement."""
        self.check_draw(batch_size)
        drawn = generator.random(batch_size)
        return (drawn * self.size).astype(np.int64)

    def sample(self, batch_size: int, generator: np.random.Generator) -> Batch:
        """The transitions of as many drawn rows."""
        return self.batch(self.draw(batch_size, generator))

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """The transitions of some rows."""
        return Batch(*(torch.from_numpy(store[rows]) for store in self._fields().values()))

    def state_dict(self) -> dict[str, Array]:
        """What is stored, as plain arrays (views, not copies)."""
        return {**self.rows(0, self.size), "added": np.array(self.added)}

    @property
    def row_bytes(self) -> int:
        """What one transition takes."""
        return sum(store[:1].nbytes for store in self._fields().values())

    def rows(self, low: int, high: int) -> dict[str, Array]:
        """Some rows as they are stored (views, not copies)."""
        return {name: store[low:high] for name, store in self._fields().items()}

    def put(self, low: int, high: int, arrays: dict[str, Array]) -> None:
        """Take over what `rows` gave; it must fit this memory."""
        missing = set(Batch._fields) - arrays.keys()
        if missing:
            raise T3DError(f"the stored memory lacks {', '.join(sorted(missing))}")
        for name, store in self._fields().items():
            shape = (high - low, *store.shape[1:])
            if arrays[name].shape != shape or arrays[name].dtype != store.dtype:
                found = f"{arrays[name].dtype}{arrays[name].shape}"
                raise T3DError(f"stored {name} is {found}; expected {store.dtype}{shape}")
        for name, store in self._fields().items():
            store[low:high] = arrays[name]

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Take over what `state_dict` gave; it must fit this memory."""
        if not {"added", "reward"} <= arrays.keys():
            raise T3DError("the stored memory lacks added or reward")
        size, added = len(arrays["reward"]), int(arrays["added"])
        if size > self.capacity:
            raise T3DError(f"{size} stored transitions; expected at most {self.capacity}")
        # A full memory goes on anywhere, one that is not full behind its last row.
        if size != min(added, self.capacity):
            advice = f"capacity is {self.capacity}; expected as many as fit"
            raise T3DError(f"{size} stored transitions of {added} added; {advice}")
        self.put(0, size, arrays)
        self.restore(added)

    def save(self, path: str | Path) -> None:
        """Write what is stored to a safetensors file."""
        arrays = {name: np.asarray(a, order="C") for name, a in self.state_dict().items()}
        try:
            save_file(arrays, path)
        except (OSError, SafetensorError) as error:
            raise T3DError(f"memory {path} cannot be written: {error}") from error

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote. No code in the file can run."""
        try:
            files.header(Path(path).resolve())
            arrays = load_file(path)
        except (OSError, SafetensorError, T3DError) as error:
            raise T3DError(f"{path} is not a stored memory: {error}") from error
        self.load_state_dict(arrays)


def _as_stored(name: str, given: ArrayLike, dtype: np.dtype[Any]) -> Array:
    """What was given in the memory's own type, so that what is checked is what is stored."""
    if dtype == np.uint8:
        image = np.asarray(given)
        if image.dtype != np.uint8:
            raise T3DError(f"{name} has type {image.dtype}; expected uint8, as this memory holds")
        return image
    try:
        return as_floats(given)
    except (TypeError, ValueError) as error:
        raise T3DError(f"{name} is a {type(given).__name__}; expected numbers") from error
