"""Steps 2 and 3: the actor and the twin critics."""

import copy
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from t3d.base.errors import BadInput
from t3d.base.imports import import_callable, name_of
from t3d.base.text import blame, did_you_mean
from t3d.config import Config

# The body of a network: (sizes from the input to the output, random stream, precision) -> module.
Body: TypeAlias = Callable[[tuple[int, ...], np.random.Generator, torch.dtype], nn.Module]
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}


def mlp(
    sizes: tuple[int, ...],
    stream: np.random.Generator,
    dtype: torch.dtype,
    activation: str = "relu",
    norm: bool = False,
) -> nn.Sequential:
    """Linear layers with activations in between, each after a LayerNorm if `norm`."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers.append(linear(inputs, outputs, stream, dtype))
        if norm:
            layers.append(nn.LayerNorm(outputs, dtype=dtype))
        layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers, linear(sizes[-2], sizes[-1], stream, dtype))


def layer_norm(
    sizes: tuple[int, ...],
    stream: np.random.Generator,
    dtype: torch.dtype,
    activation: str = "relu",
) -> nn.Sequential:
    """Like `mlp`, with a LayerNorm between each hidden layer and its activation."""
    return mlp(sizes, stream, dtype, activation, norm=True)


BODIES: dict[str, Body] = {"mlp": mlp, "layer_norm": layer_norm}
_bodies = dict(BODIES)  # the user's own are added when they are first used


def find_body(name: str, *, importing: bool = True) -> Body:
    """The body that the knob `body` names: mlp, layer_norm, or module:callable.

    With `importing=False` nothing is imported: a name in a file cannot run code.
    """
    if name in _bodies:
        return _bodies[name]
    if ":" not in name:
        hint = did_you_mean(name, BODIES) or "; your own goes as module:callable"
        raise BadInput(f"no network body is called {name!r}{hint}")
    if not importing:
        advice = f"pass it as body, or call t3d.learn.networks.find_body({name!r}) first"
        raise BadInput(f"network body {name!r} is not imported, and no file may do that; {advice}")
    return _bodies.setdefault(name, import_callable(name, "network body", "body"))


def body_of(config: Config, network: Literal["actor", "critic"]) -> Body:
    """The body of one of the networks, with the activations and norms of the config."""
    body = find_body(config.body)
    if config.body == "layer_norm" and config.layer_norm == "critic":
        raise BadInput(
            "body layer_norm puts a norm into every network; use --layer-norm critic alone"
        )
    if config.body in BODIES:
        normed = config.body == "layer_norm" or config.layer_norm in (network, "both")
        return partial(mlp, activation=config.activation, norm=normed)
    for knob, plain in (("activation", "relu"), ("layer_norm", "none")):
        if (value := getattr(config, knob)) != plain:
            what = f"{knob} is {value}, but the body {config.body} makes its layers itself"
            raise BadInput(f"{what}; leave {knob} at {plain}")
    return body


def body_name(body: str | Body) -> str:
    """The name of a body, for a config; a callable is registered so that `find_body` finds it."""
    if isinstance(body, str):
        return body
    if not callable(body):
        raise BadInput(f"body is a {type(body).__name__}; expected a name or a callable")
    name = name_of(body)
    _bodies[name] = body
    return name


def make_layers(
    body: Body, sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype
) -> nn.Module:
    """The module of a body. One of the user's own is tried with one row and with two."""
    layers = body(sizes, stream, dtype)
    ours = getattr(body, "func", body) in BODIES.values()
    if ours or torch.get_default_device().type == "meta":
        return layers
    name, expected = name_of(body), f"expected {sizes[-1]} per row, of {dtype}"
    if not isinstance(layers, nn.Module):
        raise BadInput(f"network body {name} returned a {type(layers).__name__}, no nn.Module")
    for rows in (1, 2):
        try:  # with a copy: a forward pass may change what a module remembers
            probe = copy.deepcopy(layers).to("cpu")
            outputs = probe(torch.zeros((rows, sizes[0]), dtype=dtype))
        except Exception as error:
            what = f"cannot compute {rows} x {sizes[0]} numbers of {dtype}"
            raise BadInput(f"network body {name} {what}: {blame(error)}") from error
        shape, kind = getattr(outputs, "shape", None), getattr(outputs, "dtype", None)
        if (shape, kind) != ((rows, sizes[-1]), dtype):
            made = f"makes {kind} of shape {tuple(shape or ())} from {rows} x {sizes[0]} numbers"
            raise BadInput(f"network body {name} {made}; {expected}")
    return layers


