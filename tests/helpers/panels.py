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

LANES = 16
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
    """A linear layer; also used for what belongs to one: its gradients, Adam's moments."""

    weight: Floats  # (outputs, inputs)
    bias: Floats  # (outputs,)


Network = list[Layer]  # with a ReLU between each two layers


def into_panels(rows: Floats) -> Floats:
    """(row, number) -> (panel, number, lane), padded with zeros."""
    panels = math.ceil(len(rows) / LANES)
    padded = np.zeros((panels * LANES, rows.shape[1]), F)
    padded[: len(rows)] = rows
    return padded.reshape(panels, LANES, -1).transpose(0, 2, 1).copy()


def forward(network: Network, x: Floats) -> list[Floats]:
    """The inputs of each layer, and the outputs of the last. Each sum starts from the bias."""
    values = [x]
    for i, layer in enumerate(network):
        out = np.broadcast_to(layer.bias[:, None], (len(x), len(layer.bias), LANES))
        for k in range(values[-1].shape[1]):
            out = fma(layer.weight[:, k, None], values[-1][:, None, k], out)
        values.append(np.where(out < 0, F(0), out) if i < len(network) - 1 else out)
    return values


def backward(layer: Layer, grad: Floats) -> Floats:
    """From the gradient by a layer's outputs to that by its inputs."""
    total = np.zeros((len(grad), layer.weight.shape[1], LANES), F)
    for k in range(grad.shape[1]):
        total = fma(layer.weight[k, :, None], grad[:, None, k], total)
    return total


def grads_of(network: Network, values: list[Floats], grad: Floats) -> list[Floats]:
    """The gradient by the outputs of each layer, from the one by the last."""
    grads = [grad]
    for layer, units in zip(reversed(network[1:]), reversed(values[1:-1])):
        grads.insert(0, np.where(units > 0, backward(layer, grads[0]), F(0)))
    return grads


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
        layers = [f"{network}.{2 * i}" for i in range(len(self.knobs.hidden) + 1)]
        fields = [[f"{layer}.{field}{suffix}" for field in Layer._fields] for layer in layers]
        return [Layer(*(self.state[name] for name in names)) for names in fields]

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
        output = forward(self.arrays("actor_target.layers"), next_state)[-1]
        next_action = self.middle + self.max_action * tanh(output)
        # Step 6: smooth it with clipped noise, and stay inside the action range.
        clip = F(knobs.noise_clip)
        clipped = into_panels(np.clip(noise.numpy() * F(knobs.policy_noise), -clip, clip))
        next_action = np.clip(next_action + clipped * self.max_action, self.low, self.high)
        # Steps 7 to 9: the Bellman target of the smaller value.
        x = np.concatenate([next_state, self.scaled(next_action) * filled], axis=1)
        twins = self.arrays("critic_target.twin1"), self.arrays("critic_target.twin2")
        smaller = np.minimum(*(forward(twin, x)[-1] for twin in twins))
        discount = (1 - batch.done) * knobs.discount**batch.steps
        reward, discounts = (into_panels(y.numpy()[:, None]) for y in (batch.reward, discount))
        target = reward + discounts * smaller
        # Steps 10 to 12: the gradient of a mean of squares is taken in float64, then rounded.
        x = np.concatenate([state, self.scaled(action) * filled], axis=1)
        losses, td_errors = [], []
        for twin in ("twin1", "twin2"):
            values = forward(self.arrays(f"critic.{twin}"), x)
            error = (values[-1] - target) * filled
            losses.append(mean(error * error, rows))
            td_errors.append(np.abs(error).reshape(-1)[: len(noise)])
            if twin == "twin1":
                measures = {"critic_loss": 0.0, "mean_Q": mean(values[-1] * filled, rows)}
            self.descend("critic", twin, values, rounded(2 * error.astype(np.float64) / rows))
        measures["critic_loss"] = losses[0] + losses[1]
        self.td_errors = np.maximum(*td_errors)
        self.state["updates"] += 1
        if self.state["updates"] % knobs.policy_freq == 0:
            measures["actor_loss"] = self.update_actor(state, filled, rows)
        return measures

    def update_actor(self, state: Floats, filled: Floats, rows: Any) -> float:
        """Steps 13 to 15; returns the actor's loss."""
        values = forward(self.arrays("actor.layers"), state)
        squashed = tanh(values[-1])
        action = self.scaled(self.middle + self.max_action * squashed) * filled
        critic = self.arrays("critic.twin1")
        judged = forward(critic, np.concatenate([state, action], axis=1))
        by_layer = grads_of(critic, judged, rounded(filled * (-1 / np.float64(rows))))
        by_action = backward(critic[0], by_layer[0])[:, state.shape[1] :]
        through_tanh = by_action * (1 - (squashed * squashed).astype(np.float64))
        self.descend("actor", "layers", values, rounded(through_tanh))
        tau = self.knobs.tau
        for name in [name for name in self.state if "_target." in name]:
            old, new = self.state[name], self.state[name.replace("_target", "")]
            near = tau < 0.5
            old[...] = old + F(tau) * (new - old) if near else new - (new - old) * F(1 - tau)
        return mean(-judged[-1] * filled, rows)

    def descend(self, owner: str, part: str, values: list[Floats], grad: Floats) -> None:
        """Backpropagate through a network, and step Adam on it."""
        network = self.arrays(f"{owner}.{part}")
        steps, *moments = (
            self.arrays(f"{owner}_optimizer.{part}", f".{name}")
            for name in ("step", "exp_avg", "exp_avg_sq")
        )
        gradients = [gradient(x, g) for x, g in zip(values, grads_of(network, values, grad))]
        for layers in zip(network, steps, *moments, gradients):
            for parameter, step, average, square, g in zip(*layers):
                step += 1
                size = F(self.knobs.learning_rate / (1 - 0.9 ** int(step)))
                root = F(math.sqrt(1 - 0.999 ** int(step)))
                average += (g - average) * F(1 - 0.9)
                square[...] = square * F(0.999) + g * g * F(1 - 0.999)
                average[np.abs(average) < F(1e-37)] = 0  # no denormal numbers: they are slow
                square[square < F(1e-37)] = 0
                parameter -= size * average / (np.sqrt(square) / root + F(1e-8))


def rounded(values: NDArray[np.float64]) -> Floats:
    return values.astype(F)


def mean(values: Floats, rows: Any) -> float:
    """The sum of each panel, lane after lane, divided by the rows; then the sum of the panels."""
    parts = np.add.accumulate(values[:, 0], axis=1)[:, -1] / rows
    return float(np.add.accumulate(parts)[-1])
