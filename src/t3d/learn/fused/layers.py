"""Networks, layer by layer: forward, backward, and the steps of Adam and of Polyak.

`x` is always the row of a panel with which a network's inputs begin.
"""

import math
from typing import Any, NamedTuple

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.plan import (
    AVG_L1,
    ELU,
    LINEAR,
    RELU,
    TANH,
    Bounds,
    Knobs,
    Scaling,
    Scratch,
    Weights,
)
from t3d.learn.fused.steps import (
    Share,
    divisor,
    grads,
    inverse_std,
    norm_grads,
    normalized,
    standard,
    to_action,
    units,
)
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
from t3d.learn.fused.units import (
    EPSILON,
    SMALLEST,
    activate,
    avg_l1_norm,
    back_through_activation,
    back_through_avg_l1_norm,
    back_through_norm,
    layer_norm,
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
def gain_of(parameters: Array, layer: Any) -> Array:
    """The gains of a layer's LayerNorm: (outs,)."""
    return parameters[layer.norm : layer.norm + layer.outs]


@compiled
def shift_of(parameters: Array, layer: Any) -> Array:
    """The biases of a layer's LayerNorm: (outs,)."""
    return parameters[layer.norm + layer.outs : layer.norm + 2 * layer.outs]


@compiled
def forward(parameters: Array, network: Array, x: int, my: Share) -> None:
    """My panels through a network; an activation follows each layer but the last."""
    for p in range(my.first, my.last):
        panel, start = my.panels[p], x
        for i in range(len(network)):
            layer = network[i]
            inputs, outputs = panel[start : start + layer.ins], units(panel, layer)
            weight, bias = weight_of(parameters, layer), bias_of(parameters, layer)
            if layer.activation == RELU and layer.norm < 0:
                relu(outputs, weight, inputs, bias)
            else:
                linear(outputs, weight, inputs, bias)
                if layer.norm >= 0:
                    kept = standard(panel, layer), inverse_std(panel, layer)
                    gain, shift = gain_of(parameters, layer), shift_of(parameters, layer)
                    layer_norm(outputs, *kept, gain, shift)
                if layer.activation == AVG_L1:
                    avg_l1_norm(outputs, divisor(panel, layer))
                else:
                    activate(outputs, layer.activation)
            start = layer.unit


@compiled
def backward(parameters: Array, network: Array, my: Share) -> None:
    """My panels back through a network: the gradient of the loss by each of its units.

    Where more stands beside the units of a layer, nothing is computed for that.
    """
    for p in range(my.first, my.last):
        panel = my.panels[p]
        for i in range(len(network) - 1, 0, -1):
            layer, before = network[i], network[i - 1]
            weight = weight_of(parameters, layer)
            gradients, outputs = grads(panel, before), units(panel, before)
            if before.activation == RELU and before.norm < 0:
                masked(gradients, weight.T, grads(panel, layer), outputs)
            else:
                product(gradients, weight.T, grads(panel, layer))
                if before.activation == AVG_L1:
                    back_through_avg_l1_norm(gradients, outputs, divisor(panel, before))
                else:
                    back_through_activation(gradients, outputs, before.activation)
                if before.norm >= 0:
                    kept = standard(panel, before), inverse_std(panel, before)
                    gain = gain_of(parameters, before)
                    back_through_norm(gradients, norm_grads(panel, before), *kept, gain)


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
        if layer.transposed >= 0:
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
    keep: Any  # what weight decay leaves of a parameter
    share: Any  # what gradient_clip leaves of a gradient


@compiled
def rates(learning_rate: float, step: int, knobs: Knobs, panels: Array) -> Rates:
    """The rates of one step of Adam."""
    kind = panels.dtype.type
    size, root = learning_rate / (1 - 0.9**step), math.sqrt(1 - 0.999**step)
    return Rates(kind(size), kind(root), kind(1 - learning_rate * knobs.weight_decay), kind(1))


@compiled
def clipped(rate: Rates, first: Any, last: Any, scratch: Scratch, limit: float) -> Rates:
    """The rates with gradients whose norm is at most `limit`: those from a layer to another."""
    total = 0.0
    for i in range(first.square, last.square + last.outs):
        total += scratch.squares[i]
    share = limit / (math.sqrt(total) + 1e-6)
    share = 1.0 if share > 1 else share  # a nan stays
    kind = scratch.panels.dtype.type
    return Rates(rate.size, rate.root, rate.keep, kind(share))


@compiled
def my_rows(layer: Any, my: Share) -> tuple[int, int]:
    """My share of a layer's rows: from the first to before the last."""
    tiles = (layer.outs + HEIGHT - 1) // HEIGHT  # no tile is divided: lower ones are slower
    low = my.me * tiles // my.team * HEIGHT
    return low, min((my.me + 1) * tiles // my.team * HEIGHT, layer.outs)


@compiled
def descend(
    network: Array, weights: Weights, scratch: Scratch, rate: Rates, x: int, my: Share
) -> None:
    """The gradients of my share of each layer's rows, and Adam's step on these."""
    for i in range(len(network)):
        layer = network[i]
        low, high = my_rows(layer, my)
        if low < high:
            _gradients(layer, scratch, x, low, high)
            _step(layer, weights, scratch, rate, low, high)
        x = layer.unit


@compiled
def differentiate(network: Array, scratch: Scratch, x: int, my: Share) -> None:
    """The gradients of my share of each layer's rows alone, and their squares."""
    for i in range(len(network)):
        layer = network[i]
        low, high = my_rows(layer, my)
        if low < high:
            _gradients(layer, scratch, x, low, high)
            _squares(layer, scratch, low, high)
        x = layer.unit


@compiled
def step(network: Array, weights: Weights, scratch: Scratch, rate: Rates, my: Share) -> None:
    """Adam's step on my share of each layer's rows, whose gradients are there."""
    for i in range(len(network)):
        low, high = my_rows(network[i], my)
        if low < high:
            _step(network[i], weights, scratch, rate, low, high)


@compiled
def _gradients(layer: Any, scratch: Scratch, x: int, low: int, high: int) -> None:
    """The gradients of some rows of a layer."""
    gradient = view(scratch.gradients, layer.gradient, (layer.outs, layer.width))
    if layer.transposed < 0:
        _gradient_of_one(layer, scratch.panels, x, gradient[0])
    else:
        _gradient(layer, scratch, gradient, low, high)
    at = layer.bias_gradient
    for row in range(low, high):
        scratch.gradients[at + row] = sum_lanes(scratch.panels[:, layer.grad + row])
    if layer.norm >= 0:
        for row in range(low, high):
            by_norm = scratch.panels[:, layer.normed + layer.outs + row]
            normed = scratch.panels[:, layer.normed + row]
            scratch.gradients[at + layer.outs + row] = sum_products(by_norm, normed)
            scratch.gradients[at + 2 * layer.outs + row] = sum_lanes(by_norm)


@compiled
def _squares(layer: Any, scratch: Scratch, low: int, high: int) -> None:
    """The sum of the squared gradients of each of some rows of a layer."""
    gradient = view(scratch.gradients, layer.gradient, (layer.outs, layer.width))
    columns = 3 if layer.norm >= 0 else 1  # biases; gains and biases of the LayerNorm
    for row in range(low, high):
        total = dot(gradient[row, : layer.ins], gradient[row, : layer.ins])
        for column in range(columns):
            one = scratch.gradients[layer.bias_gradient + column * layer.outs + row]
            total += one * one
        scratch.squares[layer.square + row] = total


@compiled
def _step(layer: Any, weights: Weights, scratch: Scratch, rate: Rates, low: int, high: int) -> None:
    """Adam's step on some rows of a layer."""
    if layer.ins == layer.width:
        rows = view(scratch.gradients, layer.gradient, (layer.outs * layer.ins,))
        part = rows[low * layer.ins : high * layer.ins]
        _adam(weights, layer.weight + low * layer.ins, part, rate)
    else:
        gradient = view(scratch.gradients, layer.gradient, (layer.outs, layer.width))
        for row in range(low, high):
            part = gradient[row, : layer.ins]
            _adam(weights, layer.weight + row * layer.ins, part, rate)
    at = layer.bias_gradient
    _adam(weights, layer.bias + low, scratch.gradients[at + low : at + high], rate)
    if layer.norm >= 0:
        for column in range(2):  # gains, then biases
            at += layer.outs
            part = scratch.gradients[at + low : at + high]
            _adam(weights, layer.norm + column * layer.outs + low, part, rate)


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
    size, root, keep, share = rate
    tenth, decay, rest, epsilon = kind(1 - 0.9), kind(0.999), kind(1 - 0.999), kind(1e-8)
    zero, tiny = kind(0), kind(1e-37)
    for i in range(gradients.size):
        gradient = gradients[i] * share
        mean = exp_avg[i] + (gradient - exp_avg[i]) * tenth
        square = exp_avg_sq[i] * decay + gradient * gradient * rest
        # What a dead unit leaves decays to denormal numbers, which slow the processor down.
        mean = zero if abs(mean) < tiny else mean
        square = zero if square < tiny else square
        exp_avg[i], exp_avg_sq[i] = mean, square
        parameters[i] = parameters[i] * keep - size * mean / (math.sqrt(square) / root + epsilon)


@compiled
def polyak(weights: Weights, tau: float, my: Share) -> None:
    """Steps 14 and 15 on my share: target <- tau * model + (1 - tau) * target."""
    if tau == 0:
        return
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
        x = outputs_of(parameters, actor[i], x)
    return to_action(x, bounds)


@compiled
def outputs_of(parameters: Array, layer: Any, x: Array) -> Array:
    """One state through one layer."""
    weight, out = weight_of(parameters, layer), bias_of(parameters, layer).copy()
    for row in range(out.size):
        out[row] += dot(weight[row], x)
    if layer.norm >= 0:
        _norm_one(out, gain_of(parameters, layer), shift_of(parameters, layer))
    _activate_one(out, layer.activation)
    return out


@compiled
def _norm_one(out: Array, gain: Array, shift: Array) -> None:
    """A LayerNorm of one state's units."""
    kind = out.dtype.type
    mean, variance = kind(0), kind(0)
    for row in range(out.size):
        mean += out[row]
    mean /= kind(out.size)
    for row in range(out.size):
        variance += (out[row] - mean) * (out[row] - mean)
    scale = kind(1) / math.sqrt(variance / kind(out.size) + kind(EPSILON))
    for row in range(out.size):
        out[row] = (out[row] - mean) * scale * gain[row] + shift[row]


@compiled
def _activate_one(out: Array, activation: int) -> None:
    """The activation function of one state's units."""
    if activation == AVG_L1:
        mean = out.dtype.type(0)
        for row in range(out.size):
            mean += abs(out[row])
        mean = max(mean / out.dtype.type(out.size), out.dtype.type(SMALLEST))
        for row in range(out.size):
            out[row] /= mean
        return
    for row in range(out.size):
        if activation == TANH:
            out[row] = math.tanh(out[row])
        elif activation != LINEAR and out[row] < 0:
            out[row] = math.expm1(out[row]) if activation == ELU else 0
