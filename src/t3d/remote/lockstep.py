"""Lock-step, staleness 0: every collector plays one step, and all wait for all.

All draw from the random streams of the run, so this is the local run of as many environments, to
the bit, and its checkpoints are the same as those of a Collector.
"""

from contextlib import suppress

import numpy as np

from t3d.base.errors import BrokenEnvironment
from t3d.base.numbers import Array
from t3d.base.randomness import generator, generator_state
from t3d.play.collecting import Episode, Meanwhile, Memory
from t3d.remote.exchange import Exchange
from t3d.remote.messages import Chunk, Streams

# The arrays of a collector's state that have a row for each environment ...
_PER_ENV = (
    *("length", "total", "drift", "environments.episode", "environments.lengths"),
    *("environments.state", "environments.proof.checksum"),
    *("environments.proof.lengths_before", "environments.proof.checksum_before"),
)
# ... or for each action of its episodes, and the array that has the number of these.
_PER_ACTION = {
    "environments.played": "environments.lengths",
    "environments.proof.played_before": "environments.proof.lengths_before",
}


class LockStep:
    """Asks everyone for one step at a time."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._members = exchange, exchange.members
        seed = exchange.config.seed
        random_actions = generator_state(generator(seed, "random-actions"))
        self._streams: Streams = random_actions, generator_state(generator(seed, "exploration"))
        self._broken: str | None = None  # in a step in which others played

    def step(self, memory: Memory, meanwhile: Meanwhile) -> list[Episode]:
        """One step of everyone, stored in the order of environments."""
        if self._broken:
            raise BrokenEnvironment(self._broken)
        self._members.readmit(wait=not self._members.playing)
        pendings = [self._exchange.ask(i, 1, self._streams) for i in sorted(self._members.playing)]
        answers: list[tuple[int, Chunk]] = []
        with meanwhile():
            for pending in pendings:
                chunk = self._exchange.wait_for(pending, memory)
                if chunk:
                    answers.append((pending.collector, chunk))
        for i, chunk in answers:
            if chunk.broken:  # the steps of the others count, so it is raised at the next step
                self._broken = chunk.broken
                self._exchange.drop(i, "has a broken environment", memory)
        chunks = [(i, chunk) for i, chunk in answers if not chunk.broken]
        if not chunks:
            return []
        self._streams = chunks[0][1].streams
        return self._exchange.store(chunks, 0, memory)

    def measures(self) -> dict[str, float]:
        """Nothing: no policy is stale."""
        return {}

    def state_dict(self) -> dict[str, Array]:
        """The states of all collectors, as that of one that plays all environments."""
        states = [self._state_of(i) for i in range(self._members.count)]
        names = (*_PER_ENV, *_PER_ACTION)
        joined = {name: np.concatenate([state[name] for state in states]) for name in names}
        joined |= zip(("random_actions", "exploration"), self._streams)
        joined["steps"] = np.array(self._exchange.steps)
        joined["chosen"] = np.zeros((0, 0), np.float32)
        begun = all(bool(state["environments.begun"]) for state in states)
        return joined | {"environments.begun": np.array(begun)}

    def _state_of(self, collector: int) -> dict[str, Array]:
        members, deadline = self._members, self._exchange.config.env_deadline
        if collector in members.playing:
            with suppress(members.ray.exceptions.RayError):
                ref = members.actors[collector].state_dict.remote()
                state: dict[str, Array] = members.ray.get(ref, timeout=deadline or None)
                return state
        # It is lost: its environments are to begin their next episodes.
        layout, dimensions = members.spaces.layout, len(members.spaces.low)
        count = self._exchange.config.num_envs
        none, no_actions = np.zeros(count, np.int64), np.zeros((0, dimensions), np.float32)
        return members.next_episodes(collector) | {
            "length": none,
            "total": np.zeros(count),
            "drift": np.zeros((count, dimensions), np.float32),
            "environments.played": no_actions,
            "environments.lengths": none,
            "environments.state": np.zeros((count, layout.size), layout.dtype),
            "environments.begun": np.array(False),
            "environments.proof.checksum": np.zeros(count, np.int64),
            "environments.proof.played_before": no_actions,
            "environments.proof.lengths_before": none,
            "environments.proof.checksum_before": np.zeros(count, np.int64),
        }

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken."""
        self._exchange.steps = int(arrays["steps"])
        self._streams = arrays["random_actions"], arrays["exploration"]
        self._members.episode = arrays["environments.episode"].copy()
        self._members.start([self._part(arrays, i) for i in range(self._members.count)])

    def _part(self, arrays: dict[str, Array], collector: int) -> dict[str, Array]:
        """One collector's part of a joined state."""
        envs = self._members.envs(collector)
        part = {name: arrays[name][envs] for name in _PER_ENV if name in arrays}
        for name, counted_by in _PER_ACTION.items():
            if name in arrays:  # an earlier version had no proof
                lengths = arrays[counted_by]
                ends = np.cumsum(lengths)
                first, last = envs[0], envs[-1]
                part[name] = arrays[name][ends[first] - lengths[first] : ends[last]]
        return arrays | part
