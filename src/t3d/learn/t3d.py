"""Steps 4 to 15: Twin Delayed Deep Deterministic policy gradient, on one page.

Fujimoto, van Hoof and Meger, "Addressing Function Approximation Error in Actor-Critic
Methods", 2018. Every step is explained, with a picture, in docs/fifteen-steps.md.
"""

import copy
import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, SupportsFloat

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.observation import Layout
from t3d.base.randomness import Purpose, generator, generator_state, set_generator_state
from t3d.config import Config
from t3d.learn.networks import Actor, Critic, Encoder
from t3d.learn.normalize import Normalizer
from t3d.learn.replay.memory import Batch, ReplayBuffer
from t3d.learn.replay.sampling import Sampler, Uniform


class T3D:
    """Actor and critic, a target of each (six networks in all), and two Adam optimisers.

    States and actions are in the environment's own units everywhere. Noise is given as a
    fraction of each action dimension's half-range, `max_action`.
    """

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

        Where states are more than a vector, `state_dim` is their layout (t3d/observation.py).
        """
        config = config or Config()
        self.config = config
        self.layout = Layout(state_dim) if isinstance(state_dim, int) else state_dim
        self.state_dim = self.layout.vector + len(self.layout.images) * config.features
        self.dtype = dtype
        self.device = usable_device(config.device)
        if self.state_dim < 1:
            raise BadInput(f"state_dim is {state_dim}; expected at least 1")
        lowest, highest = (_bound(bound, dtype) for bound in (low, high))
        if lowest.shape != highest.shape or not bool((lowest < highest).all()):
            raise BadInput(f"action bounds are {low!r} and {high!r}; expected low < high")
        self.low, self.high = lowest.to(self.device), highest.to(self.device)
        self.action_dim = len(lowest)

        self.normalizer = Normalizer(self.layout.vector, dtype)
        weights = generator(config.seed, "weights")
        # The bounds as they are kept, so that a saved agent acts like this one to the bit.
        bounds = lowest.numpy(), highest.numpy()
        shared = (self.state_dim, *bounds, config.hidden, weights, dtype)
        self.actor = Actor(*shared).to(self.device)
        self.critic = Critic(*shared).to(self.device)
        if not config.twins:  # with the same losses and the same Adam, they stay the same
            self.critic.twin2.load_state_dict(self.critic.twin1.state_dict())
        if self.layout.images:  # what the critic's loss teaches, and the actor just uses
            sizes = config.image_channels, config.features
            encoder = Encoder(self.layout, *sizes, weights, dtype)
            self.critic.encoder = encoder.to(self.device)
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_optimizer = self._adam(self.actor)
        self.critic_optimizer = self._adam(self.critic)

        self._last: tuple[Batch, Tensor] | None = None
        self.updates = 0  # counts updates, never environment steps, and is saved
        self.sampler: Sampler = Uniform()
        self.sampling = generator(config.seed, "sampling")
        self.smoothing = generator(config.seed, "smoothing")
        self.augmentation = generator(config.seed, "augmentation")

    def _adam(self, module: nn.Module) -> torch.optim.Adam:
        # Where PyTorch can, it steps all parameters in one pass; it then counts on the device.
        fused = self.device.type in ("cpu", "cuda", "mps")
        adam = torch.optim.Adam(module.parameters(), lr=self.config.learning_rate, fused=fused)
        adam.state.update(adam_state(module, self.device if fused else "cpu"))
        return adam

    @property
    def max_action(self) -> Tensor:
        """Half the action range, per dimension."""
        return self.actor.max_action

    def prepare(self, waiting: Callable[[], None]) -> None:
        """Get ready to learn; `waiting` is called if that takes a while. Here it takes nothing."""

    @torch.no_grad()
    def select_action(self, state: ArrayLike) -> NDArray[np.float32]:
        """The policy's action for one state, or for a batch of states. No noise is added."""
        states = self._states(state)
        rows = torch.from_numpy(states if states.ndim == 2 else states[None]).to(self.device)
        action = self.actor(self._look(self.critic, rows))
        action = action if states.ndim == 2 else action[0]
        # tanh may round to a hair outside of the range; the environment must never see that.
        chosen: NDArray[np.float32] = action.clamp(self.low, self.high).float().cpu().numpy()
        return chosen

    @torch.no_grad()
    def value(self, state: ArrayLike) -> NDArray[np.float32]:
        """What the first critic expects of the policy in each of some states, discounted."""
        seen = self._look(self.critic, torch.from_numpy(self._states(state)).to(self.device))
        values = self.critic.Q1(seen, self.actor(seen)) / self.config.reward_scale
        found: NDArray[np.float32] = values.float().cpu().numpy()
        return found

    def observe(self, states: NDArray[Any]) -> None:
        """Take note of what states there are, if they are to be normalised."""
        if self.config.normalize_observations:
            self.normalizer.update(_parts(self.layout, torch.from_numpy(states))[1].numpy())

    def see(self, batch: Batch) -> Batch:
        """What was stored as the networks see it: images as features, that can be learned."""
        with torch.no_grad():
            next_state = self._look(self.critic_target, batch.next_state)
        state = self._look(self.critic, batch.state)
        reward = batch.reward * self.config.reward_scale
        return batch._replace(state=state, next_state=next_state, reward=reward)

    def _look(self, critic: Critic, rows: Tensor) -> Tensor:
        """States as the actor and a critic take them."""
        images, vector = _parts(self.layout, rows)
        seen = self.normalizer(vector.to(self.dtype))
        if images is None:
            return seen
        return torch.cat([critic.encoder(images), seen], dim=1)

    def _shifted(self, batch: Batch) -> Batch:
        """The same with each image moved a little, at random, so that no place is learned by heart.

        Kostrikov, Yarats and Fergus, 2020.
        """
        most = self.config.image_shift
        if not (self.layout.images and most):
            return batch
        rows = len(batch.reward)
        moves = self.augmentation.integers(-most, most + 1, (2, rows, len(self.layout.images), 2))
        return batch._replace(
            state=shifted(batch.state, self.layout, moves[0]),
            next_state=shifted(batch.next_state, self.layout, moves[1]),
        )

    def train(self, replay_buffer: ReplayBuffer, iterations: int) -> dict[str, SupportsFloat]:
        """Run that many training iterations; returns the last of each measure."""
        self._check_memory(replay_buffer)
        measured: dict[str, SupportsFloat] = {}
        shape = (self.config.batch_size, self.action_dim)
        for _ in range(iterations):
            # Step 4: sample a batch of transitions and move it to the device.
            knobs = self.config
            rows = self.sampler.draw(replay_buffer, knobs.batch_size, self.sampling)
            batch = replay_buffer.batch(rows, knobs.n_step, knobs.discount)
            batch = self._shifted(batch).to(self.device, self.dtype)
            # One standard normal number per row and per action dimension, for step 6.
            drawn = self.smoothing.standard_normal(shape, np.float32)
            noise = torch.from_numpy(drawn).to(self.device, self.dtype)
            self._last = batch, noise
            measured |= self.update(self.see(batch), noise)
        return measured

    def last_batch(self, replay_buffer: ReplayBuffer) -> tuple[Batch, Tensor] | None:
        """What the last update learned from, as stored, and its noise; None if there was none."""
        return self._last

    def begin(self, replay_buffer: ReplayBuffer) -> Callable[[], dict[str, SupportsFloat]] | None:
        """Begin an update beside what comes next, if it leaves the actor alone and if this engine
        can; returns what finishes it. The reference cannot.
        """

    def update(self, batch: Batch, noise: Tensor) -> dict[str, SupportsFloat]:
        """Steps 5 to 15, once. All randomness comes in as arguments."""
        knobs = self.config
        with torch.no_grad():
            # Step 5: the actor target plays the next action.
            next_action = self.actor_target(batch.next_state)
            # Step 6: smooth it with clipped noise, and stay inside the action range.
            noise = (noise * knobs.policy_noise).clamp(-knobs.noise_clip, knobs.noise_clip)
            next_action = (next_action + noise * self.max_action).clamp(self.low, self.high)
            # Step 7: both critic targets judge it.
            target_Q1, target_Q2 = self.critic_target(batch.next_state, next_action)
            # Step 8: believe the smaller value, against over-estimation.
            target_Q = torch.min(target_Q1, target_Q2)
            # Step 9: the Bellman target; a terminated episode has no next value.
            target_Q = batch.reward + (1 - batch.done) * knobs.discount**batch.steps * target_Q

        # Step 10: both critics predict the value of the action that was played.
        Q1, Q2 = self.critic(batch.state, batch.action)
        # Step 11: how far both are from the target.
        critic_loss = mse_loss(Q1, target_Q) + mse_loss(Q2, target_Q)
        # Step 12: backpropagate, and step Adam on both twins.
        _descend(self.critic_optimizer, critic_loss)

        self.updates += 1
        measured: dict[str, SupportsFloat] = {"critic_loss": critic_loss.detach()}
        measured["mean_Q"] = Q1.detach().mean()
        if self.updates % knobs.policy_freq == 0:
            # Step 13: move the actor up the slope of the first critic.
            state = batch.state.detach()  # how images are seen is not the actor's to change
            actor_loss = -self.critic.Q1(state, self.actor(state)).mean()
            _descend(self.actor_optimizer, actor_loss)
            # Step 14: the actor target follows the actor by a small step.
            _polyak(self.actor_target, self.actor, knobs.tau)
            # Step 15: the critic target follows the critic by a small step.
            _polyak(self.critic_target, self.critic, knobs.tau)

            measured["actor_loss"] = actor_loss.detach()
        return measured

    def _states(self, state: ArrayLike) -> NDArray[Any]:
        """What `select_action` was given, checked."""
        size, images = self.layout.size, bool(self.layout.images)
        try:
            states = np.asarray(state) if images else np.asarray(state, np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"state is a {type(state).__name__}; expected numbers") from error
        if (
            states.shape[-1:] != (size,)
            or states.ndim not in (1, 2)
            or states.dtype != self.layout.dtype
        ):
            rows = "rows of bytes, as t3d.make_env shows them: " if images else ""
            raise BadInput(f"state has shape {states.shape}; expected {rows}({size},) or a batch")
        return states

    def _check_memory(self, memory: ReplayBuffer) -> None:
        stored = memory.state_shape, memory.action.shape[1]
        if stored != ((self.layout.size,), self.action_dim):
            expected = f"this agent's are {(self.layout.size,)} and {self.action_dim}"
            raise BadInput(f"the memory holds states {stored[0]}, actions {stored[1]}; {expected}")
        if memory.observation.dtype != self.layout.dtype:
            found = f"the memory holds {memory.observation.dtype}"
            raise BadInput(f"{found}; this agent learns from {self.layout.dtype}")

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, but the memory: flat, names to tensors."""
        state: dict[str, Tensor] = {}
        for name in ("actor", "critic", "actor_target", "critic_target"):
            module: nn.Module = getattr(self, name)
            state |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        for name, module in (("actor", self.actor), ("critic", self.critic)):
            adam: torch.optim.Adam = getattr(self, f"{name}_optimizer")
            for key, parameter in module.named_parameters():
                for moment in _ADAM:
                    state[f"{name}_optimizer.{key}.{moment}"] = adam.state[parameter][moment]
        if self.config.normalize_observations:
            known = self.normalizer.state_dict()
            state |= {f"normalizer.{name}": value for name, value in known.items()}
        state["updates"] = torch.tensor(self.updates)
        for name in _streams(self.layout):
            words = generator_state(getattr(self, name))
            state[f"generator.{name}"] = torch.from_numpy(words.view(np.int64))
        return {key: value.detach().clone() for key, value in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave. Checked whole before anything changes."""
        mine = self.state_dict()
        if mine.keys() != state.keys():
            names = ", ".join(sorted(mine.keys() ^ state.keys())[:3])
            raise BadInput(f"the state does not fit this agent: {names} ... missing or unexpected")
        for key, value in mine.items():
            if (value.shape, value.dtype) != (state[key].shape, state[key].dtype):
                found = f"{state[key].dtype} of shape {tuple(state[key].shape)}"
                wanted = f"{value.dtype} of shape {tuple(value.shape)}"
                raise BadInput(f"{key} is {found}; this agent expects {wanted}")
        streams = {name: _stream(state, name) for name in _streams(self.layout)}
        for name in ("actor", "critic", "actor_target", "critic_target"):
            prefix = f"{name}."
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            getattr(self, name).load_state_dict(own)
        for name, module in (("actor", self.actor), ("critic", self.critic)):
            adam: torch.optim.Adam = getattr(self, f"{name}_optimizer")
            for key, parameter in module.named_parameters():
                for moment in _ADAM:
                    adam.state[parameter][moment].copy_(state[f"{name}_optimizer.{key}.{moment}"])
        if self.config.normalize_observations:
            known = ("count", "mean", "squares")
            self.normalizer.load_state_dict({name: state[f"normalizer.{name}"] for name in known})
        self.updates = int(state["updates"])
        for name, stream in streams.items():
            setattr(self, name, stream)

    def _acts_with(self) -> list[Tensor]:
        encoder = self.critic.encoder.parameters() if self.layout.images else ()
        seen = self.normalizer
        return [*self.actor.parameters(), *encoder, seen.shift, seen.scale, seen.most]

    def weights(self) -> NDArray[Any]:
        """All that `select_action` computes with and learning changes, as one array."""
        parts = [part.detach().reshape(-1).to("cpu", self.dtype) for part in self._acts_with()]
        joined: NDArray[Any] = torch.cat(parts).numpy()
        return joined

    @torch.no_grad()
    def load_weights(self, weights: NDArray[Any]) -> None:
        """Act as the agent that `weights` is from."""
        parts = self._acts_with()
        given = torch.split(torch.from_numpy(weights.copy()), [part.numel() for part in parts])
        for part, values in zip(parts, given):
            part.copy_(values.view_as(part))

    def to_bytes(self) -> bytes:
        """The whole agent as a safetensors file."""
        about = {
            "layout": self.layout._asdict(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "dtype": str(self.dtype).removeprefix("torch."),
            "config": dataclasses.asdict(self.config),
        }
        tensors = {key: value.cpu() for key, value in self.state_dict().items()}
        return save(tensors, metadata={"t3d": json.dumps(about)})

    def save(self, path: str | Path) -> None:
        """Write the whole agent to one safetensors file; `load` needs nothing else."""
        try:
            files.replace(Path(path), self.to_bytes())
        except OSError as error:
            raise CannotWrite(f"agent {path} cannot be written: {error}") from error

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Self:
        """Read what `save` wrote, onto its own device or another. No code in the file can run."""
        try:
            header = files.header(Path(path).resolve())
            about: dict[str, Any] = json.loads(header.metadata["t3d"])
            config = Config.from_dict(about["config"])
            layout = Layout.from_json(about["layout"])
            _check_size(header.numbers, layout, len(about["low"]), config)
            state = load_file(path)
            config = dataclasses.replace(config, device=device or config.device)
            dtype = {"float32": torch.float32, "float64": torch.float64}[about["dtype"]]
            agent = cls(layout, about["low"], about["high"], config, dtype=dtype)
        except (
            *(OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError),
            *(ArithmeticError, AttributeError, MemoryError, RuntimeError, T3DError),
        ) as error:
            raise BadInput(f"{path} is not a T3D agent: {error}") from error
        agent.load_state_dict(state)
        return agent


_ADAM = ("step", "exp_avg", "exp_avg_sq")


def _streams(layout: Layout) -> tuple[Purpose, ...]:
    """The random streams that an agent's next update depends on."""
    return ("sampling", "smoothing", "augmentation") if layout.images else ("sampling", "smoothing")


def _parts(layout: Layout, rows: Tensor) -> tuple[Tensor | None, Tensor]:
    """The images, all frames of them, and the vectors of states."""
    if not layout.images:
        return None, rows
    images = layout.frame_stack * layout.frame_size
    if not layout.vector:
        return rows, torch.empty((len(rows), 0), device=rows.device)
    # A copy: only that is sure to begin where a float may.
    vector = rows[:, images:].clone(memory_format=torch.contiguous_format)
    return rows[:, :images], vector.view(torch.float32)


def shifted(rows: Tensor, layout: Layout, moves: NDArray[np.int64]) -> Tensor:
    """States whose images are moved: (row, image, down and right). Edges are repeated."""
    moved = rows.numpy().copy()
    most = int(np.abs(moves).max())
    frames = moved[:, : layout.frame_stack * layout.frame_size]
    frames = frames.reshape(len(moved), layout.frame_stack, -1)
    start = 0
    for i, (channels, height, width) in enumerate(layout.images):
        part = frames[:, :, start : start + channels * height * width]
        start += channels * height * width
        images = part.reshape(len(moved), -1, height, width)
        wide = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)), mode="edge")
        for row, (down, right) in enumerate(moves[:, i]):
            y, x = most - down, most - right
            cut = wide[row, :, y : y + height, x : x + width]
            part[row] = cut.reshape(layout.frame_stack, -1)
    return torch.from_numpy(moved)


