"""Environments of EnvPool (an extra): compiled ones, which play in threads of their own."""

import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.text import did_you_mean


class PooledEnv(gym.Env[Any, Array]):
    """One environment of EnvPool, as Gymnasium would have it.

    EnvPool takes a seed when a pool is made, and not later. So each episode has a pool of its
    own, of one environment: then any episode can be played again from its seed, like others.
    """

    def __init__(self, task: str) -> None:
        try:
            import envpool
        except ModuleNotFoundError as error:
            needs = "env_backend envpool needs an extra: pip install 't3d[envpool]'"
            raise BadInput(needs) from error
        tasks = envpool.list_all_envs()
        if task not in tasks:
            advice = did_you_mean(task, tasks) or "; play it with --env-backend inline or processes"
            raise BadInput(f"EnvPool has no task {task!r}{advice}")
        self._envpool, self._task = envpool, task
        self._pool = self._make(0)
        self._playing = False
        self.observation_space = self._pool.observation_space
        self.action_space = self._pool.action_space
        limit = self._pool.spec.config.max_episode_steps
        again = partial(PooledEnv, task)
        self.spec = gym.envs.registration.EnvSpec(task, again, max_episode_steps=limit)

    def _make(self, seed: int) -> Any:
        pool = self._envpool.make(
            self._task, env_type="gymnasium", num_envs=1, num_threads=1, seed=seed % 2**31
        )
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # that bounds are rounded, when they are first looked at
            _ = pool.observation_space, pool.action_space
        return pool

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._pool, self._playing = self._make(seed), False
        return _first(self._pool.reset()[0]), {}

    def send(self, action: Array) -> None:
        """Begin a step, and do not wait; `step` then ends it, whatever action that is given."""
        space = self.action_space
        assert isinstance(space, gym.spaces.Box)
        # What is inside the range in one precision may lie a hair outside in another.
        action = np.clip(action.astype(space.dtype), space.low, space.high)
        self._pool.send(action[None])
        self._playing = True

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        if not self._playing:
            self.send(action)
        self._playing = False
        observation, reward, terminated, truncated, _ = self._pool.recv()
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}


def _first(observation: Any) -> Any:
    """What the only environment of a pool shows."""
    if isinstance(observation, dict):
        return {name: _first(part) for name, part in observation.items()}
    return observation[0]
