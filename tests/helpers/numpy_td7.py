"""One TD7 update in NumPy, every gradient worked out by hand: what T3D's TD7 must agree with.

Written from the description of the algorithm (Fujimoto, Chang, Smith, Gu, Precup and Meger,
2023), in float64. Layers, the chain rule through them and Adam are those of the TD3 oracle;
here is what TD7 adds: embeddings of states and actions, their normalisation, and hard copies.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers.numpy_td3 import (
    Activation,
    Adam,
    Array,
    Linear,
    Network,
    arrays,
    backward,
    forward,
    rate_at,
)
from t3d import Config

SMALLEST = 1e-8  # what avg_l1_norm divides by, at least


def avg_l1_norm(x: Array) -> Array:
    """Each row divided by the mean of its absolute values."""
    mean: Array = np.abs(x).mean(axis=-1, keepdims=True)
    return x / np.maximum(mean, SMALLEST)


def avg_l1_norm_backward(x: Array, gradient: Array) -> Array:
    """D loss / d x, from d loss / d avg_l1_norm(x)."""
    mean: Array = np.abs(x).mean(axis=-1, keepdims=True)
    # output[i] = x[i] / mean, and d mean / d x[j] = sign(x[j]) / units, so
    # d output[i] / d x[j] = (i == j) / mean - x[i] sign(x[j]) / units / mean^2.
    # Where the mean is too small, x is divided by a constant instead.
    along: Array = (gradient * x).mean(axis=-1, keepdims=True)
    divisor = np.maximum(mean, SMALLEST)
    return gradient / divisor - np.where(mean < SMALLEST, 0, along * np.sign(x) / divisor**2)


class Encoder(NamedTuple):
    """`f` embeds a state, and `g` that embedding together with an action."""

    f: Network
    g: Network

    def embed(self, state: Array) -> tuple[Array, list[Array], Array]:
        """The state's embedding zs; the inputs of f's layers, and its output unnormalised."""
        output, inputs = forward(self.f, state)
        return avg_l1_norm(output), inputs, output

    def predict(self, zs: Array, action: Array) -> tuple[Array, list[Array]]:
        """The pair's embedding zsa, and the inputs of g's layers; the action is -1..1."""
        return forward(self.g, np.concatenate([zs, action], axis=-1))


# What `Head.backward` needs: the input of `first`, its output, and the inputs of `layers`.
Tape = tuple[list[Array], Array, list[Array]]


class Head(NamedTuple):
    """An actor or a critic: one layer, normalised, then embeddings join, then all others."""

    first: Network
    layers: Network

    def forward(self, x: list[Array], embeddings: list[Array]) -> tuple[Array, Tape]:
        """The output, where several arrays stand for one, side by side."""
        hidden, first_inputs = forward(self.first, np.concatenate(x, axis=-1))
        joined = np.concatenate([avg_l1_norm(hidden), *embeddings], axis=-1)
        output, inputs = forward(self.layers, joined)
        return output, (first_inputs, hidden, inputs)

    def backward(self, tape: Tape, gradient: Array) -> tuple[list[Array], Array, Array]:
        """The parameters' gradients, and d loss / d x and / d all embeddings, side by side."""
        first_inputs, hidden, inputs = tape
        late, gradient = backward(self.layers, inputs, gradient)
        units = hidden.shape[1]
        by_hidden = avg_l1_norm_backward(hidden, gradient[:, :units])
        early, by_x = backward(self.first, first_inputs, by_hidden)
        return arrays(early) + arrays(late), by_x, gradient[:, units:]


