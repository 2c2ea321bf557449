"""Where everything is: the parts of a job, and the place of every layer in its arrays.

A panel holds sixteen transitions, one per lane; its rows are, from the top:

    state | action | next state | next action | target | units and gradients, layer by layer

docs/fused.md has a picture.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from t3d.base.numbers import Array
from t3d.config import Config
from t3d.learn.fused.vectors import LANES

# Columns of `Scratch.measures`.
TWIN1_LOSS, TWIN2_LOSS, ACTOR_LOSS, MEAN_Q = range(4)

# `layer.activation`: what follows a layer. AVG_L1 divides its outputs by their mean absolute value.
LINEAR, RELU, ELU, TANH, AVG_L1 = range(5)
_ACTIVATIONS = {"relu": RELU, "elu": ELU, "tanh": TANH}

# One layer of a network, as `layer.ins` and so on. It is a row of an array, and not a tuple, so
# that networks of any depth run the same compiled code.
LAYER = np.dtype(
    [
        ("ins", np.int64),  # its size
        ("outs", np.int64),
        ("width", np.int64),  # inputs, padded to whole vectors
        ("weight", np.int64),  # where in `Weights` its weights begin, row by row
        ("bias", np.int64),
        ("gradient", np.int64),  # where in `Scratch.gradients` those of its weights begin
        ("bias_gradient", np.int64),
        ("unit", np.int64),  # which row of a panel is its first output
        ("grad", np.int64),  # and which the gradient of the loss by that output
        ("transposed", np.int64),  # where in `Scratch.transposed` its inputs begin; or -1
        ("square", np.int64),  # where in `Scratch.squares` its rows begin
        ("activation", np.int64),
        ("norm", np.int64),  # where in `Weights` its LayerNorm begins: gains, biases; or -1
        # which row of a panel its LayerNorm begins with (see steps.py); with AVG_L1, the divisor
        ("normed", np.int64),
    ]
)

# Which update it is, as `schedule[0].critic_step` and so on. It may differ from the last one's.
SCHEDULE = np.dtype(
    [
        ("critic_step", np.int64),  # Adam's steps, this one included
        ("actor_step", np.int64),
        ("actor_due", np.int64),  # whether this update has steps 13 to 15
        ("critic_rate", np.float64),  # the learning rates
        ("actor_rate", np.float64),
        ("encoder_rate", np.float64),  # of td7 alone
        ("target_step", np.float64),  # how far targets move, if they do
    ]
)


class Networks(NamedTuple):
    """The layers of each network, from its inputs to its outputs."""

    actor: Array
    twin1: Array
    twin2: Array


class Sections(NamedTuple):
    """Which row of a panel each section begins with. The critic sees state and action as one."""

    state: int
    action: int
    next_state: int
    next_action: int
    target: int  # one row: the Bellman target
    layers: int  # units and gradients


class Sizes(NamedTuple):
    """The sizes of the arrays."""

    panel: int  # rows of a panel
    gradients: int  # numbers in the array of gradients
    transposed: int  # numbers in the array of transposed inputs
    outputs: int  # of all layers


class Plan(NamedTuple):
    """The place of everything, and the sizes of the arrays."""

    networks: Networks
    sections: Sections
    sizes: Sizes


class Memory(NamedTuple):
    """The arrays of a replay memory."""

    observation: Array  # (places, state_dim)
    next_at: Array  # (capacity,): where in `observation` the next state of each row is
    action: Array
    reward: Array
    done: Array


class Draw(NamedTuple):
    """The transitions of one update, and its randomness."""

    from_memory: Array  # (1,): 1 if only `rows` is filled; 0 if `ends` to `discounts` are, too
    rows: Array  # (batch,): rows of the memory, and of their states
    steps: Array  # (batch,): how many steps each transition takes together
    ends: Array  # (batch,): where the next states are
    rewards: Array  # (batch,): summed over n steps, and scaled
    discounts: Array  # (batch,): of the next states' values; 0 where an episode terminated
    noise: Array  # (batch, action_dim): standard normal, for step 6
    td_errors: Array  # (2, batch): how far each twin was from the target, absolute


class Bounds(NamedTuple):
    """The action range, per dimension."""

    low: Array
    high: Array
    middle: Array
    max_action: Array


class Scaling(NamedTuple):
    """How states are normalised, per dimension: (state - shift) * scale, cut off at the limit."""

    shift: Array
    scale: Array
    limit: Array


class Weights(NamedTuple):
    """Actor and twins, flat: layer by layer, weights row by row, then biases."""

    parameters: Array
    targets: Array
    exp_avg: Array  # Adam's running means of each gradient, and of its square
    exp_avg_sq: Array


class Scratch(NamedTuple):
    """Room to compute in."""

    panels: Array  # (panels, rows, lanes)
    transposed: Array  # inputs of layers with units and lanes swapped, for the weights' gradients
    gradients: Array  # of each parameter, flat; rows are padded to whole vectors
    squares: Array  # with gradient_clip: of the gradients of each output's parameters, summed
    measures: Array  # (panels, 4): the part of each panel in the losses, and in the mean of Q1
    totals: Array  # (4,): the sums of these; td7 has seven of both


class Knobs(NamedTuple):
    """The knobs of an update, as in `Config`."""

    discounts: Array  # (n_step + 1,): powers of the discount
    reward_scale: float
    policy_noise: float
    noise_clip: float
    gradient_clip: float
    weight_decay: float
    huber: bool


class Places:
    """Gives out places, one after the other: rows of a panel, and parts of the flat arrays."""

    def __init__(self, first_row: int, panels: int) -> None:
        self.row = first_row
        self.panels = panels
        self.weight = self.gradient = self.square = self.transposed = 0
        self._most_transposed = 0

    def network(
        self, sizes: Sequence[int], activations: Sequence[int], *, norm: bool = False
    ) -> NDArray[np.void]:
        """The layers of a network of these sizes, each but the last with a LayerNorm if `norm`."""
        layers = [
            self.layer(ins, outs, activation, norm=norm and activation != LINEAR)
            for (ins, outs), activation in zip(itertools.pairwise(sizes), activations)
        ]
        return np.array(layers, LAYER)

    def layer(
        self,
        ins: int,
        outs: int,
        activation: int,
        *,
        norm: bool = False,
        beside: int = 0,
        transposed: bool | None = None,
    ) -> tuple[int, ...]:
        """One layer. `beside` rows after its outputs belong to the inputs of the next.

        Inputs of a layer with one output need not be transposed, if they stay where they are.
        """
        width = math.ceil(ins / LANES) * LANES
        weight, bias = self.weight, self.weight + ins * outs
        gradient, bias_gradient = self.gradient, self.gradient + width * outs
        unit, grad = self.row, self.row + outs + beside
        self.weight, self.gradient, self.row = bias + outs, bias_gradient + outs, grad + outs
        norm_at, normed = (self.weight if norm else -1), self.row
        if norm:
            self.weight += 2 * outs
            self.gradient += 2 * outs
            self.row += 2 * outs + 1
        elif activation == AVG_L1:
            self.row += 1
        swapped, square = -1, self.square
        if outs > 1 if transposed is None else transposed:
            swapped = self.transposed
            self.transposed += width * self.panels * LANES
            self._most_transposed = max(self._most_transposed, self.transposed)
        self.square += outs
        places = weight, bias, gradient, bias_gradient, unit, grad, swapped, square
        return (ins, outs, width, *places, activation, norm_at, normed)

    def forget_transposed(self) -> None:
        """The transposed inputs so far are not needed any more when the next network learns."""
        self.transposed = 0

    def sizes(self) -> Sizes:
        """The sizes of the arrays that all layers need together."""
        # A layer's inputs are transposed sixteen rows at a time, which may reach beyond the last.
        return Sizes(self.row + LANES, self.gradient, self._most_transposed, self.square)


def lay_out(state_dim: int, action_dim: int, config: Config, panels: int) -> Plan:
    """Give every layer of the three networks its places, for a batch of some panels."""
    starts = itertools.accumulate((0, state_dim, action_dim, state_dim, action_dim, 1))
    sections = Sections(*starts)
    places = Places(sections.layers, panels)
    activation, norm = _ACTIVATIONS[config.activation], config.layer_norm

    def network(inputs: int, hidden: tuple[int, ...], outputs: int, norm: bool) -> Array:
        activations = [activation] * len(hidden)
        return places.network((inputs, *hidden, outputs), [*activations, LINEAR], norm=norm)

    hidden = config.hidden_layers
    actor = network(state_dim, hidden["actor"], action_dim, norm == "both")
    places.forget_transposed()
    inputs = state_dim + action_dim
    twins = [network(inputs, hidden["critic"], 1, norm != "none") for _ in range(2)]
    return Plan(Networks(actor, *twins), sections, places.sizes())


def new_draw(rows: int, action_dim: int, kind: np.dtype[Any], noise: np.dtype[Any]) -> Draw:
    """Room for a batch of so many rows."""
    return Draw(
        from_memory=np.zeros(1, np.int64),
        rows=np.zeros(rows, np.int64),
        steps=np.zeros(rows, np.int64),
        ends=np.zeros(rows, np.int64),
        rewards=np.zeros(rows, kind),
        discounts=np.zeros(rows, kind),
        noise=np.zeros((rows, action_dim), noise),
        td_errors=np.zeros((2, rows), kind),
    )


def new_scratch(sizes: Sizes, panels: int, kind: np.dtype[Any], measures: int = 4) -> Scratch:
    """Room to compute in. Empty lanes stay 0 from here on."""
    return Scratch(
        panels=np.zeros((panels, sizes.panel, LANES), kind),
        transposed=np.zeros(sizes.transposed, kind),
        gradients=np.zeros(sizes.gradients, kind),
        squares=np.zeros(sizes.outputs, kind),
        measures=np.zeros((panels, measures), kind),
        totals=np.zeros(measures, kind),
    )


def knobs_of(config: Config, kind: np.dtype[Any], *, huber: bool) -> Knobs:
    """The knobs of an update."""
    return Knobs(
        discounts=(config.discount ** np.arange(config.n_step + 1)).astype(kind),
        reward_scale=config.reward_scale,
        policy_noise=config.policy_noise,
        noise_clip=config.noise_clip,
        gradient_clip=config.gradient_clip,
        weight_decay=config.weight_decay,
        huber=huber,
    )
