"""Environments that are born batched: one object that plays all of them.

Simulators on graphics cards, pools of EnvPool and vectorised models compute all environments in one
call. They come as a `gymnasium.vector.VectorEnv`, or as anything with its methods.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import Config
from t3d.play.making import EnvSource, call_maker, callable_in_module, env_name, raise_interrupt
from t3d.play.pooled import Pool, has_task

# Knobs that wrap a single environment, and the value at which they do nothing.
_FOR_ONE: dict[str, Any] = {
    **{"wrap": (), "action_repeat": 1, "max_episode_steps": 0, "remake_envs": False},
    **{"pixels": False, "frame_stack": 1, "action_history": 0},
}
_EXPECTED = "a gymnasium.vector.VectorEnv"


def make_batch(source: EnvSource, config: Config, count: int) -> Any:
    """A batch of `count` environments, or of as many as it always has."""
    name = env_name(source)
    for knob, none in _FOR_ONE.items():
        if getattr(config, knob) != none:
            advice = f"build it into what makes the batch, and leave out --{knob.replace('_', '-')}"
            raise BadInput(f"{knob} does not work with --env-backend batched; {advice}")
    make = _maker(source, name)
    arguments = dict(config.env_kwargs)
    if _takes_num_envs(make):
        arguments.setdefault("num_envs", count)
    env = call_maker(source, name, make, arguments)
    expected = ("num_envs", "single_observation_space", "single_action_space", "reset", "step")
    if not all(hasattr(env, each) for each in expected):
        what = f"{name!r} made a {type(env).__name__}"
        raise BadInput(f"{what}; with --env-backend batched, T3D expects {_EXPECTED}")
    return env


def _maker(source: EnvSource, name: str) -> Callable[..., Any]:
    if callable(source):
        return source
    own = callable_in_module(source)
    if own:
        return own
    spec = gym.registry.get(name.rpartition(":")[2])
    if spec and spec.vector_entry_point:
        return partial(gym.make_vec, name, vectorization_mode="vector_entry_point")
    if find_spec("envpool") and has_task(name):
        return partial(Pool, name)
    advice = f"name a module:callable that returns {_EXPECTED}, or use --env-backend processes"
    raise BadInput(f"{name!r} has no batched form, in Gymnasium or in EnvPool; {advice}")


def _takes_num_envs(make: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.name == "num_envs" or each.kind is each.VAR_KEYWORD for each in parameters)


def reset_mode(env: Any, name: str) -> AutoresetMode:
    """How a batch begins the next episode of an environment: see `Batch`."""
    stated = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    try:
        return AutoresetMode.NEXT_STEP if stated is None else AutoresetMode(stated)
    except ValueError as error:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        what = f"{name!r} has autoreset_mode {stated!r}"
        raise BadInput(f"{what}; expected one of {modes}") from error


def as_array(values: Any) -> Any:
    """Numbers of PyTorch or JAX, wherever they are, as arrays; what is something else stays."""
    if isinstance(values, dict):
        return {name: as_array(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(as_array(part) for part in values)
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values) if hasattr(values, "__array__") else values


def like(values: Any, action: Array) -> Any:
    """Actions in the library of these observations, and on their device."""
    while isinstance(values, (dict, tuple, list)) and values:
        values = next(iter(values.values())) if isinstance(values, dict) else values[0]
    library = type(values).__module__.partition(".")[0]
    if library == "torch":
        import torch

        return torch.from_numpy(action).to(values.device)
    if library.startswith("jax"):
        import jax

        return jax.numpy.asarray(action)
    return action


def final_observation(info: Any, index: int) -> Any:
    """The last observation of an episode, where the batch has begun the next already; or None."""
    last = info.get("final_obs") if isinstance(info, dict) else None
    return None if last is None else row_of(last, index)


def row_of(rows: Any, index: int) -> Any:
    """An environment's part of an observation or of an info."""
    if isinstance(rows, dict):
        return {name: row_of(part, index) for name, part in rows.items()}
    if isinstance(rows, tuple):
        return tuple(row_of(part, index) for part in rows)
    return rows[index]


class OneOfBatch(gym.Env[Any, Any]):
    """The first environment of a batch, with the methods of one: for evaluations and the doctor."""

    def __init__(self, source: EnvSource, config: Config) -> None:
        self._batch = batch = make_batch(source, config, 1)
        self.observation_space, self.action_space = (
            batch.single_observation_space,
            batch.single_action_space,
        )
        self.spec = getattr(batch, "spec", None)
        self._mode = reset_mode(batch, env_name(source))
        self._seen: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, in all of them."""
        seed = None if seed is None else seed % 2**30
        self._seen, info = self._batch.reset(seed=seed, options=options)
        return as_array(row_of(self._seen, 0)), _scalars(info)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one action, in all of them."""
        actions = np.repeat(np.asarray(action)[None], self._batch.num_envs, axis=0)
        self._seen, reward, terminated, truncated, info = self._batch.step(
            like(self._seen, actions)
        )
        terminated, truncated = np.asarray(as_array(terminated)), np.asarray(as_array(truncated))
        ends = terminated[0], truncated[0]
        observation = row_of(self._seen, 0)
        if any(ends):
            last = final_observation(info, 0)
            if last is not None:
                observation, final = last, info.get("final_info")
                info = info | final if isinstance(final, dict) else info
        elif self._mode is AutoresetMode.DISABLED:
            others = terminated.astype(np.bool_) | truncated.astype(np.bool_)
            if others.any():
                self._seen, _ = self._batch.reset(options={"reset_mask": others})
        return as_array(observation), as_array(reward)[0], *ends, _scalars(info)

    def close(self) -> None:
        """End all of them."""
        self._batch.close()


def _scalars(info: Any) -> dict[str, Any]:
    """The numbers of the first environment's info; it is foreign, and an odd one has none."""
    try:
        arrays = {key: as_array(each) for key, each in info.items() if type(key) is str}
        numbers = {
            key: array
            for key, array in arrays.items()
            if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "fiub"
        }
        masks = {key: numbers.get(f"_{key}", np.ones(1)) for key in numbers if key[:1] != "_"}
        return {key: numbers[key][0] for key, mask in masks.items() if mask[0]}
    except BaseException as error:
        raise_interrupt(error)
        return {}
