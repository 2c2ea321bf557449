"""Exploration: random actions first, to fill the memory; then the policy's, with noise."""

import numpy as np

from t3d.base.errors import BadInput, Diverged
from t3d.base.numbers import Array, all_finite
from t3d.base.randomness import generator
from t3d.config import Config
from t3d.play.evaluate import Policy


class Exploration:
    """Chooses the actions of some environments, with random streams of its own."""

    def __init__(
        self, config: Config, low: Array, high: Array, envs: range, stream: tuple[int, ...] = ()
    ) -> None:
        """`envs` are numbers among the run's environments; `stream` is explained in Collector."""
        for name in ("exploration_noise", "exploration_final"):
            numbers = len(getattr(config, name))
            if numbers not in (1, len(low)):
                expected = f"expected 1, or {len(low)}: one for each dimension"
                raise BadInput(f"{name} has {numbers} numbers; {expected} of the action")
        self.config, self.low, self.high = config, low, high
        self.random_actions = generator(config.seed, "random-actions", *stream)
        self.gaussian = generator(config.seed, "exploration", *stream)
        # Collectors that share the run's streams draw for all environments, and keep their rows.
        self._draws = len(envs) if stream else config.all_envs
        first = 0 if stream else envs.start
        self._rows = slice(first, first + len(envs))
        self._half_range = (high - low) / 2
        self.drift = np.zeros((len(envs), len(low)), np.float32)  # of Ornstein-Uhlenbeck noise

    def act(self, policy: Policy, state: Array, steps: int) -> Array:
        """The actions of the step that follows `steps` steps, one row for each environment."""
        shape = (self._draws, len(self.low))
        if steps < self.config.random_steps:
            actions = self.random_actions.uniform(self.low, self.high, shape)
            return actions[self._rows].astype(np.float32)
        # One draw per environment and per dimension.
        noise = self.gaussian.standard_normal(shape, np.float32)[self._rows]
        if self.config.exploration == "ou":
            self.drift += noise - np.float32(self.config.exploration_pull) * self.drift
            noise = self.drift.copy()
        noise *= self._half_range * noise_scale(self.config, steps)
        noise += policy(state)
        if not all_finite(noise):
            raise Diverged("its action is not finite")
        return noise.clip(self.low, self.high, out=noise)


def noise_scale(config: Config, steps: int) -> Array:
    """The standard deviation of the noise at a step after the random ones, in half-ranges."""
    scale = np.array(config.exploration_noise, np.float32)
    if config.exploration_steps:
        share = np.float32(min(1.0, (steps - config.random_steps) / config.exploration_steps))
        scale = scale + share * (np.array(config.exploration_final, np.float32) - scale)
    return scale


def mean_noise(config: Config, steps: int) -> float:
    """The same as one number, the mean over dimensions; 1 while actions are random."""
    return 1.0 if steps < config.random_steps else float(np.mean(noise_scale(config, steps)))