def _check_size(numbers: int, layout: Layout, action_dim: int, config: Config) -> None:
    """Refuse a file that asks for networks of another size than it holds, before any is made."""
    state_dim = layout.vector + len(layout.images) * config.features
    inputs, hidden = state_dim + action_dim, config.hidden
    networks = [(state_dim, *hidden, action_dim), (inputs, *hidden, 1), (inputs, *hidden, 1)]
    pairs = [pair for sizes in networks for pair in itertools.pairwise(sizes)]
    shapes = Encoder.shapes(layout, config.image_channels, config.features)
    weights = sum((ins + 1) * outs for ins, outs in pairs) + sum(map(math.prod, shapes))
    # Each parameter, its target, Adam's two moments of it; a count per array; and what is left.
    known = 2 * layout.vector + 1 if config.normalize_observations else 0
    arrays = 2 * len(pairs) + len(shapes)
    if numbers != 4 * weights + arrays + known + 1 + 6 * len(_streams(layout)):
        raise BadInput(f"it holds {numbers:,} numbers; its config asks for {4 * weights:,} or so")


def _stream(state: dict[str, Tensor], name: Purpose) -> np.random.Generator:
    """A random stream that goes on from a saved state."""
    stream = generator(0, name)
    try:
        words = state[f"generator.{name}"].cpu().numpy().view(np.uint64)
        set_generator_state(stream, words)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"generator.{name} is not the state of a random stream") from error
    return stream


