"""One TD3 update in NumPy, every gradient worked out by hand: what T3D must agree with.

Written from the paper (Fujimoto, van Hoof and Meger, 2018), in float64, to be read next to a
book on backpropagation. It has nothing of T3D but the names of the weights and of the knobs.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from t3d import Config

Array = NDArray[np.float64]


class Layer(NamedTuple):
    """A linear layer, x -> weight x + bias; also used for what belongs to one: its gradients."""

    weight: Array  # (outputs, inputs)
    bias: Array  # (outputs,)


Network = list[Layer]  # with a ReLU between each two layers


def forward(network: Network, x: Array) -> tuple[Array, list[Array]]:
    """The network's output for a batch of rows, and the input of each layer."""
    inputs: list[Array] = []
    for layer in network:
        if inputs:
            x = np.maximum(x, 0)
        inputs.append(x)
        x = x @ layer.weight.T + layer.bias
    return x, inputs


def backward(network: Network, inputs: list[Array], gradient: Array) -> tuple[Network, Array]:
    """The chain rule, from the last layer to the first.

    `gradient` is d loss / d output, one row per row of the batch. Returns d loss / d each weight
    and bias, and d loss / d the network's input.
    """
    gradients = []
    for number in reversed(range(len(network))):
        x = inputs[number]
        # output[i] = sum_j weight[i, j] x[j] + bias[i], and the rows of the batch add up.
        gradients.append(Layer(weight=gradient.T @ x, bias=gradient.sum(axis=0)))
        gradient = gradient @ network[number].weight
        if number > 0:
            gradient = gradient * (x > 0)  # x came out of a ReLU, which is flat where it gives 0
    return gradients[::-1], gradient


class Adam:
    """Kingma and Ba, 2015, on the parameters of one network, which it changes in place."""

    def __init__(self, network: Network, learning_rate: float) -> None:
        self.network = network
        self.learning_rate = learning_rate
        self.step = 0
        self.mean = [Layer(np.zeros_like(w), np.zeros_like(b)) for w, b in network]
        self.square = [Layer(np.zeros_like(w), np.zeros_like(b)) for w, b in network]

    def descend(self, gradients: Network) -> None:
        self.step += 1
        for layers in zip(self.network, self.mean, self.square, gradients):
            for parameter, mean, square, gradient in zip(*layers):
                mean[...] = 0.9 * mean + (1 - 0.9) * gradient
                square[...] = 0.999 * square + (1 - 0.999) * gradient**2
                # Both averages started at 0 and are too small by these factors.
                unbiased_mean = mean / (1 - 0.9**self.step)
                unbiased_square = square / (1 - 0.999**self.step)
                parameter -= self.learning_rate * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)