class NumpyTD7:
    """Three encoders, actor and critics with their targets, and how one update changes them."""

    def __init__(
        self, weights: Mapping[str, ArrayLike], low: ArrayLike, high: ArrayLike, knobs: Config
    ) -> None:
        """Start from an untrained agent's `state_dict`, copied."""
        self.knobs = knobs
        lowest, highest = np.array(low, np.float64), np.array(high, np.float64)
        self.middle, self.half_range = (highest + lowest) / 2, (highest - lowest) / 2
        self.target_every = knobs.target_every or 250
        self.parameters: dict[str, Array] = {}  # by name, as Adam and `copy` change them in place

        def layer(name: str) -> Linear:
            names = [f"{name}.weight", f"{name}.bias"]
            self.parameters |= {key: np.array(weights[key], np.float64) for key in names}
            return Linear(*(self.parameters[key] for key in names))

        def read(name: str, activation: str) -> Network:
            """The linear layers 0, 2, 4... as far as they go, with the activation between."""
            network: Network = [layer(f"{name}.0")]
            while f"{name}.{len(network) + 1}.weight" in weights:
                network += [Activation(activation), layer(f"{name}.{len(network) + 1}")]
            return network

        def encoder(name: str) -> Encoder:
            return Encoder(read(f"{name}.f", "elu"), read(f"{name}.g", "elu"))

        def head(name: str, activation: str) -> Head:
            return Head([layer(f"{name}.first")], read(f"{name}.layers", activation))

        self.encoder, self.fixed_encoder = encoder("encoder"), encoder("fixed_encoder")
        self.fixed_encoder_target = encoder("fixed_encoder_target")
        self.actor = head("actor.mixer", "relu")
        self.actor_target = head("actor_target.mixer", "relu")
        self.twins = [head(f"critic.{twin}", "elu") for twin in ("twin1", "twin2")]
        self.twin_targets = [head(f"critic_target.{twin}", "elu") for twin in ("twin1", "twin2")]
        self.actor_adam, self.encoder_adam = Adam(*self.actor), Adam(*self.encoder)
        self.critic_adam = Adam(*self.twins[0], *self.twins[1])
        # The lowest and the highest target so far.
        self.seen = np.array(weights["values.seen"], np.float64)
        self.limits = np.zeros(2)  # between which the targets' values of the next state are kept
        self.td_errors = np.zeros(0)  # of the last batch, per row: the larger of both twins'
        self.updates = 0

    def critic_loss(self, error: Array) -> tuple[Array, Array]:
        """The loss of each row, and its derivative by the value."""
        if self.knobs.sampling == "uniform":
            return error**2, 2 * error
        near = np.abs(error) < 1
        return np.where(near, error**2 / 2, np.abs(error) - 1 / 2), np.clip(error, -1, 1)

    def act(self, state: Array) -> Array:
        """The action in a state, or in each row of states, in the environment's units."""
        zs, _, _ = self.fixed_encoder.embed(state)
        output, _ = self.actor.forward([state], [zs])
        return self.middle + self.half_range * np.tanh(output)

    def update(self, batch: Iterable[Array], noise: Array) -> dict[str, float]:
        """One training iteration; `noise` is standard normal, one per row and dimension."""
        state, next_state, action, reward, done, steps = batch
        scaled = (action - self.middle) / self.half_range  # -1..1, as are all actions below
        knobs = self.knobs
        rates = (0.0, knobs.critic_learning_rate, knobs.actor_learning_rate)
        encoder_rate, critic_rate, actor_rate = (rate_at(knobs, r, self.updates) for r in rates)
        self.updates += 1

        measured = {"encoder_loss": self.improve_encoder(state, scaled, next_state, encoder_rate)}
        # The target: clipped double Q-learning with a smoothed action, within the limits.
        next_zs, _, _ = self.fixed_encoder_target.embed(next_state)
        output, _ = self.actor_target.forward([next_state], [next_zs])
        clipped = np.clip(knobs.policy_noise * noise, -knobs.noise_clip, knobs.noise_clip)
        next_scaled = np.clip(np.tanh(output) + clipped, -1, 1)
        next_zsa, _ = self.fixed_encoder_target.predict(next_zs, next_scaled)
        pair, embeddings = [next_state, next_scaled], [next_zsa, next_zs]
        next_values = [twin.forward(pair, embeddings)[0] for twin in self.twin_targets]
        pessimistic = np.clip(np.minimum(*next_values), *self.limits)
        discount = np.power(knobs.discount, steps)[:, None]
        target = reward[:, None] + discount * (1 - done[:, None]) * pessimistic
        lowest, highest = self.seen
        self.seen = np.array([min(lowest, target.min()), max(highest, target.max())])

        # Each twin: loss = sum of the rows' losses / rows.
        zs, _, _ = self.fixed_encoder.embed(state)
        zsa, _ = self.fixed_encoder.predict(zs, scaled)
        measured["critic_loss"] = 0.0
        errors: list[Array] = []
        gradients: list[Array] = []
        for twin in self.twins:
            Q, tape = twin.forward([state, scaled], [zsa, zs])
            if not errors:
                measured["mean_Q"] = float(np.mean(Q))
            errors.append(np.abs(Q - target)[:, 0])
            loss, derivative = self.critic_loss(Q - target)
            measured["critic_loss"] += float(np.mean(loss))
            gradients += twin.backward(tape, derivative / len(state))[0]
        self.td_errors = np.maximum(*errors)
        self.critic_adam.descend(gradients, critic_rate, knobs)

        if self.updates % knobs.policy_freq == 0:
            measured["actor_loss"] = self.improve_actor(state, zs, actor_rate)

        if self.updates % self.target_every == 0:
            self.copy("actor", "actor_target")
            self.copy("critic", "critic_target")
            self.copy("fixed_encoder", "fixed_encoder_target")
            self.copy("encoder", "fixed_encoder")
            self.limits = self.seen.copy()
        return measured

    def improve_encoder(self, state: Array, action: Array, next_state: Array, rate: float) -> float:
        """One step of the encoder towards zsa = the next state's zs, which counts as given."""
        zs, f_inputs, unnormalised = self.encoder.embed(state)
        zsa, g_inputs = self.encoder.predict(zs, action)
        error = zsa - self.encoder.embed(next_state)[0]
        # The loss is the mean of error^2, whose gradient flows back through g, then zs, then f.
        g_gradients, by_pair = backward(self.encoder.g, g_inputs, 2 * error / error.size)
        by_output = avg_l1_norm_backward(unnormalised, by_pair[:, : zs.shape[1]])
        f_gradients, _ = backward(self.encoder.f, f_inputs, by_output)
        self.encoder_adam.descend(arrays([*f_gradients, *g_gradients]), rate, self.knobs)
        return float(np.mean(error**2))

    def improve_actor(self, state: Array, zs: Array, rate: float) -> float:
        """One step of the actor towards a larger mean of both twins' values."""
        output, actor_tape = self.actor.forward([state], [zs])
        action = np.tanh(output)
        zsa, g_inputs = self.fixed_encoder.predict(zs, action)
        loss = 0.0
        by_action, by_zsa = np.zeros_like(action), np.zeros_like(zsa)
        for twin in self.twins:
            Q, tape = twin.forward([state, action], [zsa, zs])
            loss -= float(np.mean(Q)) / 2
            _, by_pair, by_embeddings = twin.backward(tape, np.full_like(Q, -1 / Q.size / 2))
            by_action += by_pair[:, state.shape[1] :]
            by_zsa += by_embeddings[:, : zsa.shape[1]]
        # The action moves the values in two ways: by itself, and through g.
        by_action += backward(self.fixed_encoder.g, g_inputs, by_zsa)[1][:, zs.shape[1] :]
        gradients, _, _ = self.actor.backward(actor_tape, by_action * (1 - action**2))
        self.actor_adam.descend(gradients, rate, self.knobs)
        return loss

    def copy(self, source: str, destination: str) -> None:
        """Make all parameters of the destination equal to the source's."""
        for name, parameter in self.parameters.items():
            if name.startswith(f"{destination}."):
                parameter[...] = self.parameters[source + name.removeprefix(destination)]

    def state_dict(self) -> dict[str, Array]:
        """Everything, under the names of T3D's own `state_dict` (the random streams aside)."""
        state: dict[str, ArrayLike] = {"updates": self.updates, **self.parameters}
        state |= {"values.seen": self.seen, "values.limits": self.limits}
        adams = {"actor": self.actor_adam, "critic": self.critic_adam, "encoder": self.encoder_adam}
        for owner, adam in adams.items():
            names = [name for name in self.parameters if name.startswith(f"{owner}.")]
            for name, mean, square in zip(names, adam.mean, adam.square):
                name = name.replace(owner, f"{owner}_optimizer", 1)
                state |= {f"{name}.step": adam.step}
                state |= {f"{name}.exp_avg": mean, f"{name}.exp_avg_sq": square}
        return {key: np.array(value, np.float64) for key, value in state.items()}
