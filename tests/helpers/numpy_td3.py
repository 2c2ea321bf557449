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


class Linear(NamedTuple):
    """x -> weight x + bias; also used for what belongs to such a layer: its gradients."""

    weight: Array  # (outputs, inputs)
    bias: Array  # (outputs,)


class LayerNorm(NamedTuple):
    """x -> weight (x - mean) / std + bias, with mean and std of the row; also for its gradients."""

    weight: Array  # (units,)
    bias: Array


class Activation(NamedTuple):
    """x -> a function of x, unit by unit. It has no parameters."""

    function: str


Layer = Linear | LayerNorm | Activation
Network = list[Layer]


def forward(network: Network, x: Array) -> tuple[Array, list[Array]]:
    """The network's output for a batch of rows, and the input of each layer."""
    inputs: list[Array] = []
    for layer in network:
        inputs.append(x)
        match layer:
            case Linear():
                x = x @ layer.weight.T + layer.bias
            case LayerNorm():
                x = layer.weight * standardised(x)[0] + layer.bias
            case Activation("relu"):
                x = np.maximum(x, 0)
            case Activation("elu"):
                x = np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)
            case Activation("tanh"):
                x = np.tanh(x)
    return x, inputs


def standardised(x: Array) -> tuple[Array, Array]:
    """Each row with mean 0 and variance 1, and its standard deviation."""
    std = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=1, keepdims=True)) / std, std


def backward(network: Network, inputs: list[Array], gradient: Array) -> tuple[Network, Array]:
    """The chain rule, from the last layer to the first.

    `gradient` is d loss / d output, one row per row of the batch. Returns d loss / d each weight
    and bias, and d loss / d the network's input.
    """
    gradients: Network = []
    for layer, x in zip(reversed(network), reversed(inputs)):
        match layer:
            case Linear():
                # output[i] = sum_j weight[i, j] x[j] + bias[i], and the rows of the batch add up.
                gradients.append(Linear(gradient.T @ x, gradient.sum(axis=0)))
                gradient = gradient @ layer.weight
            case LayerNorm():
                normal, std = standardised(x)
                gradients.append(LayerNorm((gradient * normal).sum(axis=0), gradient.sum(axis=0)))
                # d normal[i] / d x[j] = ((i == j) - 1 / units - normal[i] normal[j] / units) / std.
                by_normal = gradient * layer.weight
                mean = by_normal.mean(axis=1, keepdims=True)
                along = (by_normal * normal).mean(axis=1, keepdims=True)
                gradient = (by_normal - mean - normal * along) / std
            case Activation(function):
                gradients.append(layer)
                slopes = {
                    "relu": np.where(x > 0, 1.0, 0.0),
                    "elu": np.where(x > 0, 1.0, np.exp(np.minimum(x, 0))),
                    "tanh": 1 / np.cosh(np.clip(x, -300, 300)) ** 2,
                }
                gradient = gradient * slopes[function]
    return gradients[::-1], gradient


def arrays(network: Network) -> list[Array]:
    """All parameters of a network, or all their gradients."""
    return [array for layer in network if not isinstance(layer, Activation) for array in layer]


class Adam:
    """Kingma and Ba, 2015, on the parameters of some networks, which it changes in place."""

    def __init__(self, *networks: Network) -> None:
        self.parameters = [array for network in networks for array in arrays(network)]
        self.step = 0
        self.mean = [np.zeros_like(parameter) for parameter in self.parameters]
        self.square = [np.zeros_like(parameter) for parameter in self.parameters]

    def descend(self, gradients: list[Array], rate: float, knobs: Config) -> None:
        self.step += 1
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients)) + 1e-6  # as PyTorch
        if knobs.gradient_clip and norm > knobs.gradient_clip:
            gradients = [gradient * knobs.gradient_clip / norm for gradient in gradients]
        for parameter, mean, square, gradient in zip(
            self.parameters, self.mean, self.square, gradients
        ):
            mean[...] = 0.9 * mean + (1 - 0.9) * gradient
            square[...] = 0.999 * square + (1 - 0.999) * gradient**2
            # Both averages started at 0 and are too small by these factors.
            unbiased_mean = mean / (1 - 0.9**self.step)
            unbiased_square = square / (1 - 0.999**self.step)
            parameter -= rate * knobs.weight_decay * parameter  # Loshchilov and Hutter, 2019
            parameter -= rate * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)


