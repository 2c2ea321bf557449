"""Act, step, store."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from t3d.config import Config
from t3d.errors import DivergedError
from t3d.numbers import all_finite
from t3d.play.vector import Environments
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
        self.chosen: Array | None = None  # actions that a broken environment has not played
        self.random_actions = generator(config.seed, "random-actions")
        self.exploration = generator(config.seed, "exploration")
        # Noise is in units of each dimension's half-range.
        half = (environments.high - environments.low) / 2
        self._noise_scale = half * np.float32(config.exploration_noise)

    def _act(self, policy: Policy) -> Array:
        """Random actions first, to fill the memory; then the policy's with Gaussian noise."""
        low, high = self.environments.low, self.environments.high
        shape = (self.environments.num_envs, len(low))
        if self.steps < self.config.random_steps:
            return self.random_actions.uniform(low, high, shape).astype(np.float32)
        # One draw per environment and per dimension.
        noise = self.exploration.standard_normal(shape, np.float32)
        noise *= self._noise_scale
        noise += policy(self.environments.state)
        if not all_finite(noise):
            raise DivergedError("its action is not finite")
        return noise.clip(low, high, out=noise)

    def step(
        self,
        policy: Policy,
        memory: Memory,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> list[Episode]:
        """One step in every environment; returns the episodes that it ended.

        `beside` is entered when the actions are chosen, and left before anything is stored.
        """
        self.environments.check()
        state = self.environments.state
        action = self._act(policy) if self.chosen is None else self.chosen
        self.chosen = action
        with beside():
            next_state, reward, terminated, truncated, lost = self.environments.step(action)
        self.chosen = None
        # Truncation is not termination: a state that a time limit cut off still has a value.
        if lost:  # these have not played: what they were doing is cut short, and nothing is stored
            played = np.delete(np.arange(len(reward)), lost)
            self.length[lost], self.total[lost] = -1, 0
            state, next_state, action = state[played], next_state[played], action[played]
            memory.add(state, next_state, action, reward[played], terminated[played])
        else:
            memory.add(state, next_state, action, reward, terminated)
        self.steps += len(reward) - len(lost)
        self.length += 1
        self.total += reward
        episodes = []
        for i in np.flatnonzero(terminated | truncated):
            number = int(self.environments.episode[i]) - 1  # by now the next has begun
            episodes.append(Episode(int(i), number, int(self.length[i]), float(self.total[i])))
            self.length[i], self.total[i] = 0, 0
        return episodes

    def state_dict(self) -> dict[str, Array]:
        """Counters, random streams and where each environment stands, as arrays."""
        mine = {
            "steps": np.array(self.steps),
            "length": self.length.copy(),
            "total": self.total.copy(),
            "chosen": np.zeros((0, 0), np.float32) if self.chosen is None else self.chosen,
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
        self.chosen = arrays["chosen"].copy() if arrays["chosen"].size else None
        self.length[self.environments.lost] = 0
        self.total[self.environments.lost] = 0
        set_generator_state(self.random_actions, arrays["random_actions"])
        set_generator_state(self.exploration, arrays["exploration"])