def linear(inputs: int, outputs: int, stream: np.random.Generator, dtype: torch.dtype) -> nn.Linear:
    """A linear layer, initialised as PyTorch does by default but from a stream of the run."""
    return draw(nn.Linear(inputs, outputs, device="meta", dtype=dtype), stream)


def draw(layer: Layer, stream: np.random.Generator) -> Layer:
    """Draw a layer's initial weights and biases uniformly from ±1/sqrt(inputs)."""
    if torch.get_default_device().type == "meta":  # a skeleton: shapes without numbers
        return layer
    bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
    for name, parameter in list(layer.named_parameters()):
        values = torch.from_numpy(stream.uniform(-bound, bound, parameter.shape))
        setattr(layer, name, nn.Parameter(values.to(parameter.dtype)))
    return layer


class Bounded(nn.Module):
    """A network that knows the middle and the half-width of each action dimension's range."""

    middle: Tensor
    max_action: Tensor

    def __init__(self, low: ArrayLike, high: ArrayLike, dtype: torch.dtype) -> None:
        super().__init__()
        lowest, highest = (np.asarray(bound, np.float64) for bound in (low, high))
        # Summed by NumPy: in a skeleton, PyTorch's sum would load its compiler, for a second.
        # Not part of the weights: the agent saves its range once, not once per network.
        for name, values in (("middle", highest + lowest), ("max_action", highest - lowest)):
            self.register_buffer(name, torch.tensor(values / 2).to(dtype), persistent=False)

    def scaled(self, action: Tensor) -> Tensor:
        """Actions in the environment's units, as -1 to 1."""
        return (action - self.middle) / self.max_action


class Actor(Bounded):
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
        body: Body = mlp,
    ) -> None:
        """Build the network for actions between `low` and `high`."""
        super().__init__(low, high, dtype)
        self.layers = make_layers(body, (state_dim, *hidden, len(self.middle)), generator, dtype)

    def forward(self, state: Tensor) -> Tensor:
        """(batch, state_dim) -> (batch, action_dim), in the environment's units."""
        squashed = torch.tanh(self.layers(state))
        return self.middle + self.max_action * squashed


class Critic(Bounded):
    """Step 3: the twins. Each estimates the return of an action in a state.

    The paper's code feeds actions as they are. We scale them to -1..1 first, so that the critic
    sees the same numbers whatever units the environment uses.
    """

    encoder: nn.Module  # for images only: see perception.py

    def __init__(
        self,
        state_dim: int,
        low: ArrayLike,
        high: ArrayLike,
        hidden: tuple[int, ...],
        generator: np.random.Generator,
        dtype: torch.dtype = torch.float32,
        body: Body = mlp,
    ) -> None:
        """Build both twins; they start from different weights."""
        super().__init__(low, high, dtype)
        sizes = (state_dim + len(self.middle), *hidden, 1)
        self.twin1 = make_layers(body, sizes, generator, dtype)
        self.twin2 = make_layers(body, sizes, generator, dtype)

    def _inputs(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.cat([state, self.scaled(action)], dim=1)

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, state_dim), (batch, action_dim) -> Q1 and Q2, each (batch,)."""
        inputs = self._inputs(state, action)
        return self.twin1(inputs).squeeze(1), self.twin2(inputs).squeeze(1)

    def Q1(self, state: Tensor, action: Tensor) -> Tensor:
        """The first twin alone, which is all that the actor learns from."""
        values: Tensor = self.twin1(self._inputs(state, action))
        return values.squeeze(1)
