"""Act, step, store."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from t3d.base.numbers import Array
from t3d.base.randomness import generator_state, set_generator_state
from t3d.config import Config
from t3d.play.collecting import (
    Episode,
    Event,
    Meanwhile,
    Memory,
    Transition,
    restart_event,
)
from t3d.play.evaluate import EvaluationEnv, Policy, Score, evaluate
from t3d.play.explore import Exploration
from t3d.play.vector import Environments

# The arrays of a collector's state that have a row for each action.
_GROWING = ("environments.played", "environments.proof.played_before", "chosen")


class Played(NamedTuple):
    """One step of a collector."""

    transition: Transition
    lost: list[int]  # environments that did not play it, since their process was lost
    episodes: list[Episode]  # that it ended


class Collector:
    """Plays N environments with a policy and stores their transitions."""

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
        self.low, high = environments.low, environments.high
        self.exploration = Exploration(config, self.low, high, environments.indices, stream)

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self.environments.reset()

    @property
    def state(self) -> Array:
        """The current states of the environments."""
        return self.environments.state

    @property
    def lost(self) -> list[int]:
        """Environments that could not resume the episode of a checkpoint: they began another."""
        return self.environments.lost

    @property
    def at_rest(self) -> bool:
        """Whether an evaluation may be played now."""
        return self.environments.at_rest

    def cut(self) -> list[int]:
        """Cut the episode in progress in the only environment: its number; else none."""
        cut = self.environments.cut()
        self._drop(cut)
        return cut

    def take_events(self) -> list[Event]:
        """The environments whose process was lost and restarted since the last call."""
        events = []
        for index, why in self.environments.take_restarts():
            env, episode = self.environments.first + index, int(self.environments.episode[index])
            events.append(restart_event(env, why, episode=episode))
        return events

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, when its next episode begins."""
        self.environments.set_attribute(name, value)

    def measures(self) -> dict[str, float]:
        """How late steps were, at a control rate."""
        return self.environments.lateness.take()

    def step(
        self, policy: Policy, memory: Memory, meanwhile: Meanwhile = nullcontext
    ) -> list[Episode]:
        """Play one step in every environment and store it; returns the episodes that it ended.

        `meanwhile` is entered once the actions are chosen, and left before anything is stored.
        """
        transition, lost, episodes = self.play(policy, meanwhile)
        memory.add(*transition)
        for env in lost:
            memory.end(env)
        return episodes

    def play(self, policy: Policy, meanwhile: Meanwhile = nullcontext) -> Played:
        """One step in every environment, not stored."""
        self.environments.check()
        state = self.environments.state
        if self.chosen is None:
            self.chosen = self.exploration.act(policy, state, self.steps)
        action = self.chosen
        with meanwhile():
            steps = self.environments.step(action)
        next_state, reward, terminated, truncated, lost, infos = steps
        self.chosen = None
        transition = Transition(state, next_state, action, reward, terminated, truncated)
        if lost:  # these did not play: their episode is cut short, and nothing of it is stored
            transition = transition.only(np.delete(np.arange(len(reward)), lost))
            self._forget(lost)
            self.length[lost] = -1
        self.steps += len(reward) - len(lost)
        self.length += 1
        self.total += reward
        episodes = []
        for i in np.flatnonzero(terminated | truncated):
            number = int(self.environments.episode[i]) - 1  # by now the next has begun
            env = self.environments.first + int(i)
            length, total = int(self.length[i]), float(self.total[i])
            episodes.append(Episode(env, number, length, total, infos[int(i)]))
            self._forget(i)
        return Played(transition, lost, episodes)

    def _forget(self, envs: list[int] | np.intp) -> None:
        """Count from 0 again in environments that are in a new episode."""
        self.length[envs], self.total[envs], self.exploration.drift[envs] = 0, 0, 0

    def _drop(self, envs: list[int]) -> None:
        """The same where an episode was cut; an action that it has not played is for no other."""
        self._forget(envs)
        if len(envs) == len(self.length):
            self.chosen = None

    def evaluate(self, policy: Policy, env: EvaluationEnv, stop: Callable[[], bool]) -> Score:
        """Play the config's evaluation episodes in `env`; see Collecting."""
        seed, discount = self.config.seed, self.config.discount
        episodes = range(self.config.eval_episodes)
        return evaluate(policy, env, episodes, seed, discount=discount, stop=stop)

    def state_dict(self) -> dict[str, Array]:
        """Counters, random streams and where each environment stands, as arrays."""
        mine = {
            "steps": np.array(self.steps),
            "length": self.length.copy(),
            "total": self.total.copy(),
            "drift": self.exploration.drift.copy(),
            "chosen": np.zeros((0, 0), np.float32) if self.chosen is None else self.chosen,
            "random_actions": generator_state(self.exploration.random_actions),
            "exploration": generator_state(self.exploration.gaussian),
        }
        theirs = self.environments.state_dict()
        return mine | {f"environments.{name}": array for name, array in theirs.items()}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken."""
        self._check(arrays)
        prefix = "environments."
        theirs = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        self.environments.load_state_dict(theirs)
        self.steps = int(arrays["steps"])
        self.length = arrays["length"].copy()
        self.total = arrays["total"].copy()
        self.exploration.drift = arrays["drift"].copy()
        self.chosen = arrays["chosen"].copy() if arrays["chosen"].size else None
        self._drop(self.lost)
        set_generator_state(self.exploration.random_actions, arrays["random_actions"])
        set_generator_state(self.exploration.gaussian, arrays["exploration"])

    def _check(self, arrays: dict[str, Array]) -> None:
        """Refuse the arrays of another collector, by their types and shapes."""
        for name, own in self.state_dict().items():
            if name.startswith("environments.proof.") and name not in arrays:
                continue  # an earlier version had no proof
            array, grows = arrays[name], name in _GROWING
            same = array.shape[1:] == own.shape[1:] if grows else array.shape == own.shape
            if name == "chosen":
                same = not array.size or array.shape == (len(self.length), len(self.low))
            if array.dtype != own.dtype or not same:
                what = f"{name} is {array.dtype}{array.shape}"
                raise ValueError(f"{what}; expected {own.dtype}{own.shape}")

    def close(self) -> None:
        """End the environments."""
        self.environments.close()
