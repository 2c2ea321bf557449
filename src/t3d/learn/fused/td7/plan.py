"""Where everything of TD7 is: its networks, and the layout of a panel.

The rows of a panel are, from the top:

    state | action | next state | next action | target | next embedding | layers, one by one

Each layer has its outputs and their gradients. Where a layer takes embeddings or an action beside
the outputs of the one before, there is room for these between the two, so that its inputs stand
together:

    f, last        zs | action                      inputs of g
    actor, first   outputs | zs                     inputs of its second layer
    twins, first   outputs | zsa | zs               inputs of their second layers
"""

import itertools
from typing import NamedTuple

import numpy as np

from t3d.base.numbers import Array
from t3d.config import Config
from t3d.learn.fused.plan import AVG_L1, ELU, LAYER, LINEAR, RELU, Places, Sizes

# Columns of `Scratch.measures`, after those of TD3.
ENCODER_LOSS, LEAST, LARGEST, MEASURES = range(4, 8)


class Networks(NamedTuple):
    """The layers of each network, from its inputs to its outputs."""

    f: Array  # the two of the encoder
    g: Array
    actor: Array
    twin1: Array
    twin2: Array


class Sections(NamedTuple):
    """Which row of a panel each section begins with."""

    state: int
    action: int
    next_state: int
    next_action: int
    target: int  # one row: the Bellman target
    next_zs: int  # the embedding that the encoder is to predict
    layers: int  # units and gradients


class Plan(NamedTuple):
    """The place of everything, and the sizes of the arrays."""

    networks: Networks
    sections: Sections
    sizes: Sizes


def lay_out(state_dim: int, action_dim: int, config: Config, panels: int) -> Plan:
    """Give every layer of the five networks its places, for a batch of some panels."""
    zs = config.embedding
    starts = itertools.accumulate((0, state_dim, action_dim, state_dim, action_dim, 1, zs))
    sections = Sections(*starts)
    places = Places(sections.layers, panels)

    def encoder(ins: int, last: int, beside: int) -> Array:
        sizes = (ins, *config.encoder_layers, zs)
        activations = [*[ELU] * len(config.encoder_layers), last]
        # The encoder embeds other states before its gradients are taken: all inputs are copied.
        return _layers(places, sizes, activations, [*[0] * (len(sizes) - 2), beside], copied=True)

    def mixer(ins: int, hidden: tuple[int, ...], outs: int, activation: int, beside: int) -> Array:
        sizes = (ins, hidden[0], *hidden, outs)
        activations = [AVG_L1, *[activation] * len(hidden), LINEAR]
        return _layers(places, sizes, activations, [beside, *[0] * len(hidden), 0])

    hidden = config.hidden_layers
    f, g = encoder(state_dim, AVG_L1, action_dim), encoder(zs + action_dim, LINEAR, 0)
    encoders = places.transposed
    actor = mixer(state_dim, hidden["actor"], action_dim, RELU, zs)
    places.transposed = encoders  # the actor learns when the twins have
    inputs = state_dim + action_dim
    twins = (mixer(inputs, hidden["critic"], 1, ELU, 2 * zs) for _ in range(2))
    return Plan(Networks(f, g, actor, *twins), sections, places.sizes())


def _layers(
    places: Places,
    sizes: tuple[int, ...],
    activations: list[int],
    beside: list[int],
    *,
    copied: bool = False,
) -> Array:
    """The layers of a network; `beside[i]` rows after layer i are inputs of the next, too."""
    before = [0, *beside]
    layers = [
        places.layer(
            ins + before[i],
            outs,
            activations[i],
            beside=beside[i],
            transposed=True if copied else None,
        )
        for i, (ins, outs) in enumerate(itertools.pairwise(sizes))
    ]
    return np.array(layers, LAYER)
