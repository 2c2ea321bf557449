"""Environments that are born batched: one object that plays all of them, made and guarded.

Simulators on graphics cards, pools of EnvPool and vectorised models compute all environments in one
call. They come as a `gymnasium.vector.VectorEnv`, or as anything with its methods.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from t3d.base.errors import BadInput, BrokenEnvironment
from t3d.base.numbers import Array, all_finite, as_floats, plain_array
from t3d.base.signals import set_handlers_again
from t3d.base.text import blame, one_line
from t3d.config import Config
from t3d.play import surroundings
from t3d.play.info import BatchTally, EpisodeInfo
from t3d.play.making import EnvSource, callable_in_module, env_name, made, raise_interrupt
from t3d.play.observe import Observer, part_of
from t3d.play.pooled import Pool, has_task

# What a batch cannot have from outside, and the value that is none of it.
_OF_ONE: dict[str, Any] = {
    **{"wrap": (), "action_repeat": 1, "max_episode_steps": 0, "remake_envs": False},
    **{"pixels": False, "frame_stack": 1, "action_history": 0},
}
_LARGEST = float(np.finfo(np.float32).max)
_CLOSE_LIMIT = 10.0  # seconds that a batch has to close
_WHAT = "a gymnasium.vector.VectorEnv"


def make_batch(source: EnvSource, config: Config, count: int) -> Any:
    """A batch of `count` environments, or of as many as it always has."""
    name = env_name(source)
    for knob, none in _OF_ONE.items():
        if getattr(config, knob) != none:
            advice = f"build it into what makes the batch, and leave out --{knob.replace('_', '-')}"
            raise BadInput(f"{knob} does not work with --env-backend batched; {advice}")
    make = _maker(source, name)
    arguments = dict(config.env_kwargs)
    if _takes_num_envs(make):
        arguments.setdefault("num_envs", count)
    env = made(source, name, make, arguments)
    expected = ("num_envs", "single_observation_space", "single_action_space", "reset", "step")
    if not all(hasattr(env, each) for each in expected):
        what = f"{name!r} made a {type(env).__name__}"
        raise BadInput(f"{what}; with --env-backend batched, T3D expects {_WHAT}")
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
    advice = f"name a module:callable that returns {_WHAT}, or use --env-backend processes"
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


class Played(NamedTuple):
    """One step of a batch; row i is environment i."""

    next_state: Array  # where the action led, before any reset
    state: Array  # where the environments are now
    reward: Array
    terminated: Array
    truncated: Array
    skipped: Array  # environments that began their next episode instead of playing
    infos: dict[int, EpisodeInfo]  # of the episodes that ended


class Batch:
    """A batch whose every answer is checked before anything learns from it.

    There are three ways to begin the next episode, which the batch names as its `autoreset_mode`:
    with the step after the last one, which then plays no action (the default); with the last step
    itself, whose observation is then in `final_obs` of the info; or never, so that `reset` is
    called with a mask.
    """

    def __init__(
        self, source: EnvSource, config: Config, check: Callable[[Any, str], None]
    ) -> None:
        """Make it; `check` refuses spaces that T3D cannot learn in."""
        self.name, self.num_envs = env_name(source), config.num_envs
        self._usual = surroundings.settings()
        self._step = 0
        with surroundings.undone():
            self._env = make_batch(source, config, config.num_envs)
        try:
            self._take(config, check)
        except BaseException:
            self.close()
            raise

    def _take(self, config: Config, check: Callable[[Any, str], None]) -> None:
        """Check what was made."""
        env = self._env
        self._require_unchanged()
        if env.num_envs != config.num_envs:
            what = f"{self.name!r} made a batch of {env.num_envs} environments"
            raise BadInput(f"{what}, and num_envs is {config.num_envs}: use {_count(env)}")
        space, action = env.single_observation_space, env.single_action_space
        check(SimpleNamespace(observation_space=space, action_space=action), self.name)
        observer = Observer(space, self.name, config, action)
        self.layout, self._parts = observer.layout, observer.parts
        if self.layout.images:
            raise BadInput(f"{self.name!r} is a batch with images; T3D learns from batched vectors")
        self.low, self.high = (np.asarray(b, action.dtype) for b in (action.low, action.high))
        self._mode = reset_mode(env, self.name)
        self._tally = BatchTally(config.log_info, self.num_envs)
        self._resetting = np.zeros(self.num_envs, np.bool_)
        self._seen: Any = None

    def _require_unchanged(self) -> None:
        """Refuse a batch that has changed settings of this process, such as PyTorch's dtype."""
        changed = surroundings.changes(self._usual)
        if changed:
            raise self._broken(f"it changed {changed[0]}; have it put that back")

    def _broken(self, what: str) -> BrokenEnvironment:
        return BrokenEnvironment(
            f"the batch of environments ({self.name}), step {self._step}: {what}"
        )

    def _ask(self, what: str, method: Callable[[], Any], expected: str) -> Any:
        """Call a method of the batch, which is foreign."""
        try:
            answer = method()
            set_handlers_again()
        except BaseException as error:
            raise_interrupt(error)
            raise self._broken(f"{what} raised {blame(error)}") from error
        if not isinstance(answer, (tuple, list)) or len(answer) != len(expected.split(", ")):
            raise self._broken(f"{what} must return {expected}")
        return answer

    def _begin(self, **how: Any) -> Array:
        """Call `reset`; returns the states."""
        with surroundings.undone():
            answer = self._ask("reset()", lambda: self._env.reset(**how), "(observations, infos)")
        self._require_unchanged()
        self._seen = answer[0]
        return self._rows(self._seen, self.num_envs)

    def _rows(self, observation: Any, count: int) -> Array:
        """Observations as rows of finite numbers, in memory of our own."""
        try:
            parts = [self._part(part, observation, count) for part in self._parts]
        except BrokenEnvironment:
            raise
        except ValueError as error:
            raise self._broken(one_line(error)) from error
        except BaseException as error:  # of an object that is asked for its numbers
            raise_interrupt(error)
            raise self._broken(f"the observation raised {blame(error)}") from error
        rows = np.concatenate(parts, axis=1)  # a copy: the batch may write over its arrays
        if not all_finite(rows):
            index, column = np.argwhere(~np.isfinite(rows))[0]
            what = f"observation[{column}] of environment {index} is {rows[index, column]}"
            raise self._broken(f"{what}; expected finite numbers, nothing was stored")
        return rows

    def _part(self, part: Any, observation: Any, count: int) -> Array:
        array = as_floats(as_array(part_of(part, observation)))
        if array.shape != (count, *part.shape):
            expected = f"expected {(count, *part.shape)} as in the space of {count} environments"
            raise self._broken(f"observation{part.name} has shape {array.shape}; {expected}")
        return array.reshape(count, -1)

    def _column(self, name: str, values: Any, kind: type) -> Array:
        """A number or a truth value of each environment."""
        try:
            array = plain_array(as_array(values))
        except BaseException as error:
            raise_interrupt(error)
            raise self._broken(f"the {name} are no numbers: {blame(error)}") from error
        if array.shape != (self.num_envs,):
            expected = f"expected {(self.num_envs,)}, one for each environment"
            raise self._broken(f"the {name} have shape {array.shape}; {expected}")
        if kind is bool and not np.isin(array, (0, 1)).all():
            raise self._broken(f"the {name} are {array[:8].tolist()}; expected truth values")
        if kind is float and not (np.abs(array) <= _LARGEST).all():
            index = int(np.flatnonzero(~(np.abs(array) <= _LARGEST))[0])
            what = f"the reward of environment {index} is {array[index]}"
            raise self._broken(f"{what}; expected a finite number")
        return array.astype(kind)

    def reset(self, seed: int) -> Array:
        """Begin an episode in all of them; returns their states."""
        self._resetting[:] = False
        self._tally.clear()
        return self._begin(seed=seed % 2**30)

    def step(self, action: Array) -> Played:
        """Play one action in each."""
        self._step += 1
        action = action.astype(self.low.dtype)  # a copy: the batch may keep or change it
        if action.dtype != np.float32:  # rounded, it may lie a hair outside of the range
            action = np.clip(action, self.low, self.high)
        expected = "(observations, rewards, terminations, truncations, infos)"
        answer = self._ask("step()", lambda: self._env.step(like(self._seen, action)), expected)
        self._seen, rewards, terminations, truncations, info = answer
        next_state = self._rows(self._seen, self.num_envs)
        reward = self._column("rewards", rewards, float)
        terminated = self._column("terminations", terminations, bool)
        truncated = self._column("truncations", truncations, bool)
        info = info if isinstance(info, dict) else {}
        skipped = self._resetting
        self._check_skipped(skipped, reward, terminated | truncated)
        ended = (terminated | truncated) & ~skipped
        state = next_state
        try:
            self._tally.add(_arrays(info), ~skipped, ended)
        except BaseException as error:  # an info is foreign: do without it
            raise_interrupt(error)
        infos = {int(index): self._tally.end(int(index)) for index in np.flatnonzero(ended)}
        self._resetting = np.zeros(self.num_envs, np.bool_)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._check_no_final(info, ended)
            self._resetting = ended
        elif self._mode is AutoresetMode.SAME_STEP:
            next_state = self._with_finals(next_state, info, ended)
        elif ended.any():
            state = self._reset_some(ended, next_state)
        return Played(next_state, state, reward, terminated, truncated, skipped, infos)

    def _check_skipped(self, skipped: Array, reward: Array, ends: Array) -> None:
        """A step that begins an episode is no step of it."""
        wrong = np.flatnonzero(skipped & (ends | (reward != 0)))
        if len(wrong):
            index = int(wrong[0])
            what = (
                f"environment {index} ended with the step before, and has reward {reward[index]:g}"
            )
            what = f"{what}{' and an end' if ends[index] else ''} in the step that resets it"
            advice = "if it resets itself in the same step, its metadata must say so"
            advice = f"{advice}; if not, the reward of that step must be 0"
            raise self._broken(f"{what}; autoreset_mode is {self._mode.name}: {advice}")

    def _check_no_final(self, info: dict[str, Any], ended: Array) -> None:
        if ended.any() and info.get("final_obs") is not None:
            what = "the info has final_obs, which only batches that reset in the same step have"
            raise self._broken(f"{what}; autoreset_mode is {self._mode.name}")

    def _with_finals(self, next_state: Array, info: dict[str, Any], ended: Array) -> Array:
        """The last states of episodes in place of the first ones of the next."""
        if not ended.any():
            return next_state
        next_state = next_state.copy()
        finals = {"final_obs": as_array(info.get("final_obs"))}
        for index in np.flatnonzero(ended):
            try:
                last = final_observation(finals, int(index))
            except BaseException as error:  # it has fewer rows, for example
                raise_interrupt(error)
                what = f"final_obs of the info has no row for environment {index}, which ended"
                raise self._broken(f"{what}: {blame(error)}") from error
            if last is None:
                what = f"environment {index} ended, and the info has no final_obs for it"
                advice = "the state in which an episode ended would be lost"
                raise self._broken(f"{what}; autoreset_mode is {self._mode.name}: {advice}")
            next_state[index] = self._rows(_batched(last), 1)[0]
        return next_state

    def _reset_some(self, ended: Array, before: Array) -> Array:
        """Begin the next episodes of those that ended; the others must stay where they are."""
        state = self._begin(options={"reset_mask": ended.copy()})
        moved = np.flatnonzero(~ended & (state != before).any(axis=1))
        if len(moved):
            what = f"reset() with a reset_mask changed environment {moved[0]}, which had not ended"
            raise self._broken(f"{what}; autoreset_mode is {self._mode.name}")
        return state

    def close(self) -> None:
        """End it, if it does so in time. An error in that does not matter any more."""
        try:
            with surroundings.undone(), surroundings.time_limited(_CLOSE_LIMIT):
                self._env.close()
        except BaseException as error:
            raise_interrupt(error)


def _arrays(info: dict[Any, Any]) -> dict[Any, Any]:
    """An info whose numbers are NumPy's, without observations."""
    return {key: as_array(value) for key, value in info.items() if key != "final_obs"}


def _count(env: Any) -> str:
    return f"--num-envs {env.num_envs}"


def _batched(observation: Any) -> Any:
    """An observation of one environment as that of a batch of one."""
    if isinstance(observation, dict):
        return {name: _batched(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_batched(part) for part in observation)
    return np.asarray(as_array(observation))[None]
