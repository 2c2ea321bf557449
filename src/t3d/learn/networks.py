"""Steps 2 and 3: the actor and the twin critics."""

import itertools
import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn


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
        bound = 1 / math.sqrt(inputs)
        for name, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            drawn = torch.from_numpy(generator.uniform(-bound, bound, shape)).to(dtype)
            setattr(linear, name, nn.Parameter(drawn))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


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
