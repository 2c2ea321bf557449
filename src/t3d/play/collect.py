"""Act, step, store."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from t3d.base.errors import BadInput, Diverged
from t3d.base.numbers import Array, all_finite
from t3d.base.randomness import generator, generator_state, set_generator_state
from t3d.config import Config
from t3d.play.vector import Environments

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
        truncated: ArrayLike,
        envs: ArrayLike | None = None,
    ) -> None:
        """Store a step of each environment, or of some."""

    def end(self, env: int) -> None:
        """What an environment gives next follows nothing that it gave before."""


class Episode(NamedTuple):
    """One finished episode."""

    env: int
    number: int
    length: int
    total: float  # its undiscounted return


class News(NamedTuple):
    """Something that went wrong while playing, and was mended."""

    kind: str  # of its line in metrics.jsonl
    facts: dict[str, Any]
    text: str


class Collector:
    """Plays N environments with a policy and stores what happens."""

    def __init__(
        self, environments: Environments, config: Config, stream: tuple[int, ...] = ()
    ) -> None:
        """Collectors of one run share its random streams, unless each has a `stream` of its own."""
        self.environments = environments
        self.config = config
        self.steps = 0  # environment steps played, over all environments
        self.length = np.zeros(environments.num_envs, np.int64)
        self.total = np.zeros(environments.num_envs, np.float64)
        self.chosen: Array | None = None  # actions that a broken environment has not played
        self.random_actions = generator(config.seed, "random-actions", *stream)
        self.exploration = generator(config.seed, "exploration", *stream)
        # Who shares them draws for all environments, and takes the rows of its own.
        first = 0 if stream else environments.first
        self._drawn = environments.num_envs if stream else config.all_envs
        self._mine = slice(first, first + environments.num_envs)
        self._half_range = (environments.high - environments.low) / 2
        for name in ("exploration_noise", "exploration_final"):
            given = len(getattr(config, name))
            if given not in (1, len(environments.low)):
                expected = f"expected 1, or {len(environments.low)}: one for each dimension"
                raise BadInput(f"{name} has {given} numbers; {expected} of the action")
        self.drift = np.zeros((environments.num_envs, len(environments.low)), np.float32)

    def _act(self, policy: Policy) -> Array:
        """Random actions first, to fill the memory; then the policy's with noise."""
        low, high = self.environments.low, self.environments.high
        shape = (self._drawn, len(low))
        if self.steps < self.config.random_steps:
            drawn = self.random_actions.uniform(low, high, shape)
            return drawn[self._mine].astype(np.float32)
        # One draw per environment and per dimension.
        noise = self.exploration.standard_normal(shape, np.float32)[self._mine]
        if self.config.exploration == "ou":
            self.drift += noise - np.float32(self.config.exploration_pull) * self.drift
            noise = self.drift.copy()
        noise *= self._half_range * noise_scale(self.config, self.steps)
        noise += policy(self.environments.state)
        if not all_finite(noise):
            raise Diverged("its action is not finite")
        return noise.clip(low, high, out=noise)

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self.environments.reset()

    @property
    def state(self) -> Array:
        """Where the environments of the last step stand now."""
        return self.environments.state

    @property
    def lost(self) -> list[int]:
        """Environments that could not go on from where a checkpoint left them."""
        return self.environments.lost

    def take_news(self) -> list[News]:
        """Environments whose process was lost since this was asked last, and is another now."""
        news = []
        for index, why in self.environments.vector.take_restarts():
            env, episode = self.environments.first + index, int(self.environments.episode[index])
            text = f"the process of environment {env} {why} and was restarted"
            news.append(News("restart", {"env": env, "episode": episode, "why": why}, text))
        return news

    def measured(self) -> dict[str, float]:
        """What to write beside how learning goes. Here there is nothing."""
        return {}

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
            self.length[lost], self.total[lost], self.drift[lost] = -1, 0, 0
            memory.add(
                state[played],
                next_state[played],
                action[played],
                reward[played],
                terminated[played],
                truncated[played],
                envs=played,
            )
            for env in lost:
                memory.end(env)
        else:
            memory.add(state, next_state, action, reward, terminated, truncated)
        self.steps += len(reward) - len(lost)
        self.length += 1
        self.total += reward
        episodes = []
        for i in np.flatnonzero(terminated | truncated):
            number = int(self.environments.episode[i]) - 1  # by now the next has begun
            env = self.environments.first + int(i)
            episodes.append(Episode(env, number, int(self.length[i]), float(self.total[i])))
            self.length[i], self.total[i], self.drift[i] = 0, 0, 0
        return episodes

    def state_dict(self) -> dict[str, Array]:
        """Counters, random streams and where each environment stands, as arrays."""
        mine = {
            "steps": np.array(self.steps),
            "length": self.length.copy(),
            "total": self.total.copy(),
            "drift": self.drift.copy(),
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
        self.drift = arrays["drift"].copy()
        self.chosen = arrays["chosen"].copy() if arrays["chosen"].size else None
        self.length[self.lost] = 0
        self.total[self.lost] = 0
        self.drift[self.lost] = 0
        set_generator_state(self.random_actions, arrays["random_actions"])
        set_generator_state(self.exploration, arrays["exploration"])

    def close(self) -> None:
        """End the environments."""
        self.environments.close()


def noise_scale(config: Config, steps: int) -> Array:
    """The exploration's standard deviation at a step after the random ones, in half-ranges."""
    scale = np.array(config.exploration_noise, np.float32)
    if config.exploration_steps:
        share = np.float32(min(1.0, (steps - config.random_steps) / config.exploration_steps))
        scale = scale + share * (np.array(config.exploration_final, np.float32) - scale)
    return scale


def mean_noise(config: Config, steps: int) -> float:
    """The same as one number, the mean over dimensions; 1 while actions are random."""
    return 1.0 if steps < config.random_steps else float(np.mean(noise_scale(config, steps)))
