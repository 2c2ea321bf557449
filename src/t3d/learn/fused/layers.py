"""Networks, layer by layer: forward, backward, and the steps of Adam and of Polyak.

`x` is always the row of a panel with which a network's inputs begin.
"""

import math
from typing import Any, NamedTuple

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.plan import Bounds, Scaling, Scratch, Weights
from t3d.learn.fused.steps import Share, grads, normalized, units
from t3d.learn.fused.tiles import (
    HEIGHT,
    dot,
    linear,
    masked,
    product,
    relu,
    sum_lanes,
    sum_products,
    transpose,
)
from t3d.learn.fused.vectors import LANES, view


@compiled
def weight_of(parameters: Array, layer: Any) -> Array:
    """The weights of a layer: (outs, ins)."""
    weights: Array = view(parameters, layer.weight, (layer.outs, layer.ins))
    return weights


@compiled
def bias_of(parameters: Array, layer: Any) -> Array:
    """The biases of a layer: (outs,)."""
    return parameters[layer.bias : layer.bias + layer.outs]


@compiled
def forward(parameters: Array, network: Array, x: int, my: Share) -> None:
    """My panels through a network; a ReLU follows each layer but the last."""
    for p in range(my.first, my.last):
        panel, start = my.panels[p], x
        for i in range(len(network)):
            layer = network[i]
            inputs, outputs = panel[start : start + layer.ins], units(panel, layer)
            weight, bias = weight_of(parameters, layer), bias_of(parameters, layer)
            if i < len(network) - 1:
                relu(outputs, weight, inputs, bias)
            else:
                linear(outputs, weight, inputs, bias)
            start = layer.unit


@compiled
def backward(parameters: Array, network: Array, my: Share) -> None:
    """My panels back through a network: the gradient of the loss by each of its units."""
    for p in range(my.first, my.last):
        panel = my.panels[p]
        for i in range(len(network) - 1, 0, -1):
            layer, before = network[i], network[i - 1]
            weight = weight_of(parameters, layer)
            masked(grads(panel, before), weight.T, grads(panel, layer), units(panel, before))


@compiled
def backward_to_action(parameters: Array, critic: Array, actor: Array, my: Share) -> None:
    """From the gradient by the critic's first layer to that by its last inputs, the actions."""
    layer = critic[0]
    weight = weight_of(parameters, layer)[:, layer.ins - actor[-1].outs :]
    for p in range(my.first, my.last):
        panel = my.panels[p]
        product(grads(panel, actor[-1]), weight.T, grads(panel, layer))


