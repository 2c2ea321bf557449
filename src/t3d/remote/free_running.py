"""Free-running, staleness > 0: collectors run ahead of the learner, each at its own speed."""

import time
from collections import Counter

import numpy as np

from t3d.base.errors import BrokenEnvironment
from t3d.base.numbers import Array
from t3d.play.collecting import Episode, Meanwhile, Memory
from t3d.remote.exchange import Exchange
from t3d.remote.members import POLL
from t3d.remote.messages import Chunk, Pending

_IN_FLIGHT = 2  # requests that a collector has: one that it plays, and the next
_CHUNK_SECONDS = 1.0  # how long a chunk of slow steps may take


class FreeRunning:
    """Keeps every collector busy, and stores one step of one of them at a time."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._members = exchange, exchange.members
        config = exchange.config
        self._limit = config.staleness * config.all_envs  # steps that a policy may be old
        self._in_flight = min(_IN_FLIGHT, config.staleness)
        # Ask for half of what staleness allows: the other half is left for those that are slow.
        self._max_chunk = max(1, config.staleness // (2 * _IN_FLIGHT))
        self._lengths = [1] * self._members.count  # steps to ask of each collector at once
        self._pending: list[Pending] = []  # the oldest first
        self._current: tuple[Pending, Chunk] | None = None
        self._at = 0  # the step of the current chunk that is stored next
        self._lags: list[int] = []  # how old the policies of the stored steps were

    def step(self, memory: Memory, meanwhile: Meanwhile) -> list[Episode]:
        """Store one step of one collector; none if there is none for a while."""
        with meanwhile():
            pass
        while self._current is None or self._at == self._current[1].length:
            if self._current and self._current[1].broken:  # its good steps are stored
                raise BrokenEnvironment(self._current[1].broken)
            self._current, self._at = self._next_chunk(memory), 0
            if self._current is None:
                return []
        pending, chunk = self._current
        self._lags.append(self._exchange.steps - pending.request.at)
        self._at += 1
        return self._exchange.store([(pending.collector, chunk)], self._at - 1, memory)

    def _next_chunk(self, memory: Memory) -> tuple[Pending, Chunk] | None:
        """The next steps to store; None if there are none for a while."""
        self._members.readmit(wait=False)
        self._ask_all()
        oldest: dict[int, Pending] = {}  # of each collector
        for pending in self._pending:
            oldest.setdefault(pending.collector, pending)
        candidates = list(oldest.values())
        if not candidates:
            self._members.readmit(wait=True)
            return None
        # Take any finished request, unless that would push the oldest past the staleness limit.
        steps = sum(pending.request.length for pending in self._pending)
        rows = steps * self._exchange.config.num_envs
        if self._exchange.steps + rows > candidates[0].request.at + self._limit:
            candidates = candidates[:1]
        by_ref = {pending.ref: pending for pending in candidates}
        ready, _ = self._members.ray.wait(list(by_ref), num_returns=1, timeout=POLL)
        if not ready:
            self._exchange.restart_slow(candidates)
            return None
        pending = by_ref[ready[0]]
        chunk = self._exchange.answer(pending, memory)
        if chunk is None:  # none of its other requests will be answered either
            self._pending = [p for p in self._pending if p.collector != pending.collector]
            return None
        self._pending.remove(pending)
        for other in self._pending:
            if other.collector == pending.collector:
                other.since = time.monotonic()  # the collector starts on it now
        fitting = _CHUNK_SECONDS * chunk.length / max(chunk.seconds, 1e-9)
        self._lengths[pending.collector] = round(min(max(1, fitting), self._max_chunk))
        return pending, chunk

    def _ask_all(self) -> None:
        """Ask every collector for as many chunks as it may have in flight, in turns."""
        in_flight = Counter(pending.collector for pending in self._pending)
        for _ in range(_IN_FLIGHT):
            for i in sorted(self._members.playing):
                if in_flight[i] < self._in_flight:
                    in_flight[i] += 1
                    self._pending.append(self._exchange.ask(i, self._lengths[i]))

    def measures(self) -> dict[str, float]:
        """How old the policies of the steps stored since the last call were, in steps."""
        lags, self._lags = self._lags, []
        if not lags:
            return {}
        ages = {"staleness": float(np.mean(lags)), "staleness_max": float(max(lags))}
        return ages | {"collectors": float(len(self._members.playing))}

    def state_dict(self) -> dict[str, Array]:
        """Counters only: a step that is not stored is lost, and episodes do not resume."""
        return {
            "steps": np.array(self._exchange.steps),
            "episode": self._members.episode.copy(),
            "lives": self._members.generations.copy(),  # so called in the checkpoint's format
            "received": self._exchange.received.copy(),
        }

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken, with new episodes."""
        members = self._members
        self._exchange.steps = int(arrays["steps"])
        self._exchange.received = arrays["received"].copy()
        members.generations = arrays["lives"] + 1
        members.episode = arrays["episode"] + 1
        members.lost = list(range(self._exchange.config.all_envs))
        members.start([members.next_episodes(i) for i in range(members.count)])
