"""One environment: made, checked, and guarded."""

import os
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast
from zlib import crc32

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.extras import how_to_install
from t3d.base.imports import import_module_of, member, name_of
from t3d.base.numbers import Array, as_floats, as_number, as_truth
from t3d.base.observation import Layout
from t3d.base.signals import Ended, set_handlers_again
from t3d.base.text import blame as blame
from t3d.base.text import did_you_mean, one_line, shown
from t3d.config import Config
from t3d.play import surroundings
from t3d.play.observe import Observer
from t3d.play.pooled import PooledEnv, can_render

# A Gymnasium id, module:EnvId, module:callable, or a callable that makes an environment.
EnvSource: TypeAlias = str | Callable[[], gym.Env[Any, Any]]
Answer = tuple[Array, float, bool, bool]  # observation, reward, terminated, truncated
_LARGEST = float(np.finfo(np.float32).max)
_CLOSE_LIMIT = 10.0  # seconds that an environment has to close
_REWARD_AND_ENDS = struct.Struct("<d??")


def checksum(
    before: int,
    observation: Array,
    reward: float = 0.0,
    terminated: bool = False,
    truncated: bool = False,
) -> int:
    """Of all that an environment returned in an episode: `before`, and now one more answer."""
    rest = _REWARD_AND_ENDS.pack(reward, terminated, truncated)
    return crc32(rest, crc32(np.ascontiguousarray(observation).data, before))


def env_name(source: EnvSource) -> str:
    """The name an environment goes by in run folders: its id, or module:callable."""
    if isinstance(source, str):
        return source
    if not callable(source):
        expected = "an environment's name, or a callable that makes one: lambda: env"
        raise BadInput(f"env is a {type(source).__name__}; expected {expected}")
    return name_of(source)


def env_role(index: int | None) -> str:
    """What an environment is for: training has numbers."""
    return "the evaluation environment" if index is None else f"environment {index}"


