"""What every agent has besides its algorithm: bounds, device, random streams, optimisers.

An agent of your own is a subclass of `Agent`, or of `T3D` to change one step of TD3: see
examples/own_agent.py. Make all its networks in `build`: they are then saved, loaded and checked
without further code.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsFloat, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from t3d.base.arguments import with_advice
from t3d.base.errors import BadInput
from t3d.base.imports import name_of
from t3d.base.machine import usable_device
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.base.output import complain
from t3d.base.randomness import generator, torch_random
from t3d.config import Config
from t3d.learn.display import html, line
from t3d.learn.networks import Body, body_of
from t3d.learn.optimizers import adam, rate_at
from t3d.learn.perception import Batch, Perception
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.replay.prioritized import Prioritized
from t3d.learn.replay.sampling import Rows, Sampler, Transitions, Uniform
from t3d.learn.saving import Saved

if TYPE_CHECKING:
    from t3d.api import Options  # the one import against the order of layers: types alone

# What an actor and a critic are made from, in the order of their arguments.
Shape = tuple[int, Array, Array, tuple[int, ...], np.random.Generator, torch.dtype, Body]
_NOTES = "state_dim, action_dim, max_action are the arguments of t3d.notes.T3D"
Measures = dict[str, SupportsFloat]  # the losses and mean values that an update reports
CHANGEABLE = (  # knobs that an agent may change while it learns
    *("batch_size", "learning_rate", "actor_learning_rate", "critic_learning_rate"),
    *("gradient_clip", "discount", "tau", "policy_noise", "noise_clip", "policy_freq"),
)


class Agent(Saved, ABC):
    """An actor and a critic. A subclass defines their networks, and how they act and learn."""

    agent_id: ClassVar[str]  # its name in the knob `agent`: t3d, or module:Class
    engine: ClassVar[Literal["reference", "fused"]] = "reference"  # PyTorch, or compiled code
    depends_on_threads: ClassVar[bool] = True  # whether PyTorch's threads can change its bits
    usual_sampling: ClassVar[Literal["uniform", "lap"]] = "uniform"  # what `--sampling auto` is

    # Of the classes of each algorithm: `Actor` and `Critic` of networks.py, or others.
    actor: Any
    critic: Any
    critic_target: Any

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if "agent_id" not in vars(cls):
            cls.agent_id = name_of(cls)

    @with_advice(_NOTES)
    def __init__(
        self,
        state_dim: int | Layout,
        low: ArrayLike,
        high: ArrayLike,
        config: Config | None = None,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build an untrained agent; `low` and `high` bound each dimension of the action.

        With images, `state_dim` is the layout of a state instead (base/observation.py).
        """
        config = dataclasses.replace(config or Config(), agent=self.agent_id)
        self.config = config
        self.built_with = config  # goes into the agent's file, whatever `change` does
        # The environment that it is for. The default of an agent made by hand names none.
        self.env_name = None if config.env == Config.env else config.env
        self.layout = Layout(state_dim) if isinstance(state_dim, int) else state_dim
        self.dtype = dtype
        self.device = usable_device(config.device)
        self.perception = Perception(self.layout, config, self.device, dtype)
        self.state_dim = self.perception.size
        if self.state_dim < 1:
            raise BadInput(f"state_dim is {state_dim}; expected at least 1")
        lowest, highest = (_bound(bound, dtype) for bound in (low, high))
        if lowest.shape != highest.shape or not bool((lowest < highest).all()):
            raise BadInput(f"action bounds are {low!r} and {high!r}; expected low < high")
        # In the precision that is saved, so that a loaded agent acts like this one to the bit.
        self.bounds = lowest.numpy(), highest.numpy()
        self.low, self.high = lowest.to(self.device), highest.to(self.device)
        self.action_dim = len(lowest)

        self.sampling = generator(config.seed, "sampling")
        self.smoothing = generator(config.seed, "smoothing")
        # These random streams are saved: the next update depends on them.
        self.streams = {"sampling": self.sampling, "smoothing": self.smoothing}
        if self.layout.images:
            self.streams["augmentation"] = self.perception.augmentation
        self.optimizers: dict[str, torch.optim.Adam] = {}
        self.updates = 0  # so far; saved with the agent
        # It chooses the rows to learn from; `build` may replace it.
        self.sampler: Sampler = Prioritized() if self.draws_by_errors else Uniform()
        self.rows: Rows | None = None  # the rows of the last batch
        self.memory: ReplayBuffer | None = None  # of its run, if `t3d.train` was to keep it
        self.score: dict[str, float] | None = None  # of its run: mean, std, episodes, step
        self._stored: Transitions | None = None
        self._noise: Tensor | None = None
        with _seeded_torch(config.seed):
            self.build(generator(config.seed, "weights"))

    def __repr__(self) -> str:
        return line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no memory: that may be gigabytes."""
        return vars(self) | {"memory": None}

    # What a subclass defines.

    @abstractmethod
    def build(self, weights: np.random.Generator) -> None:
        """Make all networks and optimisers; draw initial weights from the stream `weights`."""

    @abstractmethod
    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state or for a batch of states, without noise."""

    @abstractmethod
    def train(self, replay_buffer: ReplayBuffer, iterations: int) -> Measures:
        """Run `iterations` updates; returns the last value of each measure.

        Each learns from a batch of `config.batch_size` transitions. (In the author's code, the
        number that `train` takes is the size of a batch.)
        """

    @abstractmethod
    def update(self, batch: Batch, noise: Tensor) -> Measures:
        """Learn once from a batch. All randomness comes in as arguments."""

    # Defaults that a subclass may override.

    @classmethod
    def unfit(cls, config: Config, layout: Layout | None) -> str:
        """What of a config and a layout it cannot do on any engine; empty if nothing."""
        return ""

    @classmethod
    def why_not(cls, config: Config, layout: Layout | None) -> str:
        """Why this agent cannot be used for a config and a layout; empty if it can be."""
        other = config.agent != cls.agent_id
        return f"{cls.engine} runs the agent {cls.agent_id}, not {config.agent}" if other else ""

    def change(self, **knobs: Any) -> None:
        """Learn with other values of some knobs from here on, such as `learning_rate`.

        A resumed run keeps them. The file of a saved agent has the knobs that it was built with.
        """
        for name in knobs:
            if name not in CHANGEABLE:
                raise BadInput(f"{name} cannot change; these can: {', '.join(CHANGEABLE)}")
        self.config = dataclasses.replace(self.config, **knobs)
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.rate_of(name)

    @property
    def changed(self) -> dict[str, Any]:
        """The knobs that `change` has changed."""
        now, then = vars(self.config), vars(self.built_with)
        return {name: now[name] for name in CHANGEABLE if now[name] != then[name]}

    def fine_tune(self, env: Any, **options: "Unpack[Options]") -> "Agent":
        """Train a copy of this agent on an environment; returns the best one.

        `options` are those of `t3d.train`, which this is a shorter way to call.
        """
        # By name: learn/ imports nothing of what trains a run.
        trained: Agent = import_module("t3d").train(env, from_run=self, **options)
        return trained

    def prepare(self, waiting: Callable[[], None]) -> None:
        """Get ready to learn, such as by compiling; call `waiting` first if that takes long."""

    def begin(self, replay_buffer: ReplayBuffer) -> Callable[[], Measures] | None:
        """Start an update in the background; returns the call that ends it, or None."""
        return None

    def last_batch(self, replay_buffer: ReplayBuffer) -> tuple[Transitions, Tensor] | None:
        """The last update's batch as stored, and its noise; None if there was no update."""
        if self._stored is None or self._noise is None:
            return None
        return self._stored, self._noise

    @torch.no_grad()
    def value(self, state: ArrayLike) -> NDArray[np.float32]:
        """The first critic's estimate of the policy's discounted return from each state.

        For one state, the result is an array of shape (), which `float` takes.
        """
        states = self.perception.checked(state)
        rows = torch.from_numpy(np.atleast_2d(states)).to(self.device)
        inputs = self.perception.encode(rows, self.critic)
        values = self.Q1(inputs) / self.config.reward_scale
        estimates: NDArray[np.float32] = values.float().cpu().numpy()
        return estimates.reshape(states.shape[:-1])

    def Q1(self, inputs: Tensor) -> Tensor:
        """The first critic's value of the policy's action, for states as the networks see them."""
        values: Tensor = self.critic.Q1(inputs, self.actor(inputs))
        return values

    @property
    def td_errors(self) -> Tensor:
        """The absolute TD error of each row of the last batch, the larger of both critics'."""
        raise NotImplementedError(f"{type(self).__name__} reports no TD errors to its sampler")

    @property
    def draws_by_errors(self) -> bool:
        """Whether rows with large errors are drawn more often: LAP, and Huber's loss with it."""
        chosen = self.config.sampling
        return (self.usual_sampling if chosen == "auto" else chosen) == "lap"

    @property
    def max_action(self) -> Tensor:
        """Half the action range, per dimension."""
        half_range: Tensor = self.actor.max_action
        return half_range

    # Tools for `build` and `train`.

    def shape_of(self, network: Literal["actor", "critic"], weights: np.random.Generator) -> Shape:
        """The arguments of `Actor` or `Critic`, as the config has them."""
        hidden, body = self.config.hidden_layers[network], body_of(self.config, network)
        return self.state_dim, *self.bounds, hidden, weights, self.dtype, body

    def make_optimizer(self, network: nn.Module) -> torch.optim.Adam:
        """Adam for one of the networks. It is saved with the agent."""
        name = next(name for name, each in self.networks.items() if each is network)
        self.optimizers[name] = self._adam(network, self.rate_of(name))
        return self.optimizers[name]

    def _adam(self, network: nn.Module, rate: float) -> torch.optim.Adam:
        return adam(network, rate, self.config.weight_decay, self.device)

    def rate_of(self, network: str) -> float:
        """The learning rate of a network at the next update."""
        return rate_at(self.config, network, self.updates)

    @property
    def step_of_targets(self) -> float:
        """How far the targets move at the next update that moves them: tau, or not, or all the way.

        With `target_every`, all the way at the first of these updates that is due.
        """
        every, freq = self.config.target_every, self.config.policy_freq
        if not every:
            return self.config.tau
        now = self.updates + 1
        return float(now // every > (now - freq) // every)

    def descend(self, optimizer: torch.optim.Adam, loss: Tensor) -> None:
        """One step of gradient descent on the optimiser's own parameters, and on no others.

        The actor's loss runs through the critic. Computing the gradients of the actor alone is less
        work, and leaves those of the critic untouched.
        """
        (group,) = optimizer.param_groups
        name = next(name for name, each in self.optimizers.items() if each is optimizer)
        group["lr"] = self.rate_of(name)
        parameters = group["params"]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            parameter.grad = gradient
        if self.config.gradient_clip:
            nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip)
        optimizer.step()

    def sample(self, memory: ReplayBuffer) -> Transitions:
        """Draw a batch onto the device. Images are shifted; all else is as stored."""
        stored = memory.batch(self.draw_rows(memory), self.config.n_step, self.config.discount)
        self._stored = self.perception.augment(stored).to(self.device, self.dtype)
        return self._stored

    def draw_rows(self, memory: ReplayBuffer) -> Rows:
        """The rows of the next batch, as the sampler chooses them."""
        count = self.config.batch_size
        rows = np.asarray(self.sampler.draw(memory, count, self.sampling))
        if rows.shape != (count,) or rows.dtype.kind not in "iu":
            what = f"{type(self.sampler).__name__} drew {rows.dtype} of shape {rows.shape}"
            raise BadInput(f"sampler {what}; expected {count} whole numbers, one per row to draw")
        self.rows = rows
        return rows

    def tell_sampler(self) -> None:
        """After an update: pass the TD error of each row to the sampler, if it wants them."""
        if self.sampler.wants_td_errors and self.rows is not None:
            self.sampler.learned(self.rows, self.td_errors.float().cpu().numpy())

    def draw_noise(self, rows: int) -> Tensor:
        """One standard normal number per row and action dimension."""
        noise = self.smoothing.standard_normal((rows, self.action_dim), np.float32)
        self._noise = torch.from_numpy(noise).to(self.device, self.dtype)
        return self._noise

    def perceive(self, stored: Transitions) -> Batch:
        """A stored batch as the networks see it."""
        return self.perception.perceive(stored, self.critic, self.critic_target)

    def observe(self, states: Array) -> None:
        """Update the running mean and std of states, if states are normalised."""
        self.perception.observe(states)

    def check_memory(self, memory: ReplayBuffer, iterations: int = 1) -> None:
        """Refuse a memory whose sizes or type differ from the agent's.

        At the first update, say so if `iterations` looks like the size of a batch.
        """
        if self.updates == 0 and iterations == self.config.batch_size > 1:
            what = f"train(replay_buffer, {iterations}) does {iterations} updates"
            size = f"the size of a batch is config.batch_size, {iterations}"
            complain(f"note: {what}; {size}; for one update, train(replay_buffer, 1)")
        stored = memory.state_shape, memory.action.shape[1]
        if stored != ((self.layout.size,), self.action_dim):
            expected = f"this agent's are {(self.layout.size,)} and {self.action_dim}"
            raise BadInput(f"the memory holds states {stored[0]}, actions {stored[1]}; {expected}")
        if memory.observation.dtype != self.layout.dtype:
            what = f"the memory holds {memory.observation.dtype}"
            raise BadInput(f"{what}; this agent learns from {self.layout.dtype}")


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    """Let a seed decide also what PyTorch's own initialisation draws, which knows no streams."""
    with torch_random:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)


def _bound(values: ArrayLike, dtype: torch.dtype) -> Tensor:
    """One end of the action range. Its double must be finite, so that the width of the range is."""
    expected = f"action bound is {values!r}; expected one finite {dtype} number per dimension"
    try:
        bound = torch.from_numpy(np.asarray(values, np.float64).copy()).to(dtype)
    except (TypeError, ValueError) as error:
        raise BadInput(expected) from error
    if bound.ndim == 0:
        raise BadInput(f"{expected}; {_NOTES}")
    if bound.ndim != 1 or bound.numel() == 0 or not bool(torch.isfinite(2 * bound).all()):
        raise BadInput(expected)
    return bound
