"""The fused engine's update in plain NumPy: its panels and its order of sums, and nothing else.

Read it before src/t3d/learn/fused, which does the same in tiles and with threads: this is what
those must agree with, to the last bit, in float32.

A batch is an array (panel, unit, lane): sixteen transitions, one per lane, make a panel. Lanes of
the last panel without a transition hold zeros, and their gradients are zero.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from t3d import Batch, Config
from t3d.learn.optimizers import rate_at

LANES = 16
FIELDS = ("weight", "bias")
Floats = NDArray[np.float32]
F = np.float32
_tanhf = ctypes.CDLL(None).tanhf  # the C library's, which the compiled code calls as well
_tanhf.restype, _tanhf.argtypes = ctypes.c_float, [ctypes.c_float]
tanh = np.vectorize(_tanhf, otypes=[F])


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c, rounded once, as a processor's fused multiply-add does.

    In float64 the product is exact. The sum is rounded to odd: then a second rounding, to
    float32, gives what one rounding would have given (Boldo and Melquiond, 2008).
    """
    product, c64 = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c64
    back = total - product
    lost = (product - (total - back)) + (c64 - back)  # Knuth's exact error of a sum
    even = total.view(np.int64) % 2 == 0
    odd = np.nextafter(total, np.copysign(np.inf, lost))
    return np.where((lost != 0) & even, odd, total).astype(F)


class Layer(NamedTuple):
    """A linear layer and its LayerNorm; also for what belongs to them: gradients, moments."""

    weight: Floats  # (outputs, inputs)
    bias: Floats  # (outputs,)
    gain: Floats | None = None  # (outputs,), if there is a LayerNorm
    shift: Floats | None = None

    @property
    def arrays(self) -> list[Floats]:
        return [array for array in self if array is not None]


Network = list[Layer]  # with an activation between each two layers


class Passed(NamedTuple):
    """What a batch left behind on its way through a network."""

    values: list[Floats]  # the inputs of each layer, and the outputs of the last
    normal: list[Floats]  # of each LayerNorm: its outputs without gains and biases,
    inverse: list[Floats]  # and one over the standard deviation


def into_panels(rows: Floats) -> Floats:
    """(row, number) -> (panel, number, lane), padded with zeros."""
    panels = math.ceil(len(rows) / LANES)
    padded = np.zeros((panels * LANES, rows.shape[1]), F)
    padded[: len(rows)] = rows
    return padded.reshape(panels, LANES, -1).transpose(0, 2, 1).copy()


def expm1(x: Floats) -> Floats:
    """exp(x) - 1 of a number from -40 to 0, as learn/fused/units.py computes it."""
    k = np.trunc(x * F(1 / math.log(2)) - F(0.5))
    r = (x - k * F(0.693359375)) - k * F(-2.12194440e-4)
    series = np.full_like(r, 1 / math.factorial(7))
    for term in range(6, 1, -1):
        series = series * r + F(1 / math.factorial(term))
    power = np.ldexp(F(1), k.astype(np.int32))
    result: Floats = power * (r + (r * r) * series) + (power - F(1))
    return result


def activated(x: Floats, activation: str) -> Floats:
    """The activation function of the hidden layers."""
    if activation == "relu":
        return np.where(x < 0, F(0), x)
    if activation == "elu":
        return np.where(x < 0, expm1(np.clip(x, F(-40), F(0))), x)
    e = expm1(np.clip(np.abs(x) * F(-2), F(-40), F(0)))
    return np.copysign(-e / (e + F(2)), x)


def through_activation(grad: Floats, units: Floats, activation: str) -> Floats:
    """From the gradient by activations, `units`, to that by what went into them."""
    if activation == "relu":
        return np.where(units > 0, grad, F(0))
    if activation == "elu":
        return grad * np.where(units > 0, F(1), units + F(1))
    return grad * (F(1) - units * units)


def mean_of_units(x: Floats) -> Floats:
    """(panel, unit, lane) -> (panel, 1, lane), added unit after unit."""
    return (np.add.accumulate(x, axis=1)[:, -1:] / F(x.shape[1])).astype(F)


