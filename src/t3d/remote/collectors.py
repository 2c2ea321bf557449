"""The same collector, as Ray actors: on the cores of this machine or of many.

The learner asks each collector for a few steps, with the policy of that moment, and stores what
comes back as if it had been played here. How far collectors run ahead is bounded by `staleness`.
With 0 everyone waits for everyone: that run is the local one of as many environments, to the bit.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array
from t3d.base.randomness import generator, generator_state, set_generator_state
from t3d.play.collect import Collector
from t3d.play.collecting import Episode, Memory
from t3d.play.collecting import Event as News
from t3d.play.envs import EnvMaker, GuardedEnv, Spaces
from t3d.play.evaluate import Policy, Score, evaluate
from t3d.play.vector import Environments
from t3d.remote import cluster

_AT_ONCE = 2  # requests that a collector has: one to play, and one to go on with
_PARCEL = 1.0  # seconds that a parcel of slow steps takes at most
_STARTING = 300.0  # seconds that collectors have to start
_PATIENCE = 0.2  # seconds to wait before we look at what else there is to do


# What a collector's state has of each environment.
_PER_ENV = (
    *("length", "total", "drift", "environments.episode", "environments.played"),
    *("environments.lengths", "environments.state"),
)


class Player(Protocol):
    """An agent, as far as playing goes."""

    updates: int

    def select_action(self, state: ArrayLike) -> Array:
        """The policy's actions for some states."""

    def weights(self) -> Array:
        """All that these depend on."""

    def load_weights(self, weights: Array) -> None:
        """Act as the agent that these are from."""


class Parcel(NamedTuple):
    """Some steps of one collector, in the order they were played."""

    life: int  # how often the collector had begun
    sequence: int  # the number of the first step in that life
    state: Array  # (steps + 1, envs, size): the last is where they stand now
    action: Array  # (steps, envs, dimensions)
    reward: Array  # (steps, envs)
    terminated: Array
    truncated: Array
    played: Array  # False where an environment's process was lost before it could
    final: dict[tuple[int, int], Array]  # where episodes ended; the next has begun in `state`
    episodes: list[list[Episode]]
    news: list[list[News]]
    episode: Array  # (envs,): the number of the episode that each is in
    streams: tuple[Array, Array]  # where the random streams stand
    seconds: float  # that playing took
    broken: str | None  # what is wrong with an environment that cannot go on

    def next_state(self, step: int) -> Array:
        """Where the actions of a step led, before any reset."""
        after: Array = self.state[step + 1].copy()
        for env in range(len(after)):
            if (step, env) in self.final:
                after[env] = self.final[step, env]
        return after


class _Step:
    """Stands for the memory: keeps what a collector stores in one step."""

    def __init__(self) -> None:
        self.fields: tuple[Array, ...] = ()
        self.envs: Array | None = None

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
        """Keep it."""
        self.fields = tuple(map(np.asarray, (next_state, action, reward, done, truncated)))
        self.envs = None if envs is None else np.asarray(envs)

    def end(self, env: int) -> None:
        """Those that have not played are known from `envs`."""


