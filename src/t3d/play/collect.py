"""Act, step, store."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from t3d.config import Config
from t3d.errors import T3DError
from t3d.play.envs import Environments
from t3d.randomness import generator, generator_state, set_generator_state

Array = NDArray[Any]
Policy = Callable[[Array], Array]  # states (n, state_dim) -> actions (n, action_dim)


class Memory(Protocol):
    """Where transitions go."""

    def add(
        self,
        state: ArrayLike,
        next_state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
    ) -> None:
        """Store a batch of transitions."""


class Episode(NamedTuple):
    """One finished episode."""

    env: int
    number: int
    length: int
    total: float  # its undiscounted return


class Collector:
    """Plays N environments with a policy and stores what happens."""

    def __init__(self, environments: Environments, config: Config) -> None:
        self.environments = environments
        self.config = config
        self.steps = 0  # environment steps played, over all environments
        self.length = np.zeros(environments.num_envs, np.int64)
        self.total = np.zeros(environments.num_envs, np.float64)
        self.random_actions = generator(config.seed, "random-actions")
        self.exploration = generator(config.seed, "exploration")

    def _act(self, policy: Policy) -> Array:
        """Random actions first, to fill the memory; then the policy's with Gaussian noise."""
        low, high = self.environments.low, self.environments.high
        shape = (self.environments.num_envs, len(low))
        if self.steps < self.config.random_steps:
            return self.random_actions.uniform(low, high, shape).astype(np.float32)
        # One draw per environment and per dimension, in units of that dimension's half-range.
        noise = self.exploration.standard_normal(shape, np.float32) * (high - low) / 2
        action = policy(self.environments.state) + noise * self.config.exploration_noise
        if not np.isfinite(action).all():
            advice = "lower --learning-rate, or scale the rewards down"
            raise T3DError(f"the agent diverged by step {self.steps}: its action is nan; {advice}")
        return np.clip(action, low, high).astype(np.float32)

    def step(
        self,
        policy: Policy,
        memory: Memory,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> list[Episode]:
        """One step in every environment; returns the episodes that it ended.

        `beside` is entered when the actions are chosen, and left before anything is stored.
        """
        state = self.environments.state
        numbers = self.environments.episode.copy()
        random = self.steps < self.config.random_steps
        stream = self.random_actions if random else self.exploration
        before = stream.bit_generator.state
        try:
            action = self._act(policy)
            with beside():
                next_state, reward, terminated, truncated = self.environments.step(action)
        except T3DError:  # the step was not played, so its numbers were not drawn
            stream.bit_generator.state = before
            raise
        # Truncation is not termination: a state that a time limit cut off still has a value.
        memory.add(state, next_state, action, reward, terminated)
        self.steps += len(reward)
        self.length += 1
        self.total += reward
        ended = np.flatnonzero(terminated | truncated)
        episodes = [
            Episode(int(i), int(numbers[i]), int(self.length[i]), float(self.total[i]))
            for i in ended
        ]
        self.length[ended] = 0
        self.total[ended] = 0
        return episodes

    def state_dict(self) -> dict[str, Array]:
        """Counters, random streams and where each environment stands, as arrays."""
        mine = {
            "steps": np.array(self.steps),
            "length": self.length.copy(),
            "total": self.total.copy(),
            "random_actions": generator_state(self.random_actions),
            "exploration": generator_state(self.exploration),
        }
        theirs = self.environments.state_dict()
        return mine | {f"environments.{name}": array for name, array in theirs.items()}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Go on from where `state_dict` was taken."""
        prefix = "environments."
        theirs = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        self.environments.load_state_dict(theirs)
        self.steps = int(arrays["steps"])
        self.length = arrays["length"].copy()
        self.total = arrays["total"].copy()
        self.length[self.environments.lost] = 0
        self.total[self.environments.lost] = 0
        set_generator_state(self.random_actions, arrays["random_actions"])
        set_generator_state(self.exploration, arrays["exploration"])