@compiled
def transposed_inputs(scratch: Scratch, layer: Any) -> Array:
    """The inputs of a layer with units and lanes swapped: (ins / 16, panels, lanes, 16)."""
    shape = (layer.width // LANES, len(scratch.panels), LANES, LANES)
    inputs: Array = view(scratch.transposed, layer.transposed, shape)
    return inputs


@compiled
def transpose_inputs(network: Array, scratch: Scratch, x: int, my: Share) -> None:
    """Swap units and lanes of each layer's inputs, for the gradients of its weights.

    Where their number is no multiple of sixteen, the rows behind them in the panel come along.
    """
    for i in range(len(network)):
        layer = network[i]
        if layer.outs > 1:
            blocks = transposed_inputs(scratch, layer)
            for p in range(my.first, my.last):
                for block in range(len(blocks)):
                    row = x + block * LANES
                    transpose(blocks[block, p], my.panels[p, row : row + LANES])
        x = layer.unit


class Rates(NamedTuple):
    """Adam's learning rate, and what it divides the root by, corrected for its first steps."""

    size: Any
    root: Any


@compiled
def rates(learning_rate: float, step: int, panels: Array) -> Rates:
    """The rates of one step of Adam."""
    kind = panels.dtype.type
    return Rates(kind(learning_rate / (1 - 0.9**step)), kind(math.sqrt(1 - 0.999**step)))


@compiled
def descend(
    network: Array, weights: Weights, scratch: Scratch, rate: Rates, x: int, my: Share
) -> None:
    """The gradients of my share of each layer's rows, and Adam's step on these."""
    for i in range(len(network)):
        layer = network[i]
        tiles = (layer.outs + HEIGHT - 1) // HEIGHT  # no tile is divided: lower ones are slower
        low = my.me * tiles // my.team * HEIGHT
        high = min((my.me + 1) * tiles // my.team * HEIGHT, layer.outs)
        if low < high:
            gradient = view(scratch.gradients, layer.gradient, (layer.outs, layer.width))
            if layer.outs == 1:
                _gradient_of_one(layer, scratch.panels, x, gradient[0])
            else:
                _gradient(layer, scratch, gradient, low, high)
            biases = scratch.gradients[layer.bias_gradient : layer.bias_gradient + layer.outs]
            for row in range(low, high):
                biases[row] = sum_lanes(scratch.panels[:, layer.grad + row])
            if layer.ins == layer.width:
                rows = view(scratch.gradients, layer.gradient, (layer.outs * layer.ins,))
                part = rows[low * layer.ins : high * layer.ins]
                _adam(weights, layer.weight + low * layer.ins, part, rate)
            else:
                for row in range(low, high):
                    part = gradient[row, : layer.ins]
                    _adam(weights, layer.weight + row * layer.ins, part, rate)
            _adam(weights, layer.bias + low, biases[low:high], rate)
        x = layer.unit


@compiled
def _gradient(layer: Any, scratch: Scratch, gradient: Array, low: int, high: int) -> None:
    """Of some rows of a layer's weights: gradients by its outputs times its inputs, all panels."""
    inputs = transposed_inputs(scratch, layer)
    by_output = scratch.panels[:, layer.grad + low : layer.grad + high]
    for block in range(len(inputs)):
        part = gradient[low:high, block * LANES : (block + 1) * LANES]
        product(part, by_output, inputs[block])


@compiled
def _gradient_of_one(layer: Any, panels: Array, x: int, gradient: Array) -> None:
    """The same of a layer with one output, which needs no transposed inputs."""
    for i in range(layer.ins):
        gradient[i] = sum_products(panels[:, layer.grad], panels[:, x + i])


@compiled
def _adam(weights: Weights, start: int, gradients: Array, rate: Rates) -> None:
    """Kingma and Ba's step, as PyTorch takes it, on some parameters in a row."""
    end = start + gradients.size
    parameters, exp_avg = weights.parameters[start:end], weights.exp_avg[start:end]
    exp_avg_sq = weights.exp_avg_sq[start:end]
    kind = parameters.dtype.type
    size, root = rate
    tenth, decay, rest, epsilon = kind(1 - 0.9), kind(0.999), kind(1 - 0.999), kind(1e-8)
    zero, tiny = kind(0), kind(1e-37)
    for i in range(gradients.size):
        mean = exp_avg[i] + (gradients[i] - exp_avg[i]) * tenth
        square = exp_avg_sq[i] * decay + gradients[i] * gradients[i] * rest
        # What a dead unit leaves decays to denormal numbers, which slow the processor down.
        mean = zero if abs(mean) < tiny else mean
        square = zero if square < tiny else square
        exp_avg[i], exp_avg_sq[i] = mean, square
        parameters[i] -= size * mean / (math.sqrt(square) / root + epsilon)


@compiled
def polyak(weights: Weights, tau: float, my: Share) -> None:
    """Steps 14 and 15 on my share: target <- tau * model + (1 - tau) * target."""
    count = weights.targets.size
    low, high = my.me * count // my.team, (my.me + 1) * count // my.team
    old, new = weights.targets[low:high], weights.parameters[low:high]
    step, rest = old.dtype.type(tau), old.dtype.type(1 - tau)
    if tau < 0.5:  # from the nearer end, as PyTorch does: a step of 1 copies exactly
        for i in range(old.size):
            old[i] += step * (new[i] - old[i])
    else:
        for i in range(old.size):
            old[i] = new[i] - (new[i] - old[i]) * rest


@compiled
def select_action(
    parameters: Array, actor: Array, bounds: Bounds, scaling: Scaling, state: Array
) -> Array:
    """The action for one state: layer by layer, a dot product per unit."""
    x = state.astype(parameters.dtype)
    for i in range(x.size):
        x[i] = normalized(x[i], scaling, i)
    for i in range(len(actor)):
        weight, out = weight_of(parameters, actor[i]), bias_of(parameters, actor[i]).copy()
        for row in range(out.size):
            out[row] += dot(weight[row], x)
            if i < len(actor) - 1 and out[row] < 0:
                out[row] = 0
        x = out
    for i in range(x.size):
        action = bounds.middle[i] + bounds.max_action[i] * math.tanh(x[i])
        x[i] = min(max(action, bounds.low[i]), bounds.high[i])
    return x