class NumpyTD3:
    """Six networks and how one update changes them."""

    def __init__(
        self, weights: Mapping[str, ArrayLike], low: ArrayLike, high: ArrayLike, knobs: Config
    ) -> None:
        """Start from an untrained agent's `state_dict`, copied."""
        self.knobs = knobs
        self.low, self.high = np.array(low, np.float64), np.array(high, np.float64)
        self.middle = (self.high + self.low) / 2
        self.half_range = (self.high - self.low) / 2

        def read(name: str) -> Network:
            keys = [k for k in weights if k.startswith(f"{name}.") and k.endswith(".weight")]
            biases = [k.removesuffix("weight") + "bias" for k in keys]
            pairs = zip(keys, biases)
            return [Layer(*(np.array(weights[k], np.float64) for k in pair)) for pair in pairs]

        self.actor, self.actor_target = read("actor.layers"), read("actor_target.layers")
        self.twins = [read("critic.twin1"), read("critic.twin2")]
        self.twin_targets = [read("critic_target.twin1"), read("critic_target.twin2")]
        self.actor_adam = Adam(self.actor, knobs.learning_rate)
        # Adam treats every parameter alone: one per twin is the same as one for both.
        self.twin_adams = [Adam(twin, knobs.learning_rate) for twin in self.twins]
        self.updates = 0

    def act(self, network: Network, state: Array) -> tuple[Array, list[Array], Array]:
        """The action, and what `backward` needs: the layers' inputs, and the tanh."""
        output, inputs = forward(network, state)
        squashed = np.tanh(output)
        return self.middle + self.half_range * squashed, inputs, squashed

    def judge(self, twin: Network, state: Array, action: Array) -> tuple[Array, list[Array]]:
        """Q of each row, as a column, and the layers' inputs."""
        normalised = (action - self.middle) / self.half_range
        return forward(twin, np.concatenate([state, normalised], axis=1))

    def update(self, batch: Iterable[Array], noise: Array) -> dict[str, float]:
        """One training iteration; `noise` is standard normal, one per row and dimension."""
        state, next_state, action, reward, done, steps = batch
        rows, state_dim = state.shape
        self.updates += 1

        # The target: clipped double Q-learning with a smoothed action.
        next_action, _, _ = self.act(self.actor_target, next_state)
        clipped = np.clip(
            self.knobs.policy_noise * noise, -self.knobs.noise_clip, self.knobs.noise_clip
        )
        next_action = np.clip(next_action + self.half_range * clipped, self.low, self.high)
        next_values = [self.judge(twin, next_state, next_action)[0] for twin in self.twin_targets]
        pessimistic = np.minimum(*next_values)
        discount = np.power(self.knobs.discount, steps)[:, None]
        target = reward[:, None] + discount * (1 - done[:, None]) * pessimistic

        # Each twin: loss = sum of (Q - target)^2 / rows, so d loss / d Q = 2 (Q - target) / rows.
        measured = {"critic_loss": 0.0}
        for number, (twin, adam) in enumerate(zip(self.twins, self.twin_adams)):
            Q, inputs = self.judge(twin, state, action)
            measured["critic_loss"] += float(np.mean((Q - target) ** 2))
            if number == 0:
                measured["mean_Q"] = float(np.mean(Q))
            gradients, _ = backward(twin, inputs, 2 * (Q - target) / rows)
            adam.descend(gradients)

        if self.updates % self.knobs.policy_freq != 0:
            return measured

        # The actor: loss = - sum of Q1 / rows. Its gradient flows back through the critic,
        # which does not change, to the action, and from there through the actor.
        action, actor_inputs, squashed = self.act(self.actor, state)
        Q, critic_inputs = self.judge(self.twins[0], state, action)
        measured["actor_loss"] = -float(np.mean(Q))
        _, gradient = backward(self.twins[0], critic_inputs, np.full((rows, 1), -1 / rows))
        gradient = gradient[:, state_dim:] / self.half_range  # normalised -> action, in its units
        gradient = gradient * self.half_range * (1 - squashed**2)  # action -> before the tanh
        gradients, _ = backward(self.actor, actor_inputs, gradient)
        self.actor_adam.descend(gradients)

        targets = [self.actor_target, *self.twin_targets]
        for target_network, network in zip(targets, [self.actor, *self.twins]):
            for target_layer, layer in zip(target_network, network):
                for old, new in zip(target_layer, layer):
                    old[...] = self.knobs.tau * new + (1 - self.knobs.tau) * old
        return measured

    def state_dict(self) -> dict[str, Array]:
        """Everything, under the names of T3D's own `state_dict` (the random streams aside)."""
        state: dict[str, Any] = {"updates": self.updates}

        def write(prefix: str, network: Network, suffix: str = "") -> None:
            for number, layer in enumerate(network):
                for name, value in layer._asdict().items():
                    # The ReLUs between the layers are numbered too.
                    state[f"{prefix}.{2 * number}.{name}{suffix}"] = value

        write("actor.layers", self.actor)
        write("actor_target.layers", self.actor_target)
        for number in (0, 1):
            write(f"critic.twin{number + 1}", self.twins[number])
            write(f"critic_target.twin{number + 1}", self.twin_targets[number])
        names = ["actor_optimizer.layers", "critic_optimizer.twin1", "critic_optimizer.twin2"]
        for name, adam in zip(names, [self.actor_adam, *self.twin_adams]):
            steps = [Layer(*(np.array(adam.step) for _ in layer)) for layer in adam.network]
            write(name, steps, ".step")
            write(name, adam.mean, ".exp_avg")
            write(name, adam.square, ".exp_avg_sq")
        return {key: np.array(value, np.float64) for key, value in state.items()}
