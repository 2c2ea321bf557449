"""What travels between the learner and its collectors."""

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from t3d.base.numbers import Array
from t3d.play.collecting import Episode, Event, Transition
from t3d.play.envs import Spaces

Streams = tuple[Array, Array]  # the states of the random streams: random actions, exploration


class Started(NamedTuple):
    """A collector's answer to `begin`."""

    version: str  # of T3D
    spaces: Spaces
    lost: list[int]  # environments that could not resume their episode


class Request(NamedTuple):
    """The learner asks a collector for some steps."""

    generation: int  # of the collector that is to play
    policy: int  # the number of the policy to play
    at: int  # the learner's steps when it asked
    length: int  # steps to play, in each environment
    streams: Streams | None = None  # where to draw from; None: the collector's own


@dataclass(eq=False)
class Pending:
    """A request that is not answered yet."""

    collector: int
    request: Request
    ref: Any  # Ray's reference to the answer
    since: float = field(default_factory=time.monotonic)


class Chunk(NamedTuple):
    """Some steps of one collector, in the order they were played: the answer to a request."""

    generation: int
    sequence: int  # the number of the first step in this generation
    state: Array  # (steps + 1, envs, size): the last is the current one
    action: Array  # (steps, envs, dimensions)
    reward: Array  # (steps, envs)
    terminated: Array
    truncated: Array
    played: Array  # False where an environment's process was lost before it could
    final: dict[tuple[int, int], Array]  # last states of episodes; `state` has the next one's first
    episodes: list[list[Episode]]
    events: list[list[Event]]
    episode: Array  # (envs,): the number of the episode that each is in
    streams: Streams  # after the last step
    seconds: float  # that playing took
    broken: str | None  # why an environment cannot play on

    @property
    def length(self) -> int:
        """How many steps these are."""
        return len(self.action)

    def transition(self, t: int, envs: Array) -> Transition:
        """Step `t`, of the environments that played it; `envs` are the collector's numbers."""
        next_state: Array = self.state[t + 1].copy()
        for env in range(len(next_state)):
            if (t, env) in self.final:
                next_state[env] = self.final[t, env]
        fields = self.state[t], next_state, self.action[t], self.reward[t]
        ends = self.terminated[t], self.truncated[t]
        rows = np.flatnonzero(self.played[t])
        return Transition(*fields, *ends).only(rows)._replace(envs=envs[rows])


class Recorder:
    """Gathers steps of one collector into a chunk."""

    def __init__(self, count: int, state: Array, dimensions: int) -> None:
        """Room for `count` steps that begin in `state`."""
        shape = count, len(state)
        self._state = np.empty((count + 1, *state.shape), state.dtype)
        self._state[0] = state
        self._action = np.zeros((*shape, dimensions), np.float32)
        self._reward = np.zeros(shape, np.float32)
        self._terminated, self._truncated, self._played = np.zeros((3, *shape), np.bool_)
        self._final: dict[tuple[int, int], Array] = {}
        self._episodes: list[list[Episode]] = []
        self._events: list[list[Event]] = []
        self.done = 0  # steps so far

    def add(
        self, step: Transition, after: Array, episodes: list[Episode], events: list[Event]
    ) -> None:
        """The next step; `after` are the states when the environments that ended were reset."""
        t, self.done = self.done, self.done + 1
        envs = np.arange(len(after)) if step.envs is None else step.envs
        self._action[t, envs], self._reward[t, envs] = step.action, step.reward
        self._terminated[t, envs], self._truncated[t, envs] = step.done, step.truncated
        self._played[t, envs] = True
        for row, env in enumerate(envs.tolist()):
            if step.done[row] or step.truncated[row]:
                self._final[t, env] = step.next_state[row]
        self._episodes.append(episodes)
        self._events.append(events)
        self._state[t + 1] = after

    def chunk(self, **more: Any) -> Chunk:
        """All steps so far; `more` are the other fields of a chunk."""
        steps = slice(self.done)
        return Chunk(
            state=self._state[: self.done + 1],
            action=self._action[steps],
            reward=self._reward[steps],
            terminated=self._terminated[steps],
            truncated=self._truncated[steps],
            played=self._played[steps],
            final=self._final,
            episodes=self._episodes,
            events=self._events,
            **more,
        )
