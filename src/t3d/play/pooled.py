"""Environments of EnvPool (an extra): compiled ones, which play in threads of their own."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput
from t3d.base.extras import how_to_install
from t3d.base.numbers import Array
from t3d.base.output import no_warnings
from t3d.base.text import did_you_mean

# The families of tasks that EnvPool renders by itself, and the frames per second of a video.
# MuJoCo's it renders with OpenGL: where no library for that is loaded, or another context was
# current before, it ends the whole process (measured with 1.1.1).
_FRAME_RATES = {"envpool.classic_control": 30, "envpool.box2d": 50}


def can_render(task: str) -> bool:
    """Whether EnvPool can be trusted to render a task."""
    return _family(task) in _FRAME_RATES


def has_task(task: str) -> bool:
    """Whether EnvPool has a task of this name."""
    return task in _library().list_all_envs()


def _family(task: str) -> str:
    """The module of EnvPool that has a task; one that none has is refused."""
    registry: Any = _library().registration.registry
    tasks = _library().list_all_envs()
    if task not in tasks:
        advice = did_you_mean(task, tasks) or "; play it with --env-backend inline or processes"
        raise BadInput(f"EnvPool has no task {task!r}{advice}")
    family: str = registry.specs[task][0]
    return family


def _library() -> Any:
    try:
        import envpool
    except ModuleNotFoundError as error:
        needs = f"env_backend envpool needs an extra: {how_to_install('envpool')}"
        raise BadInput(needs) from error
    return envpool


def _new_pool(task: str, num_envs: int, seed: int, **options: Any) -> Any:
    options |= {"num_envs": num_envs, "seed": seed % 2**31}
    pool = _library().make(task, env_type="gymnasium", **options)
    with no_warnings():  # at their first use: that bounds are rounded
        _ = pool.observation_space, pool.action_space
    return pool


class PooledEnv(gym.Env[Any, Array]):
    """One environment of EnvPool, with Gymnasium's interface.

    EnvPool takes a seed only when a pool is made. So each episode has a pool of its own, of one
    environment: then any episode can be played again from its seed, as elsewhere in T3D.
    """

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        frame_rate = _FRAME_RATES.get(_family(task))
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": frame_rate}
        self.render_mode = render_mode
        self._task = task
        self._pool = self._make_pool(0)
        self._playing = False
        self.observation_space = self._pool.observation_space
        self.action_space = self._pool.action_space
        limit = self._pool.spec.config.max_episode_steps
        again = partial(PooledEnv, task)
        self.spec = gym.envs.registration.EnvSpec(task, again, max_episode_steps=limit)

    def _make_pool(self, seed: int) -> Any:
        rendering = {"render_mode": self.render_mode} if self.render_mode else {}
        return _new_pool(self._task, 1, seed, num_threads=1, **rendering)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._pool, self._playing = self._make_pool(seed), False
        observation, info = self._pool.reset()
        return _first(observation), _first(info)

    def send(self, action: Array) -> None:
        """Begin a step, and do not wait; the next `step` ends it, and ignores its own action."""
        space = self.action_space
        assert isinstance(space, gym.spaces.Box)
        # An action inside the range in one precision may lie a hair outside in another.
        action = np.clip(action.astype(space.dtype), space.low, space.high)
        self._pool.send(action[None])
        self._playing = True

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        if not self._playing:
            self.send(action)
        self._playing = False
        observation, reward, terminated, truncated, info = self._pool.recv()
        ends = bool(terminated[0]), bool(truncated[0])
        return _first(observation), float(reward[0]), *ends, _first(info)

    def render(self) -> Any:
        """A picture, (height, width, 3)."""
        return self._pool.render()[0]


class Pool(gym.vector.VectorEnv[Any, Array, Array]):
    """One pool of many environments, with the interface of Gymnasium's batches.

    EnvPool takes a seed only when a pool is made: so `reset` makes a new one.
    """

    def __init__(self, task: str, num_envs: int) -> None:
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
        self.num_envs, self._task = num_envs, task
        self._pool = _new_pool(task, num_envs, 0)
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        limit = self._pool.spec.config.max_episode_steps
        self.spec = gym.envs.registration.EnvSpec(task, max_episode_steps=limit)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in all of them."""
        self._pool = _new_pool(self._task, self.num_envs, seed or 0)
        observation, info = self._pool.reset()
        return observation, info

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play one action in each."""
        answer: tuple[Any, Array, Array, Array, dict[str, Any]] = self._pool.step(actions)
        return answer


def _first(rows: Any) -> Any:
    """The observation or the info of a pool's only environment."""
    if isinstance(rows, dict):
        return {name: _first(part) for name, part in rows.items()}
    return rows[0]
