"""TD7's networks: SALE, state-action learned embeddings, and an actor and critics that use them.

The encoder learns an embedding `zs` of a state, and from it and an action the embedding `zsa`,
which predicts the `zs` of the next state. The names are the paper's; td7.py has the algorithm.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from t3d.learn.networks import Bounded, linear, mlp

Sizes = tuple[int, ...]


def avg_l1_norm(x: Tensor) -> Tensor:
    """Each row divided by the mean of its absolute values: whatever it was, its scale is 1."""
    return x / x.abs().mean(dim=-1, keepdim=True).clamp(min=1e-8)


class Encoder(Bounded):
    """f embeds a state; g embeds the action with it, to predict the embedding of what follows."""

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: Sizes,
        embedding: int,
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build both networks for embeddings of one size."""
        super().__init__(low, high, dtype)
        inputs = embedding + len(self.middle)
        self.f = mlp((state_dim, *hidden, embedding), generator, dtype, "elu")
        self.g = mlp((inputs, *hidden, embedding), generator, dtype, "elu")

    def zs(self, state: Tensor) -> Tensor:
        """(batch, state_dim) -> (batch, embedding), of scale 1."""
        return avg_l1_norm(self.f(state))

    def zsa(self, zs: Tensor, action: Tensor) -> Tensor:
        """(batch, embedding), (batch, action_dim) -> (batch, embedding)."""
        embedded: Tensor = self.g(torch.cat([zs, self.scaled(action)], dim=1))
        return embedded


class Mixer(nn.Module):
    """A layer for what is known, brought to scale 1 to stand beside embeddings, then an MLP."""

    def __init__(
        self,
        inputs: int,
        embeddings: int,
        hidden: Sizes,
        outputs: int,
        activation: str,
        generator: np.random.Generator,
        dtype: torch.dtype,
    ) -> None:
        """Build the layers; `embeddings` is the size of all embeddings together."""
        super().__init__()
        self.first = linear(inputs, hidden[0], generator, dtype)
        sizes = (hidden[0] + embeddings, *hidden, outputs)
        self.layers = mlp(sizes, generator, dtype, activation)

    def forward(self, known: Tensor, *embeddings: Tensor) -> Tensor:
        """(batch, inputs) and embeddings -> (batch, outputs)."""
        out: Tensor = self.layers(torch.cat([avg_l1_norm(self.first(known)), *embeddings], dim=1))
        return out


class Actor(Bounded):
    """The policy: a state and its embedding in, action out."""

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: Sizes,
        embedding: int,
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the network for actions between `low` and `high`."""
        super().__init__(low, high, dtype)
        outputs = len(self.middle)
        self.mixer = Mixer(state_dim, embedding, hidden, outputs, "relu", generator, dtype)

    def forward(self, state: Tensor, zs: Tensor) -> Tensor:
        """(batch, state_dim), (batch, embedding) -> (batch, action_dim), in their own units."""
        squashed = torch.tanh(self.mixer(state, zs))
        return self.middle + self.max_action * squashed


class Critic(Bounded):
    """The twins: state, action and the embeddings of both in, value out."""

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: Sizes,
        embedding: int,
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build both twins; they start from different weights."""
        super().__init__(low, high, dtype)
        sizes = state_dim + len(self.middle), 2 * embedding, hidden, 1, "elu"
        self.twin1 = Mixer(*sizes, generator, dtype)
        self.twin2 = Mixer(*sizes, generator, dtype)

    def forward(
        self, state: Tensor, action: Tensor, zsa: Tensor, zs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The two values of each row, each (batch,)."""
        known = torch.cat([state, self.scaled(action)], dim=1)
        Q1, Q2 = (twin(known, zsa, zs) for twin in (self.twin1, self.twin2))
        return Q1.squeeze(1), Q2.squeeze(1)


class ValueRange(nn.Module):
    """The least and the largest target that the critics have learned from: see td7.py, step 8."""

    seen: Tensor  # (2,): of all updates
    limits: Tensor  # (2,): as they were when the target networks were copied last

    def __init__(self, dtype: torch.dtype) -> None:
        """Nothing is seen yet; until the first copy, targets have no next value."""
        super().__init__()
        largest = torch.finfo(dtype).max
        self.register_buffer("seen", torch.tensor([largest, -largest], dtype=dtype))
        self.register_buffer("limits", torch.zeros(2, dtype=dtype))

    def clip(self, values: Tensor) -> Tensor:
        """Values, no smaller and no larger than the limits."""
        return values.clamp(self.limits[0], self.limits[1])

    def see(self, targets: Tensor) -> None:
        """Remember the least and the largest of these targets."""
        least, largest = torch.aminmax(targets)
        self.seen[0] = torch.minimum(self.seen[0], least)
        self.seen[1] = torch.maximum(self.seen[1], largest)

    def move(self) -> None:
        """From now on, clip to what was seen so far."""
        self.limits.copy_(self.seen)
