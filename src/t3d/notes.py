"""The notes' own signatures: their training loop runs with its import line changed.

    from t3d.notes import T3D, ReplayBuffer

    replay_buffer = ReplayBuffer()
    policy = T3D(state_dim, action_dim, max_action)
    replay_buffer.add((state, next_state, action, reward, done))
    policy.train(replay_buffer, iterations, batch_size, discount, tau)

The author's later code has other signatures, which work as well: `ReplayBuffer(state_dim,
action_dim)`, `add(state, action, next_state, reward, done)`, knobs in the constructor, and
`train(replay_buffer, batch_size)` for one iteration.

This is a thin layer over T3D's own memory and engines. docs/notes.md shows both loops.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from t3d.base.errors import BadInput
from t3d.base.numbers import Array, as_whole
from t3d.base.randomness import generator
from t3d.config import Config
from t3d.learn import networks
from t3d.learn.agent import Agent, Measures
from t3d.learn.engines import agent_class
from t3d.learn.replay.memory import ReplayBuffer as Memory
from t3d.learn.replay.sampling import Rows, Uniform

# The networks of the notes, and those of the author's later code.
_NOTES: dict[str, Any] = {"hidden": (400, 300), "learning_rate": 1e-3, "batch_size": 100}
_AUTHOR: dict[str, Any] = {"hidden": (256, 256), "learning_rate": 3e-4, "batch_size": 256}
_KNOBS = {"discount": 0.99, "tau": 0.005, "policy_noise": 0.2, "noise_clip": 0.5, "policy_freq": 2}
_SIZES = ("state_dim", "action_dim", "max_size")  # of the author's buffer
_OPTIONS = ("hidden", "learning_rate", "seed", "device", "engine", "threads")


class ReplayBuffer:
    """The memory of the notes, `ReplayBuffer(max_size)`, or of the author's later code.

    The latter is `ReplayBuffer(state_dim, action_dim, max_size)`. The two differ in the order of
    `add` and `sample`, in their attributes, and in what `train` takes.
    """

    def __init__(self, *sizes: float, **named: float) -> None:
        self.authors = len(sizes) >= 2 or not named.keys() <= {"max_size"}
        names = _SIZES if self.authors else ("max_size",)
        values = {"max_size": 1e6} | dict(zip(names, sizes)) | named
        twice = named.keys() & set(names[: len(sizes)])
        if len(sizes) > len(names) or values.keys() != set(names) or twice:
            raise BadInput("ReplayBuffer takes max_size, or state_dim, action_dim and max_size")
        whole = {name: as_whole(name, value, 1) for name, value in values.items()}
        self.max_size = whole["max_size"]
        self.memory: Memory | None = None  # T3D's own, as soon as the sizes are known
        if self.authors:
            self._open(whole["state_dim"], whole["action_dim"])
        self._stream = generator(_drawn_seed(), "sampling")

    def _open(self, state_dim: int, action_dim: int) -> Memory:
        self.memory = Memory(self.max_size, state_dim, action_dim)
        return self.memory

    def __len__(self) -> int:
        return len(self.memory) if self.memory else 0

    @property
    def size(self) -> int:
        """Transitions stored."""
        return len(self)

    @property
    def ptr(self) -> int:
        """The row that `add` writes next. In the notes it is 0 until the buffer is full."""
        full = len(self) == self.max_size
        return self.memory.position if self.memory and (full or self.authors) else 0

    @property
    def storage(self) -> "Storage":
        """The transitions, as the notes' list has them."""
        return Storage(self)

    @property
    def state(self) -> Array:
        """The stored states. This and the other columns of the author's can be read only."""
        return self._column(lambda memory, rows: memory.states_at(rows))

    @property
    def next_state(self) -> Array:
        """The stored next states."""
        return self._column(lambda memory, rows: memory.next_states_at(rows))

    @property
    def action(self) -> Array:
        """The stored actions."""
        return self._column(lambda memory, rows: memory.action[rows])

    @property
    def reward(self) -> Array:
        """The stored rewards, one column."""
        return self._column(lambda memory, rows: memory.reward[rows, None])

    @property
    def not_done(self) -> Array:
        """One column: 0 where the episode terminated, else 1."""
        return self._column(lambda memory, rows: 1 - memory.done[rows, None])

    def _column(self, read: Callable[[Memory, Rows], Array]) -> Array:
        memory = self.filled() if self.memory is None else self.memory
        column = read(memory, np.arange(len(self)))
        column.flags.writeable = False  # it is a copy: what is written there would be lost
        return column

    def add(self, *transition: Any) -> None:
        """Store (state, next_state, action, reward, done), one tuple; a full buffer overwrites.

        In the author's form these are five arguments: state, action, next_state, reward, done.
        """
        if len(transition) == 1 and not self.authors:
            (transition,) = transition
        order = "state, action, next_state" if self.authors else "(state, next_state, action"
        order += ", reward, done" + ("" if self.authors else "), one tuple")
        if len(transition) != 5:
            raise BadInput(f"add got {len(transition)} values; expected {order}")
        state, second, third, reward, done = transition
        action, after = (second, third) if self.authors else (third, second)
        state, after, action = (np.asarray(each).reshape(-1) for each in (state, after, action))
        if len(state) != len(after):
            what = f"state has {len(state)} numbers and next_state {len(after)}"
            raise BadInput(f"{what}; expected as many in the order {order}")
        memory = self._open(len(state), len(action)) if self.memory is None else self.memory
        reward, done = (np.asarray(each).reshape(()) for each in (reward, done))
        memory.add(state, after, action, reward, done)

    def sample(self, batch_size: int) -> tuple[Any, ...]:
        """Five arrays drawn at random: states, next states, actions, rewards, dones.

        In the author's form these are tensors: state, action, next_state, reward, not_done.
        """
        memory = self.filled()
        batch = memory.batch(Uniform().draw(memory, batch_size, self._stream))
        reward, done = batch.reward[:, None], batch.done[:, None]
        if self.authors:
            return batch.state, batch.action, batch.next_state, reward, 1 - done
        tensors = batch.state, batch.next_state, batch.action, reward, done
        return tuple(tensor.numpy() for tensor in tensors)

    def filled(self) -> Memory:
        """T3D's own memory; an error if it is empty."""
        if not self.memory:
            raise BadInput("the replay buffer is empty; add transitions first")
        return self.memory


