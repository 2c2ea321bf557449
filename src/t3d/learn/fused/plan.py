"""Where everything is: the parts of a job, and the place of every layer in its arrays.

A panel holds sixteen transitions, one per lane; its rows are, from the top:

    state | action | next state | next action | target | units and gradients, layer by layer

docs/fused.md has a picture.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from t3d.base.numbers import Array
from t3d.config import Config
from t3d.learn.fused.vectors import LANES

# Columns of `Scratch.measures`.
TWIN1_LOSS, TWIN2_LOSS, ACTOR_LOSS, MEAN_Q = range(4)

# `layer.activation`: what follows a layer.
LINEAR, RELU, ELU, TANH = range(4)
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
        ("transposed", np.int64),  # where in `Scratch.transposed` its inputs begin
        ("square", np.int64),  # where in `Scratch.squares` its rows begin
        ("activation", np.int64),
        ("norm", np.int64),  # where in `Weights` its LayerNorm begins: gains, biases; or -1
        ("normed", np.int64),  # which row of a panel its LayerNorm begins with: see steps.py
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


class Plan(NamedTuple):
    """The place of everything, and the sizes of the arrays."""

    networks: Networks
    sections: Sections
    panel: int  # rows of a panel
    gradients: int  # numbers in the array of gradients
    transposed: int  # numbers in the array of transposed inputs
    outputs: int  # of all layers


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
    totals: Array  # (4,): the sums of these


class Knobs(NamedTuple):
    """The knobs of an update, as in `Config`."""

    discounts: Array  # (n_step + 1,): powers of the discount
    reward_scale: float
    tau: float
    policy_noise: float
    noise_clip: float
    gradient_clip: float
    weight_decay: float
    huber: bool


def lay_out(state_dim: int, action_dim: int, config: Config, panels: int) -> Plan:
    """Give every layer of the three networks its places, for a batch of some panels."""
    inputs = state_dim + action_dim
    starts = itertools.accumulate((0, state_dim, action_dim, state_dim, action_dim, 1))
    sections = Sections(*starts)
    hidden, norm = config.hidden_layers, config.layer_norm
    actor = (state_dim, *hidden["actor"], action_dim), norm == "both"
    critic = (inputs, *hidden["critic"], 1), norm != "none"
    networks: list[NDArray[np.void]] = []
    weight = gradient = transposed = square = 0
    unit, largest = sections.layers, 0
    for network, is_normed in (actor, critic, critic):
        if len(networks) == 1:  # the twins do not need theirs any more when the actor learns
            transposed = 0
        layers = np.zeros(len(network) - 1, LAYER)
        for i, (ins, outs) in enumerate(itertools.pairwise(network)):
            is_last = i == len(layers) - 1
            width = math.ceil(ins / LANES) * LANES
            bias, bias_gradient = weight + ins * outs, gradient + width * outs
            places = (weight, bias, gradient, bias_gradient, unit, unit + outs, transposed)
            activation = LINEAR if is_last else _ACTIVATIONS[config.activation]
            weight, gradient, unit = bias + outs, bias_gradient + outs, unit + 2 * outs
            norm_at, normed = -1, unit
            if is_normed and not is_last:
                norm_at = weight
                weight, gradient, unit = weight + 2 * outs, gradient + 2 * outs, unit + 2 * outs + 1
            layers[i] = ins, outs, width, *places, square, activation, norm_at, normed
            square += outs
            transposed += width * panels * LANES
        largest = max(largest, transposed)
        networks.append(layers)
    # A layer's inputs are transposed sixteen rows at a time, which may reach beyond the last one.
    return Plan(Networks(*networks), sections, unit + LANES, gradient, largest, square)


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


def new_scratch(plan: Plan, panels: int, kind: np.dtype[Any]) -> Scratch:
    """Room to compute in. Empty lanes stay 0 from here on."""
    return Scratch(
        panels=np.zeros((panels, plan.panel, LANES), kind),
        transposed=np.zeros(plan.transposed, kind),
        gradients=np.zeros(plan.gradients, kind),
        squares=np.zeros(plan.outputs, kind),
        measures=np.zeros((panels, 4), kind),
        totals=np.zeros(4, kind),
    )


def knobs_of(config: Config, kind: np.dtype[Any]) -> Knobs:
    """The knobs of an update."""
    return Knobs(
        discounts=(config.discount ** np.arange(config.n_step + 1)).astype(kind),
        reward_scale=config.reward_scale,
        tau=config.tau,
        policy_noise=config.policy_noise,
        noise_clip=config.noise_clip,
        gradient_clip=config.gradient_clip,
        weight_decay=config.weight_decay,
        huber=config.sampling == "lap",
    )
