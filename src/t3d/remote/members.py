"""The collectors of a run: who plays, who is lost, who is back."""

import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np

from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.play.collecting import Event
from t3d.play.envs import EnvMaker, Spaces
from t3d.remote import cluster
from t3d.remote.actor import CollectorActor, Player
from t3d.remote.messages import Started

POLL = 0.2  # seconds to wait for Ray before we look for other work, or for Ctrl-C
START_LIMIT = 300.0  # seconds that collectors have to start


class Members:
    """Collectors as Ray actors. Ray restarts one that dies, as a new generation."""

    def __init__(self, maker: EnvMaker, spaces: Spaces, player: Callable[[Spaces], Player]) -> None:
        """Reach the cluster, and place the collectors; `player` makes each an agent to play."""
        self.config = config = maker.config
        assert config.collectors
        self.count, self.spaces = config.collectors, spaces
        self.playing: set[int] = set()
        self.lost: list[int] = []  # environments that could not resume their episode
        self.generations = np.zeros(self.count, np.int64)  # times that each was started again
        self.sequence = [0] * self.count  # the number of each one's next step, in its generation
        self.episode = np.zeros(config.all_envs, np.int64)  # that each environment is in
        self.events: list[Event] = []
        self._starting: dict[Any, int] = {}  # who is to come back, by Ray's reference
        self._lost_at = 0.0  # when the last one was lost
        self.ray, self._disconnect = cluster.connect(config.ray, self.count * config.collector_cpus)
        try:
            self._check_cpus()
            options = {
                "num_cpus": config.collector_cpus,
                "max_restarts": config.env_restarts,
                "max_task_retries": 0,
            }
            actor = self.ray.remote(**options)(CollectorActor)
            self.actors = [actor.remote(maker, i, player) for i in range(self.count)]
        except BaseException:
            self._disconnect()
            raise

    def _check_cpus(self) -> None:
        needed = self.count * self.config.collector_cpus
        available = self.ray.cluster_resources().get("CPU", 0)
        if needed > available:
            what = f"{self.count} collectors of {self.config.collector_cpus:g} CPUs need {needed:g}"
            advice = "take fewer --collectors, lower --collector-cpus, or add nodes"
            raise BadInput(f"{what}; the cluster has {available:g}: {advice}")

    def envs(self, collector: int) -> Array:
        """The numbers of a collector's environments."""
        first = collector * self.config.num_envs
        return np.arange(first, first + self.config.num_envs)

    def next_episodes(self, collector: int) -> dict[str, Array]:
        """The state of a collector that begins new episodes."""
        return {"environments.episode": self.episode[self.envs(collector)]}

    def start(self, states: list[dict[str, Array]]) -> None:
        """Begin in all collectors, each where its state says, and wait for them."""
        refs = [
            actor.begin.remote(int(self.generations[i]), states[i])
            for i, actor in enumerate(self.actors)
        ]
        deadline = time.monotonic() + START_LIMIT
        waiting = refs
        while waiting:  # for one at a time, so that Ctrl-C is heard
            ready, waiting = self.ray.wait(waiting, num_returns=1, timeout=POLL)
            for ref in ready:
                collector = refs.index(ref)
                try:
                    started = self.get(ref)
                except (T3DError, self.ray.exceptions.RayError) as error:
                    why = cluster.last_line(error).rstrip(".")
                    advice = "every node needs the packages that are installed here"
                    what = f"collector {collector} cannot begin: {why}; {advice}"
                    raise BadInput(what) from error
                self.admit(collector, started)
            if waiting and time.monotonic() > deadline:
                count = f"{len(self.playing)} of {self.count} collectors started"
                raise BadInput(f"{count} within {START_LIMIT:g} s; is the cluster busy?")

    def admit(self, collector: int, started: Started) -> None:
        """Let a collector play, if it has our version and our spaces."""
        mine = version("t3d")
        if started.version != mine:
            advice = "install the same on every node"
            what = f"collector {collector} has T3D {started.version}, and this is {mine}"
            raise BadInput(f"{what}; {advice}")
        bounds = zip(started.spaces[1:], self.spaces[1:])
        if started.spaces.layout != self.spaces.layout or not all(
            np.array_equal(theirs, ours) for theirs, ours in bounds
        ):
            what = f"collector {collector} makes an environment with other spaces than here"
            raise BadInput(f"{what}; every node needs the same version of it")
        self.lost = sorted({*self.lost, *started.lost})
        self.sequence[collector] = 0
        self.playing.add(collector)

    def get(self, ref: Any) -> Any:
        """A collector's answer. An error that was raised in our own code there is raised here."""
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, T3DError):
                raise error.cause from None
            raise BadInput(f"a collector failed: {cluster.last_line(error)}") from error

    def drop(self, collector: int, why: str) -> None:
        """Play without a collector; its environments' episodes are over."""
        self.playing.discard(collector)
        self.episode[self.envs(collector)] += 1
        self._note(collector, why)

    def lose(self, collector: int, why: str) -> None:
        """Play without a collector until Ray's next generation of it has begun."""
        self.drop(collector, why)
        self._lost_at = time.monotonic()
        self.generations[collector] += 1
        # Ray retries this call until the restarted actor answers.
        begin = self.actors[collector].begin.options(max_task_retries=-1)
        ref = begin.remote(int(self.generations[collector]), self.next_episodes(collector))
        self._starting[ref] = collector

    def readmit(self, wait: bool) -> None:
        """Let collectors play that are back; `wait` a moment for one if there is none yet."""
        if not self._starting:
            if not self.playing:
                raise BrokenEnvironment("no collector is left")
            return
        if not self.playing and time.monotonic() > self._lost_at + START_LIMIT:
            raise BrokenEnvironment(f"no collector came back within {START_LIMIT:g} s")
        timeout = POLL if wait else 0
        ready, _ = self.ray.wait(list(self._starting), num_returns=1, timeout=timeout)
        for ref in ready:
            collector = self._starting.pop(ref)
            try:
                self.admit(collector, self.get(ref))
                self._note(collector, "is back")
            except (T3DError, self.ray.exceptions.RayError) as error:
                self._note(collector, f"is gone for good ({cluster.last_line(error)})")
                self.ray.kill(self.actors[collector])  # if it lives, it would keep its CPUs

    def _note(self, collector: int, why: str) -> None:
        playing = len(self.playing)
        text = f"collector {collector} {why}; {playing} of {self.count} play"
        facts = {"collector": collector, "playing": playing, "of": self.count, "why": why}
        self.events.append(Event("collectors", facts | {"text": text}, text))

    def restart(self, collector: int) -> None:
        """Kill a collector's process; Ray starts another."""
        self.ray.kill(self.actors[collector], no_restart=False)

    def close(self) -> None:
        """End the collectors, and Ray if it was started for them."""
        with suppress(self.ray.exceptions.RayError):  # the program's own Ray may be gone
            for actor in self.actors:
                self.ray.kill(actor)
        self._disconnect()