class Storage(Sequence[tuple[Any, ...]]):
    """A buffer read as a list of (state, next_state, action, reward, done)."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    def __len__(self) -> int:
        return len(self._buffer)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[Any, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[Any, ...] | list[tuple[Any, ...]]:
        """Copies of one transition, or of several."""
        row = range(len(self))[index]  # what is no row is an error, as of a list
        if isinstance(row, range):
            return [self[each] for each in row]
        rows, memory = np.array([row]), self._buffer.filled()
        arrays = memory.states_at(rows), memory.next_states_at(rows), memory.action[rows]
        return *(array[0] for array in arrays), float(memory.reward[row]), float(memory.done[row])


class Actor(networks.Actor):
    """Step 2: state in, action between -max_action and max_action out."""

    def __init__(self, state_dim: int, action_dim: int, max_action: ArrayLike) -> None:
        high = _bounds(action_dim, max_action)
        stream = generator(_drawn_seed(), "weights")
        super().__init__(state_dim, -high, high, _NOTES["hidden"], stream)


class Critic(networks.Critic):
    """Step 3: the twins. `forward` returns Q1 and Q2, each of shape (batch, 1) as in the notes."""

    def __init__(self, state_dim: int, action_dim: int) -> None:
        one = np.ones(action_dim, np.float32)  # actions go in as they are
        stream = generator(_drawn_seed(), "weights")
        super().__init__(state_dim, -one, one, _NOTES["hidden"], stream)

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Both values of each action in its state."""
        Q1, Q2 = super().forward(state, action)
        return Q1[:, None], Q2[:, None]

    def Q1(self, state: Tensor, action: Tensor) -> Tensor:
        """The first twin's value alone."""
        return super().Q1(state, action)[:, None]


