"""A network body of your own: layers with skip connections.

    python examples/own_body.py
    cd examples && t3d train Pendulum-v1 --body own_body:residual

A body takes the layer sizes from input to output, the random stream for the initial weights, and
the precision; it returns a module. The actor and both critics are built with it.
"""

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import t3d
from t3d.learn.networks import linear


class Residual(nn.Module):
    """One hidden layer, with a skip connection where input and output have the same size."""

    def __init__(self, layer: nn.Linear) -> None:
        """Wrap a layer."""
        super().__init__()
        self.layer = layer

    def forward(self, inputs: Tensor) -> Tensor:
        """ReLU of the layer, plus the input."""
        outputs = torch.relu(self.layer(inputs))
        return outputs + inputs if outputs.shape == inputs.shape else outputs


def residual(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    """Hidden layers with skip connections, and a linear layer at the end."""
    # `linear` draws the initial weights from the run's stream, so that the seed decides them.
    hidden = [Residual(linear(*pair, stream, dtype)) for pair in itertools.pairwise(sizes[:-1])]
    return nn.Sequential(*hidden, linear(sizes[-2], sizes[-1], stream, dtype))


def main(**knobs: Any) -> t3d.Agent:
    """Train on Pendulum-v1; `knobs` are those of `t3d train`."""
    agent = t3d.train("Pendulum-v1", body=residual, **knobs)
    print(agent.actor)
    return agent


if __name__ == "__main__":
    main()