def adam_state(module: nn.Module, counter_device: torch.device | str) -> dict[Tensor, Any]:
    """What Adam remembers of each parameter, with nothing learned yet.

    PyTorch makes this at the first step; made at the start, the state always has one shape.
    """
    return {
        parameter: {
            "step": torch.zeros((), device=counter_device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for parameter in module.parameters()
    }


def _descend(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    """One step of gradient descent on the optimiser's own parameters, and on no others.

    The actor's loss runs through the critic; asking for the actor's gradients alone leaves
    the critic's untouched and saves computing them.
    """
    parameters = optimizer.param_groups[0]["params"]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        parameter.grad = gradient
    optimizer.step()


@torch.no_grad()
def _polyak(target: nn.Module, model: nn.Module, tau: float) -> None:
    """target <- tau * model + (1 - tau) * target."""
    for old, new in zip(target.parameters(), model.parameters()):
        old.lerp_(new, tau)


def _bound(values: ArrayLike, dtype: torch.dtype) -> Tensor:
    """One side of the action range; its double is finite too, so the range's width is."""
    expected = f"action bound is {values!r}; expected one finite {dtype} number per dimension"
    try:
        bound = torch.tensor(np.asarray(values, np.float64)).to(dtype)
    except (TypeError, ValueError) as error:
        raise BadInput(expected) from error
    if bound.ndim != 1 or bound.numel() == 0 or not bool(torch.isfinite(2 * bound).all()):
        raise BadInput(expected)
    return bound


def usable_device(name: str) -> torch.device:
    """A device of PyTorch, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise BadInput(f"device {name!r} cannot be used: {reason}; cpu always can") from error
    return device
