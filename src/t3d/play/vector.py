"""N environments in parallel: the one place that knows about resets."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from t3d.base import files
from t3d.base.errors import BrokenEnvironment
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.play.envs import Answer, EnvMaker, GuardedEnv, Settings, Spaces, checksum
from t3d.play.info import EpisodeInfo
from t3d.play.pooled import PooledEnv
from t3d.play.workers import Workers


class InProcess:
    """Environments that play one after the other.

    This is kept short: after an update none of it is left in the processor's caches.
    """

    def __init__(self, maker: EnvMaker, indices: range) -> None:
        self.envs: list[GuardedEnv] = []
        try:
            for index in indices:
                self.envs.append(maker.make(index))
        except BaseException:
            self.close()
            raise
        self.spaces = Spaces.of(self.envs[0])

    def configure(self, index: int, settings: Settings) -> None:
        """Set attributes of an environment whenever it begins an episode, from the next one on."""
        self.envs[index].settings = settings

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each."""
        return [env.play(row) for env, row in zip(self.envs, action)]

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        return {index: self.envs[index].reset(seed=seed)[0] for index, seed in seeds.items()}

    def replay(self, episodes: dict[int, tuple[int, Array]]) -> dict[int, tuple[Array, int]]:
        """Begin an episode in those that have a seed, and play some actions.

        Returns where that ends, and a checksum of all that was returned on the way.
        """
        return {index: self.envs[index].replay(*episode) for index, episode in episodes.items()}

    def take_restarts(self) -> list[tuple[int, str]]:
        """None: there are no processes to restart."""
        return []

    def close(self) -> None:
        """End them."""
        for env in self.envs:
            env.close()