def forward(network: Network, x: Floats, activation: str) -> Passed:
    """A batch through a network. Each sum starts from the bias."""
    passed = Passed([x], [], [])
    for i, layer in enumerate(network):
        x = passed.values[-1]
        out = np.broadcast_to(layer.bias[:, None], (len(x), len(layer.bias), LANES))
        for k in range(x.shape[1]):
            out = fma(layer.weight[:, k, None], x[:, None, k], out)
        if layer.gain is not None and layer.shift is not None:
            centred = out - mean_of_units(out)
            inverse = F(1) / np.sqrt(mean_of_units(centred * centred) + F(1e-5))
            passed.normal.append(centred * inverse)
            passed.inverse.append(inverse)
            out = passed.normal[-1] * layer.gain[:, None] + layer.shift[:, None]
        passed.values.append(activated(out, activation) if i < len(network) - 1 else out)
    return passed


def backward(layer: Layer, grad: Floats) -> Floats:
    """From the gradient by a layer's outputs to that by its inputs."""
    total = np.zeros((len(grad), layer.weight.shape[1], LANES), F)
    for k in range(grad.shape[1]):
        total = fma(layer.weight[k, :, None], grad[:, None, k], total)
    return total


def through_norm(layer: Layer, grad: Floats, normal: Floats, inverse: Floats) -> Floats:
    """From the gradient by a LayerNorm's outputs to that by its inputs."""
    assert layer.gain is not None
    by_normal = grad * layer.gain[:, None]
    mean, along = mean_of_units(by_normal), mean_of_units(by_normal * normal)
    gradient: Floats = inverse * ((by_normal - mean) - normal * along)
    return gradient


def grads_of(
    network: Network, passed: Passed, grad: Floats, activation: str
) -> tuple[list[Floats], list[Floats]]:
    """The gradient by the outputs of each linear layer, and of each LayerNorm."""
    grads: list[Floats] = [grad]
    by_norm: list[Floats] = []
    for i in range(len(network) - 2, -1, -1):
        by_units = backward(network[i + 1], grads[0])
        by_units = through_activation(by_units, passed.values[i + 1], activation)
        if passed.normal:
            by_norm.insert(0, by_units)
            kept = passed.normal[i], passed.inverse[i]
            by_units = through_norm(network[i], by_units, *kept)
        grads.insert(0, by_units)
    return grads, by_norm


def sum_lanes(lanes: Floats) -> Floats:
    """(panel, unit, lane) -> (unit,): panel after panel, then lane after lane."""
    total = np.zeros(lanes.shape[1:], F)
    for panel in lanes:
        total = total + panel
    return np.add.accumulate(total, axis=1)[:, -1]


def gradient(x: Floats, grad: Floats) -> Layer:
    """Of a layer's weights and biases, summed over the batch."""
    if grad.shape[1] == 1:
        return Layer(sum_lanes(grad * x)[None], sum_lanes(grad))
    weight = np.zeros((grad.shape[1], x.shape[1]), F)
    for panel in range(len(x)):
        for lane in range(LANES):
            weight = fma(grad[panel, :, lane, None], x[panel, None, :, lane], weight)
    return Layer(weight, sum_lanes(grad))