class Station:
    """What runs in a Ray actor: a collector that plays when it is asked to."""

    def __init__(self, maker: EnvMaker, index: int, player: Callable[[Spaces], Player]) -> None:
        self._maker, self._config, self._index, self._make = maker, maker.config, index, player
        self._collector: Collector | None = None
        self._life = -1
        self._next = 0  # the number of the next step
        self._version = -1
        self._player: Player | None = None
        self._evaluation: GuardedEnv | None = None

    def begin(self, life: int, state: dict[str, Array]) -> tuple[str, Spaces, list[int]]:
        """Make the environments, and begin where `state` says.

        Returns who we are, and which environments could not go on from there.
        """
        if self._collector:
            self._collector.close()
        first = self._index * self._config.num_envs
        environments = Environments(self._maker, first)
        stream = (self._index, life) if self._config.staleness else ()
        self._collector = Collector(environments, self._config, stream)
        if "steps" in state:
            self._collector.load_state_dict(state)
        else:
            environments.episode = state["environments.episode"].copy()
            self._collector.reset()
        spaces = Spaces(environments.layout, environments.low, environments.high)
        self._player = self._make(spaces)
        self._life, self._next, self._version = life, 0, -1
        return version("t3d"), spaces, [first + env for env in self._collector.lost]

    def evaluate(
        self, weights: Array, episodes: list[int], seed: int, discount: float
    ) -> Score | None:
        """Play some noiseless episodes; None if this has not begun."""
        if self._player is None:
            return None
        if self._evaluation is None:
            self._evaluation = self._maker.make()
        self._player.load_weights(weights)
        self._version = -1
        policy, stop = self._player.select_action, cluster.is_canceled()
        return evaluate(policy, self._evaluation, episodes, seed, discount=discount, stop=stop)

    def state_dict(self) -> dict[str, Array]:
        """Where the collector stands."""
        assert self._collector
        return self._collector.state_dict()

    def _policy(self, states: Array) -> Array:
        assert self._player
        if self._config.staleness:
            return self._player.select_action(states)
        # As if all environments were here: how sums are rounded may depend on how many rows.
        first = self._index * self._config.num_envs
        rows = np.zeros((self._config.all_envs, states.shape[1]), states.dtype)
        rows[first : first + len(states)] = states
        return self._player.select_action(rows)[first : first + len(states)]

    def play(
        self,
        life: int,
        number: int,
        weights: Array,
        steps: int,
        count: int,
        streams: tuple[Array, Array] | None,
    ) -> Parcel | None:
        """Play `count` steps with policy `number`; None if the one asked was another life."""
        collector, player = self._collector, self._player
        if collector is None or player is None or life != self._life:
            return None
        if number != self._version:
            player.load_weights(weights)
            self._version = number
        if streams:
            set_generator_state(collector.exploration.random_actions, streams[0])
            set_generator_state(collector.exploration.gaussian, streams[1])
        shape = (count, self._config.num_envs)
        states = np.empty((count + 1, *collector.state.shape), collector.state.dtype)
        action = np.zeros((*shape, len(collector.environments.low)), np.float32)
        reward = np.zeros(shape, np.float32)
        terminated, truncated, played = np.zeros((3, *shape), np.bool_)
        final: dict[tuple[int, int], Array] = {}
        episodes, news, broken, done = [], [], None, count
        started = time.monotonic()
        for t in range(count):
            collector.steps = steps + t * self._config.all_envs  # the others play too
            states[t] = collector.state
            kept = _Step()
            try:
                ended = collector.step(self._policy, kept)
            except BrokenEnvironment as error:
                broken, done = str(error), t
                break
            which = slice(None) if kept.envs is None else kept.envs
            after, action[t, which], reward[t, which], *ends = kept.fields
            terminated[t, which], truncated[t, which] = ends
            played[t, which] = True
            whose = np.arange(self._config.num_envs)[which]
            for row, env in enumerate(whose.tolist()):
                if terminated[t, env] or truncated[t, env]:
                    final[t, env] = after[row]
            episodes.append(ended)
            news.append(collector.take_events())
            states[t + 1] = collector.state
        sequence, self._next = self._next, self._next + done
        return Parcel(
            life=life,
            sequence=sequence,
            state=states[: done + 1],
            action=action[:done],
            reward=reward[:done],
            terminated=terminated[:done],
            truncated=truncated[:done],
            played=played[:done],
            final=final,
            episodes=episodes,
            news=news,
            episode=collector.environments.episode.copy(),
            streams=(
                generator_state(collector.exploration.random_actions),
                generator_state(collector.exploration.gaussian),
            ),
            seconds=time.monotonic() - started,
            broken=broken,
        )


@dataclass(eq=False)
class _Request:
    """Steps that a collector was asked for."""

    collector: int
    count: int
    at: int  # the learner's steps when the policy was taken
    ref: Any
    since: float = field(default_factory=time.monotonic)