def _rendered(env: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
    """The same environment with rendered images as its observations."""
    try:
        return gym.wrappers.AddRenderObservation(env)
    except gym.error.DependencyNotInstalled as error:
        raise BadInput(missing_extra(name, error)) from error
    except Exception as error:  # whatever a graphics driver raises
        raise BadInput(f"environment {name!r} cannot be rendered: {blame(error)}") from error


def draw_without_a_screen() -> None:
    """Have pygame and MuJoCo render off screen, unless there is a screen or the user chose."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not ("DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _create(source: EnvSource, name: str, render_mode: str | None) -> gym.Env[Any, Any]:
    if render_mode:
        draw_without_a_screen()
    # An environment that cannot be rendered need not take the argument.
    rendering: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}
    maker: Callable[..., Any] | None = source if callable(source) else _callable_in_module(source)
    try:
        if maker is None:
            assert isinstance(source, str)
            return gym.make(source, disable_env_checker=True, **rendering)
        env = maker(**rendering)
    except gym.error.DependencyNotInstalled as error:
        raise BadInput(missing_extra(name, error)) from error
    except ModuleNotFoundError as error:
        raise BadInput(
            f"environment {name!r} needs the module {error.name!r}: install it"
        ) from error
    except gym.error.Error as error:
        if name in gym.registry:
            raise BadInput(f"environment {name!r} cannot be made: {one_line(error)}") from error
        near = did_you_mean(name, gym.registry)
        advice = near or "; your own goes as module:EnvId or module:callable"
        raise BadInput(f"no environment is called {name!r}{advice}") from error
    except T3DError:
        raise
    except BaseException as error:
        raise_interrupt(error)
        if rendering and isinstance(error, TypeError) and "render_mode" in one_line(error):
            advice = "add the argument to render it, as docs/environments.md shows"
            raise BadInput(f"environment {name!r} takes no render_mode; {advice}") from error
        advice = f" with {rendering}" if rendering else ""
        raise BadInput(f"environment {name!r} cannot be made{advice}: {blame(error)}") from error
    if not isinstance(env, gym.Env):
        kind = type(env).__name__
        raise BadInput(f"{name!r} made a {kind}; expected a gymnasium.Env")
    return env


def _callable_in_module(source: str) -> Callable[..., Any] | None:
    """What `module:name` names, if it is a callable; None if Gymnasium is to look it up."""
    module_name, colon, attribute = source.partition(":")
    if not colon:
        return None
    module = import_module_of(source, "environment", "env")
    maker = member(module, attribute)
    if callable(maker):
        return cast(Callable[..., Any], maker)
    if attribute not in gym.registry:
        names = [key for key, value in vars(module).items() if callable(value)] + list(gym.registry)
        advice = did_you_mean(attribute, names)
        raise BadInput(f"module {module_name!r} neither has nor registers {attribute!r}{advice}")
    return None


def missing_extra(name: str, error: gym.error.DependencyNotInstalled) -> str:
    """The error for an environment whose packages are not installed."""
    text = str(error).lower()
    extras = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "classic"}
    extra = next((extra for word, extra in extras.items() if word in text), None)
    if extra is None:
        return f"environment {name!r} needs a package that is not installed: {one_line(error)}"
    return f"environment {name!r} needs an extra: {how_to_install(extra)}"


def raise_interrupt(error: BaseException) -> None:
    """Pass on a signal of the user's; all else that foreign code raises is an error of its own."""
    by_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if isinstance(error, Ended) or (isinstance(error, KeyboardInterrupt) and by_ctrl_c):
        raise error


def _close(env: gym.Env[Any, Any]) -> None:
    """End an environment, if it does so in time. An error in that does not matter any more."""
    try:
        with surroundings.undone(), surroundings.time_limited(_CLOSE_LIMIT):
            env.close()
    except BaseException as error:
        raise_interrupt(error)


def _check_spaces(env: gym.Env[Any, Any], name: str) -> None:
    missing = [n for n in ("action_space", "observation_space") if not hasattr(env, n)]
    if missing:
        raise BadInput(f"{name!r} has no {missing[0]}; set it in the environment's __init__")
    action = env.action_space
    if not isinstance(action, gym.spaces.Box):
        kind = type(action).__name__
        raise BadInput(f"{name!r} has {kind} actions; T3D needs continuous ones (a Box)")
    if not np.issubdtype(action.dtype, np.floating):
        raise BadInput(f"{name!r} has actions of type {action.dtype}; T3D needs continuous ones")
    if len(action.shape) != 1 or action.shape[0] == 0:
        raise BadInput(f"{name!r} has actions of shape {action.shape}; T3D needs a flat Box, (n,)")
    low, high = as_floats(action.low), as_floats(action.high)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        advice = "bound them, for example with gymnasium.wrappers.RescaleAction or in action_space"
        raise BadInput(f"{name!r} has unbounded actions, {action}; {advice}")
    if low.shape != action.shape or high.shape != action.shape or not (low < high).all():
        raise BadInput(f"{name!r} has an empty action range, {action}; expected low < high")


class GuardedEnv(gym.Wrapper[Array, Array, Any, Any]):
    """An environment whose every answer is checked before anything learns from it.

    Observations come out as rows (base/observation.py) of finite numbers, rewards as finite
    floats, and actions go in inside the range. An error names the environment, the episode's
    seed and the step.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        name: str,
        index: int | None,
        observer: Observer,
        remake: Callable[[], gym.Env[Any, Any]] | None,
        usual: surroundings.Settings,
    ) -> None:
        super().__init__(env)
        self._usual = usual  # of this process, before the environment was made
        self._remake = remake  # gives each episode an environment of its own
        self.name = name
        self.index = index
        space = env.action_space
        assert isinstance(space, gym.spaces.Box)
        self.low: Array = np.asarray(space.low, space.dtype)
        self.high: Array = np.asarray(space.high, space.dtype)
        self._observer = observer
        self.layout = layout = observer.layout
        low, high = (0, 255) if layout.images else (-np.inf, np.inf)
        self.observation_space = gym.spaces.Box(low, high, (layout.size,), layout.dtype.type)
        self._episode_seed: int | None = None
        self._step = 0

    def _broken(self, what: str) -> BrokenEnvironment:
        role = env_role(self.index).removeprefix("the ")
        episode = f"episode seed {self._episode_seed}, step {self._step}"
        return BrokenEnvironment(f"{role} ({self.name}), {episode}: {what}")

    def _checked(self, observation: Any) -> Array:
        try:
            return self._observer(observation, first=self._step == 0)
        except ValueError as error:
            raise self._broken(one_line(error)) from error
        except BaseException as error:  # of an object that is asked for its numbers
            raise self._failed("the observation", error) from error

    def _failed(self, what: str, error: BaseException) -> BrokenEnvironment:
        raise_interrupt(error)
        return self._broken(f"{what} raised {blame(error)}")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        first = self._episode_seed is None
        self._episode_seed, self._step = seed, 0
        try:
            with surroundings.undone():
                if self._remake and not first:
                    with surroundings.time_limited(_CLOSE_LIMIT):
                        self.env.close()
                    self.env = self._remake()
                answer = self.env.reset(seed=seed, options=options)
        except BaseException as error:
            raise self._failed("reset()", error) from error
        changed = surroundings.changes(self._usual)
        if changed:
            raise self._broken(f"it changed {changed[0]}; {surroundings.ADVICE}")
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._broken("reset() must return (observation, info)")
        return self._checked(answer[0]), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        self._step += 1
        action = action.astype(self.low.dtype)  # a copy: the environment may keep or change it
        if action.dtype != np.float32:  # rounded, it may lie a hair outside of the range
            action = np.clip(action, self.low, self.high)
        try:
            answer = self.env.step(action)
            set_handlers_again()
        except BaseException as error:
            raise self._failed("step()", error) from error
        if not isinstance(answer, tuple) or len(answer) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            raise self._broken(f"step() must return {expected}")
        observation, raw, terminated, truncated, _ = answer
        try:
            reward = float(raw) if isinstance(raw, float) else as_number(raw)
            if not (type(terminated) is bool and type(truncated) is bool):
                terminated, truncated = as_truth(terminated), as_truth(truncated)
        except BaseException as error:
            raise_interrupt(error)
            values = [shown(value) for value in (raw, terminated, truncated)]
            what = "step() returned reward {}, terminated {}, truncated {}".format(*values)
            raise self._broken(f"{what}; expected a number and two truth values") from error
        if not abs(reward) <= _LARGEST:  # so is nan
            raise self._broken(f"reward is {reward}; expected a finite number")
        return self._checked(observation), reward, terminated, truncated, {}

    def replay(self, seed: int, actions: Array) -> tuple[Array, int]:
        """Reset with a seed and play some actions, or as many as there are in the episode.

        Returns the observation where that ends, and a checksum of all answers.
        """
        observation, _ = self.reset(seed=seed)
        answers = checksum(0, observation)
        for action in actions:
            answer = self.step(action)[:4]
            observation, answers = answer[0], checksum(answers, *answer)
            if answer[2] or answer[3]:
                break
        return observation, answers

    def close(self) -> None:
        """End the environment."""
        _close(self.env)


class Spaces(NamedTuple):
    """What all environments of a run have in common."""

    layout: Layout
    low: Array
    high: Array

    @classmethod
    def of(cls, env: GuardedEnv) -> "Spaces":
        """Those of one environment."""
        action = env.action_space
        assert isinstance(action, gym.spaces.Box)
        return cls(env.layout, as_floats(action.low), as_floats(action.high))


def time_limit(env: GuardedEnv) -> int | None:
    """The steps after which the environment says that it ends an episode."""
    return env.spec.max_episode_steps if env.spec else None


@dataclass(frozen=True)
class EnvMaker:
    """Makes the environments of a run, here or in another process."""

    source: EnvSource
    config: Config

    @property
    def name(self) -> str:
        """The name of the environment in run folders and messages."""
        return env_name(self.source)

    def make(
        self,
        index: int | None = None,
        render_mode: str | None = None,
        own_process: bool = False,
    ) -> GuardedEnv:
        """Make one environment, check that T3D can learn from it, and guard what it returns.

        `index` is its number among the training environments; None for evaluation. In its own
        process it may change all settings.
        """
        name, config = self.name, self.config
        mode = "rgb_array" if config.pixels else render_mode
        pooled = config.env_backend == "envpool"
        if pooled and mode and not can_render(name):
            if config.pixels:
                advice = "use --env-backend inline or processes, or leave out --pixels"
                raise BadInput(f"EnvPool does not render {name!r} reliably; {advice}")
            pooled = False  # for a video, Gymnasium's environment of this name will do

        def create() -> gym.Env[Any, Any]:
            env: gym.Env[Any, Any]
            env = PooledEnv(name, mode) if pooled else _create(self.source, name, mode)
            if config.action_repeat > 1:
                env = gym.wrappers.RepeatAction(env, config.action_repeat)
            if config.pixels:
                env = _rendered(env, name)
            if config.max_episode_steps:
                env = gym.wrappers.TimeLimit(env, config.max_episode_steps)
            return env

        usual = {} if own_process else surroundings.settings()
        env: gym.Env[Any, Any] | None = None
        try:
            with surroundings.undone():
                env = create()
            _check_spaces(env, name)
            observer = Observer(env.observation_space, name, config)
            changed = surroundings.changes(usual)
            if changed:
                raise BadInput(f"environment {name!r} changed {changed[0]}; {surroundings.ADVICE}")
            remake = create if config.remake_envs else None
            return GuardedEnv(env, name, index, observer, remake, usual)
        except BaseException as error:
            if env is not None:
                _close(env)
            if isinstance(error, T3DError):
                raise
            raise_interrupt(error)
            raise BadInput(f"environment {name!r} cannot be used: {blame(error)}") from error