def dot(a: Floats) -> Any:
    """The sum of squares: 32 at a step, in registers of eight, then four, then one by one."""
    total, done = F(0), 0
    for registers, lanes in ((4, 8), (1, 4), (1, 1)):
        sums = np.full((registers, lanes), -0.0, F)
        sums[0, 0] = total
        while done + registers * lanes <= len(a):
            part = a[done : done + registers * lanes].reshape(registers, lanes)
            sums, done = fma(part, part, sums), done + registers * lanes
        one = np.add.accumulate(sums, axis=0)[-1]
        while len(one) > 1:
            one = one[: len(one) // 2] + one[len(one) // 2 :]
        total = one[0]
    return total


def clipped_share(gradients: Network, limit: float) -> Any:
    """What is left of gradients whose norm is to be at most `limit`."""
    total = 0.0
    for layer in gradients:
        for weight, *others in zip(*layer.arrays):
            square = dot(weight)
            for other in others:
                square = square + other * other
            total += float(square)
    return F(min(1.0, limit / (math.sqrt(total) + 1e-6)))


class PanelsTD3:
    """Six networks, Adam's moments, and how one update changes them."""

    def __init__(self, state: Mapping[str, Tensor], low: ArrayLike, high: ArrayLike, knobs: Config):
        """Start from an agent's `state_dict`, copied."""
        self.state = {name: value.numpy().copy() for name, value in state.items()}
        self.knobs = knobs
        self.low, self.high = np.array(low, F)[:, None], np.array(high, F)[:, None]
        self.middle, self.max_action = (self.high + self.low) / F(2), (self.high - self.low) / F(2)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(value) for name, value in self.state.items()}

    def arrays(self, network: str, suffix: str = "") -> Network:
        """The arrays of a network, such as actor.layers; they change in place."""
        owner = "actor" if network.startswith("actor") else "critic"
        hidden = len(self.knobs.hidden_layers[owner])
        is_normed = self.knobs.layer_norm in (owner, "both")
        each = 3 if is_normed else 2  # modules per hidden layer
        layers = []
        for i in range(hidden + 1):
            numbers = [each * i, each * i + 1] if is_normed and i < hidden else [each * i]
            names = [f"{network}.{n}.{field}{suffix}" for n in numbers for field in FIELDS]
            layers.append(Layer(*(self.state[name] for name in names)))
        return layers

    def forward(self, network: str, x: Floats) -> Passed:
        """A batch through one of the networks."""
        return forward(self.arrays(network), x, self.knobs.activation)

    def scaled(self, action: Floats) -> Floats:
        """An action as the critic sees it, -1 to 1."""
        scaled: Floats = (action - self.middle) / self.max_action
        return scaled

    def update(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """Steps 5 to 15. Afterwards `td_errors` has the larger error of both twins, per row."""
        knobs, rows = self.knobs, F(len(noise))
        state, next_state, action = (into_panels(x.numpy()) for x in batch[:3])
        filled = into_panels(np.ones((len(noise), 1), F))  # 0 in lanes without a transition
        # Step 5: the actor target plays the next action.
        output = self.forward("actor_target.layers", next_state).values[-1]
        next_action = self.middle + self.max_action * tanh(output)
        # Step 6: smooth it with clipped noise, and stay inside the action range.
        clip = F(knobs.noise_clip)
        clipped = into_panels(np.clip(noise.numpy() * F(knobs.policy_noise), -clip, clip))
        next_action = np.clip(next_action + clipped * self.max_action, self.low, self.high)
        # Steps 7 to 9: the Bellman target of the smaller value.
        x = np.concatenate([next_state, self.scaled(next_action) * filled], axis=1)
        twins = "twin1", "twin2"
        values = (self.forward(f"critic_target.{twin}", x).values[-1] for twin in twins)
        smaller = np.minimum(*values)
        discount = (1 - batch.done) * knobs.discount**batch.steps
        reward, discounts = (into_panels(y.numpy()[:, None]) for y in (batch.reward, discount))
        target = reward + discounts * smaller
        # Steps 10 to 12: the gradient of a mean of squares is taken in float64, then rounded.
        x = np.concatenate([state, self.scaled(action) * filled], axis=1)
        losses, td_errors, gradients = [], [], {}
        for twin in twins:
            passed = self.forward(f"critic.{twin}", x)
            Q = passed.values[-1]
            error = (Q - target) * filled
            loss, derivative = (error * error, 2 * error.astype(np.float64))
            if knobs.sampling == "lap":
                size = np.abs(error)
                squares, linear = F(0.5) * error * error, size - F(0.5)
                loss, derivative = np.where(size > 1, linear, squares), np.clip(error, -1, 1)
            losses.append(mean(loss, rows))
            td_errors.append(np.abs(error).reshape(-1)[: len(noise)])
            if twin == "twin1":
                measures = {"critic_loss": 0.0, "mean_Q": mean(Q * filled, rows)}
            grad = rounded(derivative / rows)
            gradients[twin] = self.gradients(f"critic.{twin}", passed, grad)
        self.descend("critic", gradients)
        measures["critic_loss"] = losses[0] + losses[1]
        self.td_errors = np.maximum(*td_errors)
        if (self.state["updates"] + 1) % knobs.policy_freq == 0:
            measures["actor_loss"] = self.update_actor(state, filled, rows)
        self.state["updates"] += 1
        return measures

    def update_actor(self, state: Floats, filled: Floats, rows: Any) -> float:
        """Steps 13 to 15; returns the actor's loss."""
        passed = self.forward("actor.layers", state)
        squashed = tanh(passed.values[-1])
        action = self.scaled(self.middle + self.max_action * squashed) * filled
        critic = self.arrays("critic.twin1")
        judged = self.forward("critic.twin1", np.concatenate([state, action], axis=1))
        grad = rounded(filled * (-1 / np.float64(rows)))
        by_layer, _ = grads_of(critic, judged, grad, self.knobs.activation)
        by_action = backward(critic[0], by_layer[0])[:, state.shape[1] :]
        through_tanh = by_action * (1 - (squashed * squashed).astype(np.float64))
        gradients = self.gradients("actor.layers", passed, rounded(through_tanh))
        self.descend("actor", {"layers": gradients})
        tau, every = self.knobs.tau, self.knobs.target_every
        now = int(self.state["updates"]) + 1
        if every:
            tau = 1.0 if now % every < self.knobs.policy_freq else 0.0
        for name in [name for name in self.state if "_target." in name]:
            old, new = self.state[name], self.state[name.replace("_target", "")]
            near = tau < 0.5
            old[...] = old + F(tau) * (new - old) if near else new - (new - old) * F(1 - tau)
        return mean(-judged.values[-1] * filled, rows)

    def gradients(self, network: str, passed: Passed, grad: Floats) -> Network:
        """Backpropagate through a network."""
        grads, by_norm = grads_of(self.arrays(network), passed, grad, self.knobs.activation)
        layers = [gradient(x, g) for x, g in zip(passed.values, grads)]
        for i, g in enumerate(by_norm):
            layers[i] = layers[i]._replace(gain=sum_lanes(g * passed.normal[i]), shift=sum_lanes(g))
        return layers

    def descend(self, owner: str, gradients: dict[str, Network]) -> None:
        """Step Adam on the networks of an optimiser."""
        knobs = self.knobs
        rate = rate_at(knobs, owner, int(self.state["updates"]))
        share, keep = F(1), F(1 - rate * knobs.weight_decay)
        if knobs.gradient_clip:
            together = [layer for layers in gradients.values() for layer in layers]
            share = clipped_share(together, knobs.gradient_clip)
        for part, by_layer in gradients.items():
            network = self.arrays(f"{owner}.{part}")
            moments = (
                self.arrays(f"{owner}_optimizer.{part}", f".{name}")
                for name in ("step", "exp_avg", "exp_avg_sq")
            )
            for layers in zip(network, *moments, by_layer):
                for parameter, step, average, square, g in zip(*(each.arrays for each in layers)):
                    step += 1
                    size = F(rate / (1 - 0.9 ** int(step)))
                    root = F(math.sqrt(1 - 0.999 ** int(step)))
                    g = g * share
                    average += (g - average) * F(1 - 0.9)
                    square[...] = square * F(0.999) + g * g * F(1 - 0.999)
                    average[np.abs(average) < F(1e-37)] = 0  # no denormal numbers: they are slow
                    square[square < F(1e-37)] = 0
                    moved = size * average / (np.sqrt(square) / root + F(1e-8))
                    parameter[...] = parameter * keep - moved


def rounded(values: NDArray[np.float64]) -> Floats:
    return values.astype(F)


def mean(values: Floats, rows: Any) -> float:
    """The sum of each panel, lane after lane, divided by the rows; then the sum of the panels."""
    parts = np.add.accumulate(values[:, 0], axis=1)[:, -1] / rows
    return float(np.add.accumulate(parts)[-1])