def rate_at(knobs: Config, own: float, updates: int) -> float:
    """The learning rate after so many updates of a run."""
    rate = own if own > 0 else knobs.learning_rate
    total = max(1, round((knobs.steps - knobs.random_steps) * knobs.updates_per_step))
    left = {
        "constant": 1.0,
        "linear": 1 - updates / total,
        "cosine": 0.5 + 0.5 * np.cos(np.pi * updates / total),
    }[knobs.learning_rate_schedule]
    if knobs.learning_rate_schedule != "constant" and updates > total:
        left = 0.0
    lowest = knobs.learning_rate_final * rate
    return float(lowest + (rate - lowest) * left)


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
            network: Network = []
            for key in keys:
                pair = key, key.removesuffix("weight") + "bias"
                weight, bias = (np.array(weights[k], np.float64) for k in pair)
                if weight.ndim == 1:
                    network.append(LayerNorm(weight, bias))
                    continue
                if network:
                    network.append(Activation(knobs.activation))
                network.append(Linear(weight, bias))
            return network

        self.actor, self.actor_target = read("actor.layers"), read("actor_target.layers")
        self.twins = [read("critic.twin1"), read("critic.twin2")]
        self.twin_targets = [read("critic_target.twin1"), read("critic_target.twin2")]
        self.actor_adam, self.critic_adam = Adam(self.actor), Adam(*self.twins)
        self.updates = 0
        self.last_actor = 0  # the last update that moved the actor

    def critic_loss(self, error: Array) -> tuple[Array, Array]:
        """The loss of each row, and its derivative by the value."""
        if self.knobs.sampling != "lap":
            return error**2, 2 * error
        near = np.abs(error) < 1
        return np.where(near, error**2 / 2, np.abs(error) - 1 / 2), np.clip(error, -1, 1)

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
        actor_rate, critic_rate = (
            rate_at(self.knobs, own, self.updates)
            for own in (self.knobs.actor_learning_rate, self.knobs.critic_learning_rate)
        )
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
        # With LAP's rows, Huber's loss: half of the square up to 1, and linear from there.
        measured = {"critic_loss": 0.0}
        critic_gradients: list[Array] = []
        for number, twin in enumerate(self.twins):
            Q, inputs = self.judge(twin, state, action)
            loss, derivative = self.critic_loss(Q - target)
            measured["critic_loss"] += float(np.mean(loss))
            if number == 0:
                measured["mean_Q"] = float(np.mean(Q))
            gradients, _ = backward(twin, inputs, derivative / rows)
            critic_gradients += arrays(gradients)
        self.critic_adam.descend(critic_gradients, critic_rate, self.knobs)

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
        self.actor_adam.descend(arrays(gradients), actor_rate, self.knobs)

        tau, every = self.knobs.tau, self.knobs.target_every
        if every:  # copies, when a multiple of it has passed since the actor's last update
            passed = any(n % every == 0 for n in range(self.updates, self.last_actor, -1))
            tau = 1.0 if passed else 0.0
        self.last_actor = self.updates
        targets = [self.actor_target, *self.twin_targets]
        for target_network, network in zip(targets, [self.actor, *self.twins]):
            for old, new in zip(arrays(target_network), arrays(network)):
                old[...] = tau * new + (1 - tau) * old
        return measured

    def state_dict(self) -> dict[str, Array]:
        """Everything, under the names of T3D's own `state_dict` (the random streams aside)."""
        state: dict[str, Any] = {"updates": self.updates}

        def names(prefix: str, network: Network) -> list[str]:
            """The names of `arrays(network)`; layers without parameters are numbered, too."""
            return [
                f"{prefix}.{number}.{field}"
                for number, layer in enumerate(network)
                if not isinstance(layer, Activation)
                for field in ("weight", "bias")
            ]

        targets = [self.actor_target, *self.twin_targets]
        parts = zip([self.actor, *self.twins], targets, ("layers", "twin1", "twin2"))
        of_optimizer: dict[str, list[str]] = {"actor": [], "critic": []}
        for network, target, part in parts:
            owner = "actor" if part == "layers" else "critic"
            state |= zip(names(f"{owner}.{part}", network), arrays(network))
            state |= zip(names(f"{owner}_target.{part}", target), arrays(target))
            of_optimizer[owner] += names(f"{owner}_optimizer.{part}", network)
        for owner, adam in (("actor", self.actor_adam), ("critic", self.critic_adam)):
            for name, mean, square in zip(of_optimizer[owner], adam.mean, adam.square):
                state |= {f"{name}.step": adam.step}
                state |= {f"{name}.exp_avg": mean, f"{name}.exp_avg_sq": square}
        return {key: np.array(value, np.float64) for key, value in state.items()}
