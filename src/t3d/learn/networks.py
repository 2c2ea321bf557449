"""Steps 2 and 3: the actor and the twin critics."""

import itertools
import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from t3d.base.observation import Image, Layout


def mlp(
    sizes: tuple[int, ...], generator: np.random.Generator, dtype: torch.dtype
) -> nn.Sequential:
    """Linear layers with a ReLU between each two: `sizes` runs from the input to the output.

    Weights and biases start uniform in +-1/sqrt(inputs), PyTorch's own start for a linear
    layer, but drawn from the generator given and not from the global one.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        linear = nn.Linear(inputs, outputs, device="meta")  # draws nothing
        _draw(linear, (outputs, inputs), generator, dtype)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Encoder(nn.Module):
    """Before steps 2 and 3, where states have images: what is to be seen, in a few numbers.

    Convolutions of 3 x 3 halve each image until it is small; a linear layer, a normalisation
    and a tanh make it `features` numbers. It belongs to the critic and learns from the critic's
    loss alone.
    """

    SMALL = 7  # pixels

    def __init__(
        self,
        layout: Layout,
        channels: int,
        features: int,
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build one tower of layers for each image."""
        super().__init__()
        self.layout = layout
        self.towers = nn.ModuleList()
        for image in layout.images:
            layers: list[nn.Module] = []
            convolutions, left = self.plan(image, layout.frame_stack, channels)
            for ins, outs in convolutions:
                layers += [nn.Conv2d(ins, outs, 3, stride=2, device="meta"), nn.ReLU()]
                _draw(layers[-2], (outs, ins, 3, 3), generator, dtype)
            layers += [nn.Flatten(), nn.Linear(left, features, device="meta")]
            _draw(layers[-1], (features, left), generator, dtype)
            layers += [nn.LayerNorm(features, dtype=dtype), nn.Tanh()]
            self.towers.append(nn.Sequential(*layers))

    @classmethod
    def plan(
        cls, image: Image, frame_stack: int, channels: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Channels in and out of each convolution, and how many numbers the last one leaves."""
        ins, height, width = image.channels * frame_stack, image.height, image.width
        convolutions = []
        while min(height, width) > cls.SMALL:
            convolutions.append((ins, channels))
            ins, height, width = channels, (height - 1) // 2, (width - 1) // 2
        return convolutions, ins * height * width

    @classmethod
    def shapes(cls, layout: Layout, channels: int, features: int) -> list[tuple[int, ...]]:
        """The shapes of all of its parameters."""
        found: list[tuple[int, ...]] = []
        for image in layout.images:
            convolutions, left = cls.plan(image, layout.frame_stack, channels)
            for ins, outs in convolutions:
                found += [(outs, ins, 3, 3), (outs,)]
            found += [(features, left), (features,), (features,), (features,)]
        return found

    def forward(self, rows: Tensor) -> Tensor:
        """(batch, bytes of the stacked images) -> (batch, features of all images)."""
        frames = rows.reshape(len(rows), self.layout.frame_stack, -1)
        seen, start = [], 0
        for image, tower in zip(self.layout.images, self.towers):
            end = start + math.prod(image)
            pixels = frames[:, :, start:end].reshape(len(rows), -1, image.height, image.width)
            kind = next(tower.parameters()).dtype
            # From bytes to numbers in the order that convolutions like, in one pass.
            numbers = pixels.to(kind, memory_format=torch.channels_last)
            seen.append(tower(numbers.div_(255).sub_(0.5)))
            start = end
        return torch.cat(seen, dim=1)


def _draw(
    layer: nn.Module, shape: tuple[int, ...], generator: np.random.Generator, dtype: torch.dtype
) -> None:
    """Start a layer's weights and biases uniform in +-1/sqrt(inputs)."""
    bound = 1 / math.sqrt(math.prod(shape[1:]))
    for name, size in (("weight", shape), ("bias", shape[:1])):
        drawn = torch.from_numpy(generator.uniform(-bound, bound, size)).to(dtype)
        setattr(layer, name, nn.Parameter(drawn))


class _Bounds(nn.Module):
    """The action range: its middle and its half-width per dimension, so it may be lopsided."""

    middle: Tensor
    max_action: Tensor

    def __init__(self, low: ArrayLike, high: ArrayLike, dtype: torch.dtype) -> None:
        super().__init__()
        lowest, highest = (torch.tensor(np.asarray(bound, np.float64)) for bound in (low, high))
        # Not part of the weights: the agent saves its range once, not once per network.
        self.register_buffer("middle", ((highest + lowest) / 2).to(dtype), persistent=False)
        self.register_buffer("max_action", ((highest - lowest) / 2).to(dtype), persistent=False)


class Actor(_Bounds):
    """Step 2: the policy. State in, action out, squashed into the action range.

    One class serves two objects: the model that learns, and the target that follows it.
    """

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: tuple[int, ...],
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the network for actions between `low` and `high`."""
        super().__init__(low, high, dtype)
        self.layers = mlp((state_dim, *hidden, len(self.middle)), generator, dtype)

    def forward(self, state: Tensor) -> Tensor:
        """(batch, state_dim) -> (batch, action_dim), in the environment's units."""
        squashed = torch.tanh(self.layers(state))
        return self.middle + self.max_action * squashed


class Critic(_Bounds):
    """Step 3: the twins. Each estimates the return of an action in a state.

    The paper feeds actions as they come. We first bring them to -1..1, so that the critic
    sees the same numbers whatever units the environment uses.
    """

    encoder: Encoder  # where states have images

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: tuple[int, ...],
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build both twins; they start from different weights."""
        super().__init__(low, high, dtype)
        sizes = (state_dim + len(self.middle), *hidden, 1)
        self.twin1 = mlp(sizes, generator, dtype)
        self.twin2 = mlp(sizes, generator, dtype)

    def _inputs(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.cat([state, (action - self.middle) / self.max_action], dim=1)

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, state_dim), (batch, action_dim) -> Q1 and Q2, each (batch,)."""
        inputs = self._inputs(state, action)
        return self.twin1(inputs).squeeze(1), self.twin2(inputs).squeeze(1)

    def Q1(self, state: Tensor, action: Tensor) -> Tensor:
        """The first twin alone, which is all that the actor learns from."""
        values: Tensor = self.twin1(self._inputs(state, action))
        return values.squeeze(1)
