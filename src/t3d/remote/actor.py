"""CollectorActor: a collector that plays when the learner asks it to."""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from t3d.base.errors import BrokenEnvironment
from t3d.base.numbers import Array
from t3d.base.randomness import generator_state, set_generator_state
from t3d.play.collect import Collector
from t3d.play.collecting import evaluation_events
from t3d.play.envs import EnvMaker, Spaces
from t3d.play.evaluate import EvaluationEnv, Score, evaluate, evaluation_env
from t3d.play.vector import Environments
from t3d.remote import cluster
from t3d.remote.messages import Chunk, Recorder, Request, Started


class Player(Protocol):
    """An agent, as far as playing goes."""

    updates: int

    def select_action(self, state: ArrayLike) -> Array:
        """The policy's actions for some states."""

    def weights(self) -> Array:
        """All that these actions depend on."""

    def load_weights(self, weights: Array) -> None:
        """Act as the agent that these weights are from."""


class CollectorActor:
    """What runs in a Ray actor: a collector and an agent that plays.

    Ray may restart its process at any time. Each `begin` is therefore a new generation, and a
    request that was meant for another one is not played.
    """

    def __init__(self, maker: EnvMaker, index: int, player: Callable[[Spaces], Player]) -> None:
        """`player` makes the agent that plays, once the spaces are known."""
        self._maker, self._config, self._make_player = maker, maker.config, player
        self._index, self._first = index, index * maker.config.num_envs
        self._collector: Collector | None = None
        self._player: Player | None = None
        self._evaluation_env: EvaluationEnv | None = None
        self._generation = -1
        self._next = 0  # the number of the next step
        self._policy_number = -1

    def begin(self, generation: int, state: dict[str, Array]) -> Started:
        """Make the environments, and begin or resume where `state` says."""
        if self._collector:
            self._collector.close()
        environments = Environments(self._maker, self._first)
        stream = (self._index, generation) if self._config.staleness else ()
        self._collector = Collector(environments, self._config, stream)
        if "steps" in state:
            self._collector.load_state_dict(state)
        else:
            environments.episode = state["environments.episode"].copy()
            self._collector.reset()
        spaces = environments.vector.spaces
        self._player = self._make_player(spaces)
        self._generation, self._next, self._policy_number = generation, 0, -1
        return Started(version("t3d"), spaces, [self._first + env for env in self._collector.lost])

    def play(self, request: Request, weights: Array) -> Chunk | None:
        """Play the steps of a request; None if it was meant for another generation."""
        collector, player = self._collector, self._player
        if collector is None or player is None or request.generation != self._generation:
            return None
        if request.policy != self._policy_number:
            player.load_weights(weights)
            self._policy_number = request.policy
        streams = collector.exploration.random_actions, collector.exploration.gaussian
        if request.streams:
            for stream, state in zip(streams, request.streams):
                set_generator_state(stream, state)
        recorder = Recorder(request.length, collector.state, len(collector.environments.low))
        broken, started = None, time.monotonic()
        for t in range(request.length):
            collector.steps = request.at + t * self._config.all_envs  # the others play too
            try:
                transition, _, episodes = collector.play(self._policy)
            except BrokenEnvironment as error:
                broken = str(error)
                break
            events = collector.take_events()
            if self._evaluation_env is not None:
                events += evaluation_events(self._evaluation_env)
            recorder.add(transition, collector.state, episodes, events)
        sequence, self._next = self._next, self._next + recorder.done
        return recorder.chunk(
            generation=self._generation,
            sequence=sequence,
            episode=collector.environments.episode.copy(),
            streams=(generator_state(streams[0]), generator_state(streams[1])),
            seconds=time.monotonic() - started,
            broken=broken,
        )

    def _policy(self, states: Array) -> Array:
        assert self._player
        if self._config.staleness:
            return self._player.select_action(states)
        # In lock-step all environments' rows are there, as in a local run: the rounding of sums
        # may depend on how many rows there are.
        mine = slice(self._first, self._first + len(states))
        rows = np.zeros((self._config.all_envs, states.shape[1]), states.dtype)
        rows[mine] = states
        return self._player.select_action(rows)[mine]

    def evaluate(self, weights: Array, episodes: list[int]) -> Score | None:
        """Play some evaluation episodes; None if this has not begun."""
        if self._player is None:
            return None
        if self._evaluation_env is None:
            self._evaluation_env = evaluation_env(self._maker)
        self._player.load_weights(weights)
        self._policy_number = -1
        policy, env, stop = self._player.select_action, self._evaluation_env, cluster.is_canceled()
        seed, discount = self._config.seed, self._config.discount
        return evaluate(policy, env, episodes, seed, discount=discount, stop=stop)

    def state_dict(self) -> dict[str, Array]:
        """The collector's state."""
        assert self._collector
        return self._collector.state_dict()
