"""Asking collectors for steps, checking their answers, and storing them."""

import math
import time
from typing import Any

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.play.collecting import Episode, Memory, Transition
from t3d.remote.actor import Player
from t3d.remote.members import POLL, START_LIMIT, Members
from t3d.remote.messages import Chunk, Pending, Request, Streams


class Exchange:
    """What the learner and its collectors give each other: policies for steps."""

    def __init__(self, members: Members, agent: Player) -> None:
        self.members, self.config, self._agent = members, members.config, agent
        self.steps = 0  # stored, over all environments
        self.received = np.zeros(members.count, np.int64)  # steps stored of each collector
        layout = members.spaces.layout
        self.state: Array = np.zeros((0, layout.size), layout.dtype)  # after the last step stored
        self._policy = 0  # the number of the policy that was published last
        self._published: tuple[int, int] | None = None  # the updates and steps that it is of
        self._weights: Any = None  # Ray's reference to its weights

    def ask(self, collector: int, length: int, streams: Streams | None = None) -> Pending:
        """Ask a collector for `length` steps with the current policy."""
        # Normalisation changes the policy with every step, the weights only with an update.
        normalizing = self.config.normalize_observations
        now = self._agent.updates, self.steps if normalizing else 0
        if now != self._published:
            self._published = now
            self._weights = self.members.ray.put(self._agent.weights())
            self._policy += 1
        generation = int(self.members.generations[collector])
        request = Request(generation, self._policy, self.steps, length, streams)
        ref = self.members.actors[collector].play.remote(request, self._weights)
        return Pending(collector, request, ref)

    def wait_for(self, pending: Pending, memory: Memory) -> Chunk | None:
        """The answer to a request, however long it takes; None if its collector was lost."""
        while not self.members.ray.wait([pending.ref], timeout=POLL)[0]:
            self.restart_slow([pending])
        return self.answer(pending, memory)

    def answer(self, pending: Pending, memory: Memory) -> Chunk | None:
        """The answer to a request, which is there; None if its collector was lost."""
        i, members = pending.collector, self.members
        try:
            chunk: Chunk | None = members.get(pending.ref)
        except members.ray.exceptions.RayError as error:
            self._end_episodes(i, memory)
            members.lose(i, f"was lost ({type(error).__name__})")
            return None
        if chunk is None:  # a new generation, which knows nothing of this request
            self._end_episodes(i, memory)
            members.lose(i, "was lost (it was restarted)")
            return None
        sent = chunk.generation, chunk.sequence
        due = int(members.generations[i]), members.sequence[i]
        if sent != due:
            what = f"collector {i} sent step {sent}, and {due} was due"
            raise BadInput(f"{what}: steps were lost or doubled")
        members.sequence[i] += chunk.length
        return chunk

    def drop(self, collector: int, why: str, memory: Memory) -> None:
        """Play without a collector from now on."""
        self._end_episodes(collector, memory)
        self.members.drop(collector, why)

    def _end_episodes(self, collector: int, memory: Memory) -> None:
        for env in self.members.envs(collector).tolist():
            memory.end(env)

    def restart_slow(self, pendings: list[Pending]) -> None:
        """Restart the collectors that take too long for a request."""
        # A chunk of several steps takes a second or so; one step has the time of each environment.
        limit = self.config.env_deadline * self.config.num_envs
        if limit and self.config.env_backend == "processes":  # these it restarts by itself
            limit += START_LIMIT
        for pending in pendings:
            if limit and time.monotonic() - pending.since > limit:
                pending.since = math.inf
                self.members.restart(pending.collector)

    def store(self, chunks: list[tuple[int, Chunk]], t: int, memory: Memory) -> list[Episode]:
        """Store step `t` of some collectors' chunks; returns the episodes that it ended."""
        transitions, idle, episodes = [], [], []
        for collector, chunk in chunks:
            envs, played = self.members.envs(collector), chunk.played[t]
            transitions.append(chunk.transition(t, envs))
            idle += envs[~played].tolist()
            episodes += chunk.episodes[t]
            self.members.events += chunk.events[t]
            self.members.episode[envs] = chunk.episode
            self.received[collector] += played.sum()
            self.steps += int(played.sum())
        memory.add(*Transition(*map(np.concatenate, zip(*transitions))))
        for env in idle:
            memory.end(env)
        self.state = np.concatenate([chunk.state[t + 1] for _, chunk in chunks])
        return episodes