class Pools(InProcess):
    """Environments of EnvPool, which play at the same time."""

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each."""
        for env, row in zip(self.envs, action):
            pooled = env.unwrapped
            assert isinstance(pooled, PooledEnv)
            pooled.send(row)
        return super().step(action)


Vector: TypeAlias = InProcess | Workers


def make_vector(maker: EnvMaker, indices: range) -> Vector:
    """Environments with these indices, where the config wants them."""
    if maker.config.env_backend == "processes":
        return Workers(maker, indices)
    return (Pools if maker.config.env_backend == "envpool" else InProcess)(maker, indices)


class Steps(NamedTuple):
    """The results of one step of all environments; row i is environment i."""

    next_state: Array  # where the action led, before any reset
    reward: Array
    terminated: Array
    truncated: Array
    lost: list[int]  # environments that did not play it, since their process was lost
    infos: dict[int, EpisodeInfo]  # of the episodes that it ended


class Environments:
    """N environments that play in parallel, and the state of each.

    Episode k of environment i is reset with a seed derived from (run seed, i, k), so any
    episode can be played again from that seed and its actions. These are kept, with a checksum of
    what they led to, for the current episode and for the one before it.
    Environments are numbered from `first` on: in a run with collectors, others come before them.
    """

    at_rest = True  # an evaluation may be played now: always, as it has an environment of its own

    def __init__(self, maker: EnvMaker, first: int = 0) -> None:
        self.vector = make_vector(maker, range(first, first + maker.config.num_envs))
        self._keep(maker, first, self.vector.spaces)

    def _keep(self, maker: EnvMaker, first: int, spaces: Spaces) -> None:
        """All that a run knows of its environments, before their first episode."""
        self.first, config = first, maker.config
        self.indices = range(first, first + config.num_envs)
        self.layout, self.low, self.high = spaces
        self.num_envs = config.num_envs
        self.seed = config.seed
        self.lateness = maker.lateness
        self.lost: list[int] = []
        self.episode = np.zeros(self.num_envs, np.int64)
        self.played: list[list[Array]] = [[] for _ in range(self.num_envs)]
        self.checksums = [0] * self.num_envs  # of the answers to them
        self.before: list[tuple[list[Array], int]] = [([], 0)] * self.num_envs  # the same
        self.state: Array = np.zeros((self.num_envs, self.layout.size), self.layout.dtype)
        self.settings: Settings = {}  # attributes for the episodes that begin from here on
        # Those of the current episode of each environment, and of the one before it.
        self.applied: list[tuple[Settings, Settings]] = [({}, {})] * self.num_envs
        self._broken: BrokenEnvironment | None = None  # at a reset, after a good step

    def episode_seed(self, index: int, back: int = 0) -> int:
        """The seed of an environment's current episode, or of one some episodes back."""
        number = int(self.episode[index]) - back
        return derived_seed(self.seed, "reset", self.first + index, number)

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self._begin(range(self.num_envs))

    def _begin(self, which: Iterable[int]) -> None:
        """Reset some environments, each to the episode whose number it is at."""
        for index in which:
            self.played[index] = []
            self._apply(index, self.settings, self.applied[index][0])
        seeds = {index: self.episode_seed(index) for index in which}
        for index, observation in self.vector.reset(seeds).items():
            self.state[index] = observation
            self.checksums[index] = checksum(0, self.state[index])

    def _apply(self, index: int, settings: Settings, before: Settings) -> None:
        self.applied[index] = settings, before
        self.vector.configure(index, settings)

    def take_restarts(self) -> list[tuple[int, str]]:
        """Whose process was restarted since the last call, and why."""
        return self.vector.take_restarts()

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, when its next episode begins.

        An episode that has begun, but has no step yet, begins again.
        """
        if name in self.settings and self.settings[name] == value:
            return
        self.settings = self.settings | {name: value}
        before = [settings for _, settings in self.applied]
        new = [index for index, played in enumerate(self.played) if not played]
        self._begin(new)
        for index in new:
            self.applied[index] = self.settings, before[index]

    def check(self) -> None:
        """Raise the error of a reset that failed after the last step."""
        if self._broken:
            raise self._broken

    def step(self, action: Array) -> Steps:
        """Play one action in each environment; those whose episode ended start the next."""
        answers = self.vector.step(action)
        next_state = np.empty_like(self.state)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        lost, ended = [], []
        infos: dict[int, EpisodeInfo] = {}
        for i, (answer, row) in enumerate(zip(answers, action.copy())):
            if answer is None:
                next_state[i] = self.state[i]
                lost.append(i)
                ended.append(i)
                self.before[i] = [], 0  # it has no end that could be compared
                continue
            next_state[i], reward[i], terminated[i], truncated[i], info = answer
            self.played[i].append(row)
            self.checksums[i] = checksum(self.checksums[i], next_state[i], *answer[1:4])
            if info is not None:
                ended.append(i)
                infos[i] = info
                self.before[i] = self.played[i], self.checksums[i]
        self.state = next_state.copy()
        if ended:
            self._next(ended)
        return Steps(next_state, reward, terminated, truncated, lost, infos)

    def _next(self, ended: list[int]) -> None:
        """Begin the next episode where one has ended."""
        self.episode[ended] += 1
        try:
            self._begin(ended)
        except BrokenEnvironment as error:  # the step was good: it counts
            self._broken = error

    def cut(self) -> list[int]:
        """Cut the episodes in progress for an evaluation: none has to be."""
        return []

    def state_dict(self) -> dict[str, Array]:
        """The episode and the state of each environment, as arrays.

        Those under `proof` are only compared: nothing of what follows depends on them.
        """
        lengths, played = self._joined(self.played)
        lengths_before, played_before = self._joined([rows for rows, _ in self.before])
        settings = {"next": self.settings, "applied": self.applied}
        text = json.dumps(settings).encode() if self.settings else b""
        return {
            **({"settings": np.frombuffer(text, np.uint8)} if text else {}),
            "episode": self.episode.copy(),
            "played": played,
            "lengths": lengths,
            "state": self.state.copy(),
            "begun": np.array(self._broken is None),
            "proof.checksum": np.array(self.checksums, np.int64),
            "proof.played_before": played_before,
            "proof.lengths_before": lengths_before,
            "proof.checksum_before": np.array([answers for _, answers in self.before], np.int64),
        }

    def _joined(self, played: list[list[Array]]) -> tuple[Array, Array]:
        """How many actions each environment played, and all of them in one array."""
        rows = [np.asarray(actions, np.float32).reshape(-1, len(self.low)) for actions in played]
        return np.array([len(actions) for actions in rows]), np.concatenate(rows)

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken: reset each episode and replay its actions.

        An environment that returns something else than before, now or in the episode before, is
        not deterministic, or carries state over: `lost` names it, and it begins its next episode.
        The old one is cut short, so none of its rows is wrong.
        """
        self.episode = arrays["episode"].copy()
        if "settings" in arrays:
            self._load_settings(arrays["settings"].tobytes())
        for index, (_, before) in enumerate(self.applied):
            self.vector.configure(index, before)
        lost = self._replay_before(arrays)
        for index, (current, _) in enumerate(self.applied):
            self.vector.configure(index, current)
        played = np.split(arrays["played"], np.cumsum(arrays["lengths"])[:-1])
        answers = self.vector.replay({i: (self.episode_seed(i), p) for i, p in enumerate(played)})
        self.state = np.stack([answers[i][0] for i in range(self.num_envs)])
        self.checksums = [answers[i][1] for i in range(self.num_envs)]
        self.played = [list(rows) for rows in played]
        differs = (self.state != arrays["state"]).any(axis=1)
        if "proof.checksum" in arrays:  # it is in no checkpoint of earlier versions
            differs |= np.array(self.checksums) != arrays["proof.checksum"]
        if not arrays["begun"]:  # a reset failed: where no step was played, there is no state yet
            differs &= arrays["lengths"] > 0
        self.lost = np.flatnonzero(lost | differs).tolist()
        if self.lost:
            self.episode[self.lost] += 1
            for index in self.lost:
                self.before[index] = [], 0
            self._begin(self.lost)

    def _load_settings(self, text: bytes) -> None:
        settings = files.parse_json(text)
        applied = settings["applied"]
        every = [settings["next"], *(each for pair in applied for each in pair)]
        if len(every) != 1 + 2 * self.num_envs or not all(isinstance(s, dict) for s in every):
            raise ValueError("its settings are not those of as many environments")
        self.settings, self.applied = settings["next"], [(now, before) for now, before in applied]

    def _replay_before(self, arrays: dict[str, Array]) -> Array:
        """Replay the episode before the current one, where one ended; True where it differs."""
        differs = np.zeros(self.num_envs, np.bool_)
        if "proof.checksum" not in arrays:
            return differs
        ends = np.cumsum(arrays["proof.lengths_before"])[:-1]
        checksums = arrays["proof.checksum_before"].tolist()
        played = np.split(arrays["proof.played_before"], ends)
        self.before = [(list(rows), answers) for rows, answers in zip(played, checksums)]
        episodes = {
            i: (self.episode_seed(i, 1), rows) for i, rows in enumerate(played) if len(rows)
        }
        for index, (_, answers) in self.vector.replay(episodes).items():
            differs[index] = answers != checksums[index]
        return differs

    def close(self) -> None:
        """End the environments, and their processes if they have any."""
        self.vector.close()
