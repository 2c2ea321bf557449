"""What the networks see: vectors normalised, images shifted and encoded, rewards scaled."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from t3d.base.errors import BadInput
from t3d.base.numbers import Array, all_finite
from t3d.base.observation import Layout
from t3d.base.randomness import generator
from t3d.config import Config
from t3d.learn.encoder import Encoder
from t3d.learn.networks import Critic
from t3d.learn.normalize import Normalizer
from t3d.learn.replay.sampling import Transitions


class Batch(NamedTuple):
    """Transitions as the networks see them: row i of every field belongs to the same step.

    The memory gives the same fields as they were stored: `Perception.perceive` is between.
    """

    state: Tensor  # (batch, state_dim): normalised, images as features
    next_state: Tensor  # (batch, state_dim), `steps` later
    action: Tensor  # (batch, action_dim), in the environment's units
    reward: Tensor  # (batch,): scaled, discounted, and summed over `steps`
    done: Tensor  # (batch,): 1 where the episode terminated, 0 elsewhere, a time limit included
    steps: Tensor  # (batch,): 1, or with n-step returns as many as there were, up to n


class Perception:
    """Turns stored states into the inputs of networks.

    A plain vector passes as it is, unless `normalize_observations` is on.
    """

    def __init__(
        self, layout: Layout, config: Config, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.layout, self.config, self.device, self.dtype = layout, config, device, dtype
        self.size = layout.vector + len(layout.images) * config.features
        self.normalizer = Normalizer(layout.vector, dtype)
        self.augmentation = generator(config.seed, "augmentation")

    def attach_encoder(self, critic: Critic, weights: np.random.Generator) -> None:
        """Give the critic an encoder, if states have images. The actor uses its features."""
        if self.layout.images:
            sizes = self.config.image_channels, self.config.features
            critic.encoder = Encoder(self.layout, *sizes, weights, self.dtype).to(self.device)

    def checked(self, state: ArrayLike) -> Array:
        """A state or a batch of states as an array of the right type and shape, or an error."""
        size, images = self.layout.size, bool(self.layout.images)
        try:
            states = np.asarray(state) if images else np.asarray(state, np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"state is a {type(state).__name__}; expected numbers") from error
        fits = states.shape[-1:] == (size,) and states.ndim in (1, 2)
        if not fits or states.dtype != self.layout.dtype:
            rows = "rows of bytes, as t3d.make_env shows them: " if images else ""
            raise BadInput(f"state has shape {states.shape}; expected {rows}({size},) or a batch")
        if not images and not all_finite(states):
            place = tuple(np.argwhere(~np.isfinite(states))[0].tolist())
            index = ", ".join(map(str, place))
            raise BadInput(f"state[{index}] is {states[place]}; expected finite numbers")
        return states

    def encode(self, rows: Tensor, critic: Critic) -> Tensor:
        """Stored states as inputs; images go through the encoder of this critic."""
        images, vector = split(self.layout, rows)
        inputs = self.normalizer(vector.to(self.dtype))
        return inputs if images is None else torch.cat([critic.encoder(images), inputs], dim=1)

    def perceive(self, stored: Transitions, critic: Critic, critic_target: Critic) -> Batch:
        """A stored batch as the networks see it; next states go through the target's encoder."""
        with torch.no_grad():
            next_state = self.encode(stored.next_state, critic_target)
        state = self.encode(stored.state, critic)
        reward = stored.reward * self.config.reward_scale
        return Batch(state, next_state, stored.action, reward, stored.done, stored.steps)

    def observe(self, states: Array) -> None:
        """Update the statistics that states are normalised by."""
        if self.config.normalize_observations:
            self.normalizer.update(split(self.layout, torch.from_numpy(states))[1].numpy())

    def augment(self, stored: Transitions) -> Transitions:
        """Shift each image by a few pixels at random, against overfitting to positions.

        Kostrikov, Yarats and Fergus, 2020.
        """
        limit, images = self.config.image_shift, len(self.layout.images)
        if not (images and limit):
            return stored
        shape = (2, len(stored.reward), images, 2)
        shifts = self.augmentation.integers(-limit, limit + 1, shape)
        return stored._replace(
            state=shifted(stored.state, self.layout, shifts[0]),
            next_state=shifted(stored.next_state, self.layout, shifts[1]),
        )


def split(layout: Layout, rows: Tensor) -> tuple[Tensor | None, Tensor]:
    """The images of states (None if there are none), all frames of them, and the vectors."""
    if not layout.images:
        return None, rows
    images = layout.frame_stack * layout.frame_size
    if not layout.vector:
        return rows, torch.empty((len(rows), 0), device=rows.device)
    # Only a copy is sure to be aligned for floats.
    vector = rows[:, images:].clone(memory_format=torch.contiguous_format)
    return rows[:, :images], vector.view(torch.float32)


def shifted(rows: Tensor, layout: Layout, shifts: NDArray[np.int64]) -> Tensor:
    """States with their images moved by (row, image, down and right); edges are repeated."""
    moved = rows.numpy().copy()
    limit = int(np.abs(shifts).max())
    frames = moved[:, : layout.frame_stack * layout.frame_size]
    frames = frames.reshape(len(moved), layout.frame_stack, -1)
    start = 0
    for i, (channels, height, width) in enumerate(layout.images):
        part = frames[:, :, start : start + channels * height * width]
        start += channels * height * width
        images = part.reshape(len(moved), -1, height, width)
        wide = np.pad(images, ((0, 0), (0, 0), (limit, limit), (limit, limit)), mode="edge")
        for row, (down, right) in enumerate(shifts[:, i]):
            y, x = limit - down, limit - right
            crop = wide[row, :, y : y + height, x : x + width]
            part[row] = crop.reshape(layout.frame_stack, -1)
    return torch.from_numpy(moved)