class T3D:
    """TD3 with the notes' signatures, on T3D's fastest engine that applies.

    `policy_noise` and `noise_clip` are in the units of the action, as in both codes. Knobs in the
    constructor (`discount`, `tau`, `policy_noise`, `noise_clip`, `policy_freq`) are the defaults of
    `train`, and select the author's later networks: 256-256 with a learning rate of 3e-4, instead
    of 400-300 with 1e-3. `hidden`, `learning_rate`, `seed`, `device`, `engine` and `threads` are
    T3D's own knobs. Without a seed, one is drawn from NumPy's global generator, which the notes
    seed.
    """

    def __init__(
        self, state_dim: int, action_dim: int, max_action: ArrayLike, **knobs: Any
    ) -> None:
        for name in knobs:
            if name not in _KNOBS and name not in _OPTIONS:
                raise BadInput(f"T3D takes no {name!r}; it takes {', '.join([*_KNOBS, *_OPTIONS])}")
        chosen = _AUTHOR if knobs.keys() & _KNOBS.keys() else _NOTES
        options = {name: knobs[name] for name in _OPTIONS if name in knobs}
        self._defaults: dict[str, Any] = _KNOBS | {"batch_size": chosen["batch_size"]}
        self._defaults |= {name: value for name, value in knobs.items() if name in _KNOBS}
        high = _bounds(action_dim, max_action)
        if len(set(high.tolist())) > 1:
            what = f"max_action is {high.tolist()}; the notes have one for all dimensions"
            raise BadInput(f"{what}: use t3d.T3D for others")
        self.max_action = float(high[0])
        config = Config(**({"seed": _drawn_seed()} | chosen | options))
        kind, _ = agent_class(config)
        self.agent: Agent = kind(as_whole("state_dim", state_dim, 1), -high, high, config)
        self.agent.prepare(lambda: None)
        self.actor, self.critic = self.agent.actor, self.agent.critic
        self.actor_target = self.agent.networks["actor_target"]
        self.critic_target = self.agent.critic_target

    def __repr__(self) -> str:
        sizes = f"observation {self.agent.layout.size}, action {self.agent.action_dim}"
        return f"notes.T3D({sizes}, {self.agent.updates:,} updates, {self.agent.engine} engine)"

    @property
    def total_it(self) -> int:
        """Training iterations so far."""
        return self.agent.updates

    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The actor's action for one state, without noise."""
        return self.agent.select_action(np.asarray(state, np.float32).reshape(-1))

    def train(
        self,
        replay_buffer: ReplayBuffer,
        iterations: int | None = None,
        batch_size: int | None = None,
        discount: float | None = None,
        tau: float | None = None,
        policy_noise: float | None = None,
        noise_clip: float | None = None,
        policy_freq: int | None = None,
    ) -> Measures:
        """Run training iterations; returns the last losses. Knobs may change from call to call.

        With a buffer of the author's form, a number alone is the batch size, of one iteration.
        """
        if not isinstance(replay_buffer, ReplayBuffer):
            what = type(replay_buffer).__name__
            raise BadInput(f"replay_buffer is a {what}; expected a t3d.notes.ReplayBuffer")
        if replay_buffer.authors and batch_size is None:
            iterations, batch_size = None, iterations
        if iterations is None and replay_buffer.authors:
            iterations = 1
        if iterations is None:
            raise BadInput("train needs the number of iterations: train(replay_buffer, iterations)")
        iterations = as_whole("iterations", iterations, 0)
        typed = {"batch_size": batch_size, "discount": discount, "tau": tau}
        typed |= {"policy_noise": policy_noise, "noise_clip": noise_clip}
        typed |= {"policy_freq": policy_freq}
        knobs = {
            name: self._defaults[name] if value is None else value for name, value in typed.items()
        }
        for name in ("policy_noise", "noise_clip"):  # fractions of the half-range in T3D
            knobs[name] = float(knobs[name]) / self.max_action
        config = self.agent.config
        if any(getattr(config, name) != value for name, value in knobs.items()):
            self.agent.change(**knobs)
        return self.agent.train(replay_buffer.filled(), iterations)

    def save(self, filename: str, directory: str | Path = ".") -> None:
        """Write the whole agent, optimisers included, to directory/filename.safetensors."""
        path = _path(filename, directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.agent.save(path)

    def load(self, filename: str, directory: str | Path = ".") -> None:
        """Take over what `save` wrote."""
        path = _path(filename, directory)
        if not path.is_file():
            pickles = sorted(path.parent.glob(f"{path.stem}*.pth"))
            why = f"; {pickles[0].name} is a pickle, which T3D does not load" if pickles else ""
            raise BadInput(f"no agent at {path}{why}")
        self.agent.restore(path)


TD3 = T3D  # the author's name


def _path(filename: str, directory: str | Path) -> Path:
    return Path(directory) / f"{filename}.safetensors"


def _bounds(action_dim: int, max_action: ArrayLike) -> Array:
    """The upper bound of each action dimension; `Agent` checks its numbers."""
    try:
        return np.broadcast_to(np.asarray(max_action, np.float32), (action_dim,)).copy()
    except (TypeError, ValueError) as error:
        raise BadInput(f"max_action is {max_action!r}; expected one positive number") from error


def _drawn_seed() -> int:
    """A seed from NumPy's global generator: a notebook that seeds it repeats its numbers."""
    return int(np.random.randint(2**32, dtype=np.uint64))  # noqa: NPY002