class Collectors:
    """Collectors elsewhere, which to the training loop are like one that is here."""

    def __init__(
        self,
        maker: EnvMaker,
        spaces: Spaces,
        agent: Player,
        player: Callable[[Spaces], Player],
    ) -> None:
        """Reach the cluster, and place the collectors; `player` makes each an agent to play."""
        config = maker.config
        assert config.collectors
        self.config = config
        self._spaces, self._agent = spaces, agent
        self.steps = 0
        self.count = config.collectors
        self.received = np.zeros(self.count, np.int64)  # steps stored of each collector
        self.lives = np.zeros(self.count, np.int64)  # times that each has begun anew
        self.episode = np.zeros(config.all_envs, np.int64)
        self.lost: list[int] = []
        self.state: Array = np.zeros((0, spaces.layout.size), spaces.layout.dtype)
        self._expected = [0] * self.count  # the number of the next step in this life
        self._playing: set[int] = set()
        self._beginning: dict[Any, int] = {}
        self._asked: list[_Request] = []  # the oldest first
        self._current: tuple[_Request, Parcel] | None = None
        self._at = 0  # the step of it that is stored next
        self._broken: str | None = None  # in a round whose other steps were good
        self._lost_at = 0.0  # when a collector was lost last
        self._number = 0  # of the policy that was sent last
        self._news: list[News] = []
        self._lags: list[int] = []
        # In step, all draw from the streams of the run; otherwise each has its own.
        both = generator(config.seed, "random-actions"), generator(config.seed, "exploration")
        shared = generator_state(both[0]), generator_state(both[1])
        self._streams = None if config.staleness else shared
        self._published: tuple[int, int] | None = None  # what the policy that was sent is of
        self._weights: Any = None
        # Half of what is allowed is asked for, so that half is left for those who are slow.
        self._most_each = max(1, config.staleness // (2 * _AT_ONCE))
        self._each = [1] * self.count  # steps to ask of each collector at once
        self._most = config.staleness * config.all_envs
        self._ray, self._leave = cluster.connect(config.ray, self.count * config.collector_cpus)
        try:
            self._need_cpus()
            options = {
                "num_cpus": config.collector_cpus,
                "max_restarts": config.env_restarts,
                "max_task_retries": 0,
            }
            remote = self._ray.remote(**options)(Station)
            self._actors = [remote.remote(maker, i, player) for i in range(self.count)]
        except BaseException:
            self._leave()
            raise

    def _need_cpus(self) -> None:
        needed = self.count * self.config.collector_cpus
        found = self._ray.cluster_resources().get("CPU", 0)
        if needed > found:
            what = f"{self.count} collectors of {self.config.collector_cpus:g} CPUs need {needed:g}"
            advice = "take fewer --collectors, lower --collector-cpus, or add nodes"
            raise BadInput(f"{what}; the cluster has {found:g}: {advice}")

    def _envs(self, collector: int) -> Array:
        first = collector * self.config.num_envs
        return np.arange(first, first + self.config.num_envs)

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self._begin_all([{"environments.episode": self.episode[self._envs(i)]} for i in self._all])

    @property
    def _all(self) -> range:
        return range(self.count)

    def _begin_all(self, states: list[dict[str, Array]]) -> None:
        """Begin everywhere, and wait for all."""
        refs = [
            actor.begin.remote(int(self.lives[i]), states[i])
            for i, actor in enumerate(self._actors)
        ]
        until = time.monotonic() + _STARTING
        waiting = refs
        while waiting:  # not in one go, so that Ctrl-C is heard
            ready, waiting = self._ray.wait(waiting, num_returns=1, timeout=_PATIENCE)
            for ref in ready:
                collector = refs.index(ref)
                try:
                    who = self._get(ref)
                except (T3DError, self._ray.exceptions.RayError) as error:
                    advice = "every node needs what is installed here"
                    why = cluster.last_line(error).rstrip(".")
                    what = f"collector {collector} cannot begin: {why}; {advice}"
                    raise BadInput(what) from error
                self._begun(collector, who)
            if waiting and time.monotonic() > until:
                started = f"{len(self._playing)} of {self.count} collectors started"
                raise BadInput(f"{started} within {_STARTING:g} s; is the cluster busy?")

    def _begun(self, collector: int, who: tuple[str, Spaces, list[int]]) -> None:
        """Take a collector in, if it is of our kind."""
        theirs, spaces, lost = who
        mine = version("t3d")
        if theirs != mine:
            advice = "install the same on every node"
            raise BadInput(f"collector {collector} has T3D {theirs}, and this is {mine}; {advice}")
        same = spaces.layout == self._spaces.layout and all(
            np.array_equal(a, b) for a, b in zip(spaces[1:], self._spaces[1:])
        )
        if not same:
            raise BadInput(
                f"collector {collector} makes an environment with other spaces than here"
            )
        self.lost = sorted({*self.lost, *lost})
        self._expected[collector] = 0
        self._playing.add(collector)

    def _get(self, ref: Any) -> Any:
        """What a collector answered. What went wrong there in our own code is raised here."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, T3DError):
                raise error.cause from None
            raise BadInput(f"a collector failed: {cluster.last_line(error)}") from error

    # Storing what was played.

    def step(
        self,
        policy: Policy,
        memory: Memory,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> list[Episode]:
        """Store one step of a collector, or of all if they are in step; none if none is there."""
        if self.config.staleness == 0:
            return self._round(memory, beside)
        with beside():
            pass
        while self._current is None or self._at == len(self._current[1].action):
            if self._current and self._current[1].broken:  # all that was good is stored
                raise BrokenEnvironment(self._current[1].broken)
            self._current, self._at = self._next_parcel(memory), 0
            if self._current is None:
                return []
        request, parcel = self._current
        self._lags.append(self.steps - request.at)
        self._at += 1
        return self._store([(request.collector, parcel)], self._at - 1, memory)

    def _round(
        self, memory: Memory, beside: Callable[[], AbstractContextManager[None]]
    ) -> list[Episode]:
        """One step of everyone, stored in the order of environments."""
        if self._broken:
            raise BrokenEnvironment(self._broken)
        self._welcome(wait=not self._playing)
        asked = [self._ask(i, 1) for i in sorted(self._playing)]
        parcels: list[tuple[int, Parcel]] = []
        with beside():
            for request in asked:
                parcel = self._answer(request, memory, wait=True)
                if parcel:
                    parcels.append((request.collector, parcel))
        for i, parcel in parcels:
            if parcel.broken:  # what the others played counts, so it is raised after this round
                self._broken = parcel.broken
                self._drop(i, "has a broken environment", memory)
        parcels = [(i, parcel) for i, parcel in parcels if not parcel.broken]
        if not parcels:
            return []
        self._streams = parcels[0][1].streams
        return self._store(parcels, 0, memory)

    def _store(self, parcels: list[tuple[int, Parcel]], t: int, memory: Memory) -> list[Episode]:
        """Store step `t` of some parcels."""
        rows, whose, away, episodes = [], [], [], []
        for collector, parcel in parcels:
            envs, played = self._envs(collector), parcel.played[t]
            fields = (parcel.state[t], parcel.next_state(t), parcel.action[t], parcel.reward[t])
            ends = parcel.terminated[t], parcel.truncated[t]
            rows.append([field[played] for field in (*fields, *ends)])
            whose.append(envs[played])
            away += envs[~played].tolist()
            episodes += parcel.episodes[t]
            self._news += parcel.news[t]
            self.received[collector] += played.sum()
            self.steps += int(played.sum())
            self.episode[envs] = parcel.episode
        state, next_state, action, reward, terminated, truncated = map(np.concatenate, zip(*rows))
        memory.add(
            state, next_state, action, reward, terminated, truncated, envs=np.concatenate(whose)
        )
        for env in away:
            memory.end(env)
        self.state = np.concatenate([parcel.state[t + 1] for _, parcel in parcels])
        return episodes

    # Asking and waiting.

    def _ask(self, collector: int, count: int) -> _Request:
        normalizing = self.config.normalize_observations
        now = self._agent.updates, self.steps if normalizing else 0
        if now != self._published:
            self._published = now
            self._weights = self._ray.put(self._agent.weights())
            self._number += 1
        life = int(self.lives[collector])
        play = self._actors[collector].play
        ref = play.remote(life, self._number, self._weights, self.steps, count, self._streams)
        return _Request(collector, count, self.steps, ref)

    def _next_parcel(self, memory: Memory) -> tuple[_Request, Parcel] | None:
        """The next steps to store; None if there are none for a while."""
        self._welcome(wait=False)
        has = Counter(request.collector for request in self._asked)
        for _ in range(_AT_ONCE):
            for i in sorted(self._playing):
                if has[i] < min(_AT_ONCE, self.config.staleness):
                    has[i] += 1
                    self._asked.append(self._ask(i, self._each[i]))
        first: dict[int, _Request] = {}
        for request in self._asked:
            first.setdefault(request.collector, request)
        heads = list(first.values())
        if not heads:
            self._welcome(wait=True)
            return None
        # Whoever is ready comes first, as long as nobody who waits would get too old by that.
        rows = sum(request.count for request in self._asked) * self.config.num_envs
        if self.steps + rows > heads[0].at + self._most:
            heads = heads[:1]
        refs = {request.ref: request for request in heads}
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=_PATIENCE)
        if not ready:
            self._hurry(heads)
            return None
        request = refs[ready[0]]
        parcel = self._answer(request, memory, wait=False)
        if parcel is None:
            return None
        self._asked.remove(request)
        for other in self._asked:
            if other.collector == request.collector:
                other.since = time.monotonic()  # it is this one's turn
        fit = _PARCEL * len(parcel.action) / max(parcel.seconds, 1e-9)  # steps that would
        self._each[request.collector] = round(min(max(1, fit), self._most_each))
        return request, parcel

    def _answer(self, request: _Request, memory: Memory, wait: bool) -> Parcel | None:
        """What a request led to; None if its collector was lost."""
        i, ray = request.collector, self._ray
        if wait:
            while not ray.wait([request.ref], timeout=_PATIENCE)[0]:
                self._hurry([request])
        try:
            parcel: Parcel | None = self._get(request.ref)
        except ray.exceptions.RayError as error:
            self._lose(i, f"was lost ({type(error).__name__})", memory)
            return None
        if parcel is None:  # another life, which knows nothing of this
            self._lose(i, "was lost (it was started anew)", memory)
            return None
        found, due = (parcel.life, parcel.sequence), (self.lives[i], self._expected[i])
        if found != due:
            what = f"collector {i} sent step {found}, and {due} was due"
            raise BadInput(f"{what}: steps were lost or doubled")
        self._expected[i] += len(parcel.action)
        return parcel

    def _hurry(self, requests: list[_Request]) -> None:
        """Restart a collector that takes too long for its steps."""
        # A parcel of several steps takes a second or so; one step has the time of each environment.
        limit = self.config.env_deadline * self.config.num_envs
        if limit and self.config.env_backend == "processes":  # which are watched, and restarted
            limit += _STARTING
        for request in requests:
            if limit and time.monotonic() - request.since > limit:
                request.since = math.inf
                self._ray.kill(self._actors[request.collector], no_restart=False)

    def evaluate(self, policy: Policy, env: GuardedEnv, stop: Callable[[], bool]) -> Score:
        """Play the config's evaluation episodes on the collectors, or in `env` if one is lost."""
        episodes, seed, discount = (
            self.config.eval_episodes,
            self.config.seed,
            self.config.discount,
        )
        score = self._evaluate(episodes, seed, discount, stop)
        if score is None:
            score = evaluate(policy, env, range(episodes), seed, discount=discount, stop=stop)
        return score

    def _evaluate(
        self, episodes: int, seed: int, discount: float, stop: Callable[[], bool]
    ) -> Score | None:
        """Share noiseless episodes out among the collectors; None if one was lost, or on `stop`."""
        weights = self._ray.put(self._agent.weights())
        players = sorted(self._playing)
        if not players:
            return None
        shares = [list(range(k, episodes, len(players))) for k in range(len(players))]
        refs = [
            self._actors[i].evaluate.remote(weights, share, seed, discount)
            for i, share in zip(players, shares)
            if share
        ]
        began, waiting, limit = time.monotonic(), refs, math.inf
        while waiting and not stop() and time.monotonic() < limit:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=_PATIENCE)
            if len(waiting) < len(refs) and limit == math.inf and self.config.env_deadline:
                # The others have the time of ten like this one.
                now = time.monotonic()
                limit = now + 10 * (now - began) + self.config.env_deadline
        for ref in waiting:
            self._ray.cancel(ref)
        try:
            scores = [None] if waiting else [self._get(ref) for ref in refs]
        except self._ray.exceptions.RayError:
            return None
        if None in scores:
            return None
        numbers = [number for share in shares for number in share]
        order = np.argsort(numbers).tolist()
        joined = [[item for part in parts for item in part] for parts in zip(*scores)]
        return Score(*([part[k] for k in order] for part in joined))

    # Collectors that come and go.

    def _drop(self, collector: int, why: str, memory: Memory) -> None:
        """Do without a collector, and cut short what it was playing."""
        envs = self._envs(collector)
        self._playing.discard(collector)
        self._asked = [request for request in self._asked if request.collector != collector]
        for env in envs.tolist():
            memory.end(env)
        self.episode[envs] += 1
        self._tell(collector, why)

    def _lose(self, collector: int, why: str, memory: Memory) -> None:
        """Do without a collector until Ray's next one has begun."""
        self._drop(collector, why, memory)
        self._lost_at = time.monotonic()
        self.lives[collector] += 1
        # What Ray restarts answers when it is up again.
        begin = self._actors[collector].begin.options(max_task_retries=-1)
        state = {"environments.episode": self.episode[self._envs(collector)]}
        self._beginning[begin.remote(int(self.lives[collector]), state)] = collector

    def _welcome(self, wait: bool) -> None:
        """Take in the collectors that are up again; wait a while for one, if there are none."""
        if not self._beginning:
            if not self._playing:
                raise BrokenEnvironment("no collector is left")
            return
        if not self._playing and time.monotonic() > self._lost_at + _STARTING:
            raise BrokenEnvironment(f"no collector came back within {_STARTING:g} s")
        timeout = _PATIENCE if wait else 0
        ready, _ = self._ray.wait(list(self._beginning), num_returns=1, timeout=timeout)
        for ref in ready:
            collector = self._beginning.pop(ref)
            try:
                self._begun(collector, self._get(ref))
                self._tell(collector, "is back")
            except (T3DError, self._ray.exceptions.RayError) as error:
                self._tell(collector, f"is gone for good ({cluster.last_line(error)})")
                self._ray.kill(self._actors[collector])  # if it lives, it would keep its CPUs

    def _tell(self, collector: int, what: str) -> None:
        playing = len(self._playing)
        text = f"collector {collector} {what}; {playing} of {self.count} play"
        facts = {"collector": collector, "playing": playing, "of": self.count, "why": what}
        facts["text"] = text
        self._news.append(News("collectors", facts, text))

    def take_events(self) -> list[News]:
        """What happened to collectors and environments since this was asked last."""
        news, self._news = self._news, []
        return news

    def measures(self) -> dict[str, float]:
        """How old policies were when what they played was stored, in steps, since the last time."""
        lags, self._lags = self._lags, []
        if not lags:  # as in step
            return {}
        oldest = {"staleness": float(np.mean(lags)), "staleness_max": float(max(lags))}
        return oldest | {"collectors": float(len(self._playing))}

    # Checkpoints.

    def state_dict(self) -> dict[str, Array]:
        """Where collection stands: all of it if collectors are in step, else what was stored."""
        if self.config.staleness == 0:
            return self._joined()
        return {
            "steps": np.array(self.steps),
            "episode": self.episode.copy(),
            "lives": self.lives.copy(),
            "received": self.received.copy(),
        }

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Go on from where `state_dict` was taken; out of step, with new episodes."""
        self.steps = int(arrays["steps"])
        if self.config.staleness == 0:
            self._streams = arrays["random_actions"], arrays["exploration"]
            self.episode = arrays["environments.episode"].copy()
            self._begin_all([self._share(arrays, i) for i in self._all])
            return
        self.lives = arrays["lives"] + 1
        self.received = arrays["received"].copy()
        self.episode = arrays["episode"] + 1
        self.lost = list(range(self.config.all_envs))
        self.reset()

    def _joined(self) -> dict[str, Array]:
        """The states of all collectors as that of one which plays all environments."""
        assert self._streams
        states = [self._state_of(i) for i in self._all]
        joined = {name: np.concatenate([state[name] for state in states]) for name in _PER_ENV}
        joined |= zip(("random_actions", "exploration"), self._streams)
        joined |= {"steps": np.array(self.steps), "chosen": np.zeros((0, 0), np.float32)}
        begun = [bool(state["environments.begun"]) for state in states]
        return joined | {"environments.begun": np.array(all(begun))}

    def _state_of(self, collector: int) -> dict[str, Array]:
        if collector in self._playing:
            with suppress(self._ray.exceptions.RayError):
                state: dict[str, Array] = self._ray.get(
                    self._actors[collector].state_dict.remote(),
                    timeout=self.config.env_deadline or None,
                )
                return state
        envs, width = self._envs(collector), len(self._spaces.low)
        blank = np.zeros((len(envs), self._spaces.layout.size), self._spaces.layout.dtype)
        return {  # away: it is to begin its next episodes
            "length": np.zeros(len(envs), np.int64),
            "total": np.zeros(len(envs)),
            "drift": np.zeros((len(envs), width), np.float32),
            "environments.episode": self.episode[envs],
            "environments.played": np.zeros((0, width), np.float32),
            "environments.lengths": np.zeros(len(envs), np.int64),
            "environments.state": blank,
            "environments.begun": np.array(False),
        }

    def _share(self, arrays: dict[str, Array], collector: int) -> dict[str, Array]:
        """Of a joined state, what is one collector's."""
        envs, lengths = self._envs(collector), arrays["environments.lengths"]
        ends, played = np.cumsum(lengths), arrays["environments.played"]
        mine = {name: arrays[name][envs] for name in _PER_ENV if arrays[name] is not played}
        mine["environments.played"] = played[ends[envs[0]] - lengths[envs[0]] : ends[envs[-1]]]
        return arrays | mine

    def close(self) -> None:
        """End the collectors, and Ray if it was started for them."""
        with suppress(self._ray.exceptions.RayError):  # the program's own Ray may be gone
            for actor in self._actors:
                self._ray.kill(actor)
        self._leave()
