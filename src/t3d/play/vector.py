"""N environments in parallel: the one place that knows about resets."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from t3d.base.errors import BrokenEnvironment
from t3d.base.numbers import Array
from t3d.base.randomness import derived_seed
from t3d.play.envs import Answer, EnvMaker, GuardedEnv, Spaces
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

    def step(self, action: Array) -> list[Answer | None]:
        """Play one action in each."""
        return [env.step(row)[:4] for env, row in zip(self.envs, action)]

    def reset(self, seeds: dict[int, int]) -> dict[int, Array]:
        """Begin an episode in those that have a seed."""
        return {index: self.envs[index].reset(seed=seed)[0] for index, seed in seeds.items()}

    def replay(self, seeds: list[int], played: list[Array]) -> list[Array]:
        """Begin an episode in each, and play some actions."""
        return [env.replay(seed, rows) for env, seed, rows in zip(self.envs, seeds, played)]

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


class Steps(NamedTuple):
    """The results of one step of all environments; row i is environment i."""

    next_state: Array  # where the action led, before any reset
    reward: Array
    terminated: Array
    truncated: Array
    lost: list[int]  # environments that did not play it, since their process was lost


class Environments:
    """N environments that play in parallel, and the state of each.

    Episode k of environment i is reset with a seed derived from (run seed, i, k), so any
    episode can be played again from that seed and its actions, which are kept until it ends.
    Environments are numbered from `first` on: in a run with collectors, others come before them.
    """

    def __init__(self, maker: EnvMaker, first: int = 0) -> None:
        self.first, config = first, maker.config
        self.indices = range(first, first + config.num_envs)
        backend = {"inline": InProcess, "envpool": Pools}.get(config.env_backend, Workers)
        self.vector: InProcess | Workers = backend(maker, self.indices)
        self.low, self.high = self.vector.spaces.low, self.vector.spaces.high
        self.layout = self.vector.spaces.layout
        self.num_envs = config.num_envs
        self.seed = config.seed
        self.lost: list[int] = []
        self.episode = np.zeros(self.num_envs, np.int64)
        self.played: list[list[Array]] = [[] for _ in range(self.num_envs)]
        self.state: Array = np.zeros((self.num_envs, self.layout.size), self.layout.dtype)
        self._broken: BrokenEnvironment | None = None  # at a reset, after a good step

    def episode_seed(self, index: int) -> int:
        """The seed that an environment's current episode was reset with."""
        return derived_seed(self.seed, "reset", self.first + index, int(self.episode[index]))

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self._begin(range(self.num_envs))

    def _begin(self, which: Iterable[int]) -> None:
        """Reset some environments, each to the episode whose number it is at."""
        for index in which:
            self.played[index] = []
        seeds = {index: self.episode_seed(index) for index in which}
        for index, observation in self.vector.reset(seeds).items():
            self.state[index] = observation

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
        for i, (answer, row) in enumerate(zip(answers, action.copy())):
            if answer is None:
                next_state[i] = self.state[i]
                lost.append(i)
                ended.append(i)
                continue
            next_state[i], reward[i], terminated[i], truncated[i] = answer
            self.played[i].append(row)
            if answer[2] or answer[3]:
                ended.append(i)
        self.state = next_state.copy()
        if ended:
            self.episode[ended] += 1
            try:
                self._begin(ended)
            except BrokenEnvironment as error:  # the step was good: it counts
                self._broken = error
        return Steps(next_state, reward, terminated, truncated, lost)

    def state_dict(self) -> dict[str, Array]:
        """The episode and the state of each environment, as arrays."""
        width = len(self.low)
        played = [np.asarray(rows, np.float32).reshape(-1, width) for rows in self.played]
        return {
            "episode": self.episode.copy(),
            "played": np.concatenate(played),
            "lengths": np.array([len(rows) for rows in played]),
            "state": self.state.copy(),
            "begun": np.array(self._broken is None),
        }

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume from where `state_dict` was taken: reset each episode and replay its actions.

        An environment that ends in another state is not deterministic: `lost` names it, and
        it begins its next episode. The old one is cut short, so none of its rows is wrong.
        """
        self.episode = arrays["episode"].copy()
        played = np.split(arrays["played"], np.cumsum(arrays["lengths"])[:-1])
        reached = self.vector.replay([self.episode_seed(i) for i in range(self.num_envs)], played)
        self.state = np.stack(reached)
        self.played = [list(rows) for rows in played]
        lost = (self.state != arrays["state"]).any(axis=1)
        if not arrays["begun"]:  # a reset failed: where no step was played, there is no state yet
            lost &= arrays["lengths"] > 0
        self.lost = np.flatnonzero(lost).tolist()
        if self.lost:
            self.episode[lost] += 1
            self._begin(self.lost)

    def close(self) -> None:
        """End the environments, and their processes if they have any."""
        self.vector.close()
