"""One environment: made, checked, and guarded."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput, BrokenEnvironment, T3DError
from t3d.base.numbers import Array, as_floats, as_number, as_truth
from t3d.base.observation import Layout
from t3d.base.signals import set_handlers_again
from t3d.base.text import blame as blame
from t3d.base.text import did_you_mean, one_line, shown
from t3d.config import Config
from t3d.play import surroundings
from t3d.play.batch import OneOfBatch
from t3d.play.info import EpisodeInfo, Tally
from t3d.play.making import EnvSource as EnvSource
from t3d.play.making import create, release, rendered, unfolded
from t3d.play.making import env_name as env_name
from t3d.play.making import missing_extra as missing_extra
from t3d.play.making import raise_interrupt as raise_interrupt
from t3d.play.observe import Observer
from t3d.play.pacing import Lateness, Paced
from t3d.play.pooled import PooledEnv, can_render

Settings = dict[str, Any]  # attributes of an environment and their values, as in JSON
# Observation, reward, terminated, truncated; and at the end of an episode, what its infos come to.
Answer = tuple[Array, float, bool, bool, EpisodeInfo | None]
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


def env_role(index: int | None) -> str:
    """What an environment is for: training has numbers."""
    return "the evaluation environment" if index is None else f"environment {index}"


def close_env(env: gym.Env[Any, Any]) -> None:
    """End an environment, if it does so in time. An error in that does not matter any more."""
    try:
        release(env)
        with surroundings.undone(), surroundings.time_limited(_CLOSE_LIMIT):
            env.close()
    except BaseException as error:
        raise_interrupt(error)


def check_spaces(env: Any, name: str) -> None:
    """Refuse an environment, or what has its spaces, if T3D cannot act in it."""
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
        config: Config,
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
        self._observer = Observer(env.observation_space, name, config, space)
        self._tally = Tally(config.log_info)
        self.layout = layout = self._observer.layout
        low, high = (0, 255) if layout.images else (-np.inf, np.inf)
        self.observation_space = gym.spaces.Box(low, high, (layout.size,), layout.dtype.type)
        self._episode_seed: int | None = None
        self._step = 0
        self.settings: Settings = {}  # attributes of the environment, set at every reset

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
        self._tally.clear()
        try:
            with surroundings.undone():
                if self._remake and not first:
                    close_env(self.env)
                    self.env = self._remake()
                unknown = [name for name in self.settings if not self._set(name)]
                answer = self.env.reset(seed=seed, options=options)
        except BaseException as error:
            raise self._failed("reset()", error) from error
        if unknown:
            hint = did_you_mean(unknown[0], vars(self.env.unwrapped))
            raise self._broken(f"it has no attribute {unknown[0]!r} to set{hint}")
        changed = surroundings.changes(self._usual)
        if changed:
            raise self._broken(f"it changed {changed[0]}; {surroundings.ADVICE}")
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise self._broken("reset() must return (observation, info)")
        return self._checked(answer[0]), answer[1]

    def _set(self, name: str) -> bool:
        """Set an attribute, of the environment or of a wrapper; False if none of them has it."""
        return self.env.set_wrapper_attr(name, self.settings[name], force=False)

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
        if not isinstance(answer, (tuple, list)) or len(answer) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            raise self._broken(f"step() must return {expected}")
        observation, raw, terminated, truncated, info = answer
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
        try:
            self._tally.add(info)
        except BaseException as error:  # of an info that is asked for its items: do without it
            raise_interrupt(error)
        return self._checked(observation), reward, terminated, truncated, info

    def play(self, action: Array) -> Answer:
        """Play one action; the episode's last answer has what its infos come to."""
        observation, reward, terminated, truncated, _ = self.step(action)
        info = self._tally.summary() if terminated or truncated else None
        return observation, reward, terminated, truncated, info

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
        close_env(self.env)


class RememberingEnv(GuardedEnv):
    """One whose observations tell its last actions."""

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        self._observer.remember(action)
        return super().step(action)


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

    def require_same(self, name: str, other: "Spaces", whose: str) -> None:
        """Refuse to play `name`, which has these spaces, with an agent for others."""
        same_bounds = all(np.array_equal(*pair) for pair in zip(self[1:], other[1:]))
        if self.layout != other.layout or not same_bounds:
            what = f"{name!r} has {self.in_words()}"
            raise BadInput(f"{what}; {whose} has {other.in_words()}: these must be equal")

    def in_words(self) -> str:
        """The sizes and the bounds."""
        images = [f"images of {i.channels} x {i.height} x {i.width}" for i in self.layout.images]
        sizes = [*images, *([f"{self.layout.vector} numbers"] if self.layout.vector else [])]
        bounds = [f"{low:g} to {high:g}" for low, high in zip(self.low, self.high)]
        count = f"{len(bounds)} action{'s' if len(bounds) > 1 else ''}"
        bounds = bounds[:1] if len(set(bounds)) == 1 else bounds
        actions = f"{count} from {', '.join(bounds)}"
        return f"observations of {' and '.join(sizes)}, and {actions}"


def time_limit(env: GuardedEnv) -> int | None:
    """The steps after which the environment says that it ends an episode."""
    return env.spec.max_episode_steps if env.spec else None


@dataclass(frozen=True)
class EnvMaker:
    """Makes the environments of a run, here or in another process."""

    source: EnvSource
    config: Config
    eval_source: EnvSource | None = None  # what the config's eval_env names, if not by its name
    lateness: Lateness = field(default_factory=Lateness, compare=False, repr=False)  # of them all

    @classmethod
    def variant(
        cls, config: Config, env: EnvSource | None, env_kwargs: Mapping[str, Any] | None
    ) -> "EnvMaker":
        """For the environment in which a run is evaluated, or for another that the user passed.

        The arguments come on top of the run's, if the environment has the same name.
        """
        own = config.eval_env or config.env
        source, arguments = (own, {}) if env is None else unfolded(env)
        name = env_name(source)
        others = config.eval_env_kwargs if name == own else {}
        arguments = {**others, **arguments, **(env_kwargs or {})}
        if config.single_env and name == config.env and not arguments:
            return cls(source, config)
        config = replace(config, single_env=False, eval_env=name, eval_env_kwargs=arguments)
        return cls(config.env, config, source).for_evaluation()

    def for_evaluation(self) -> "EnvMaker":
        """The maker of the environment in which agents are evaluated; itself, if it is the same."""
        config = self.config
        if config.eval_env is None and not config.eval_env_kwargs:
            return self
        same = config.eval_env in (None, config.env)
        source = self.source if same else config.eval_env
        arguments = {**(config.env_kwargs if same else {}), **config.eval_env_kwargs}
        config = replace(
            config,
            env=config.eval_env or config.env,
            env_kwargs=arguments,
            eval_env=None,
            eval_env_kwargs={},
        )
        source = self.eval_source or source or config.env
        return EnvMaker(source, config, lateness=self.lateness)

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
        registered = name.rpartition(":")[2]
        if render_mode and config.env_backend == "batched" and registered not in gym.registry:
            advice = "t3d record RUN --env NAME plays in another environment"
            raise BadInput(f"{name!r} is played in batches, of which no video is made; {advice}")
        if pooled and (config.env_kwargs or config.wrap):
            knob = "env_kwargs" if config.env_kwargs else "wrap"
            advice = "use --env-backend inline or processes"
            raise BadInput(f"{knob} does not work with EnvPool's environments; {advice}")
        if pooled and mode and not can_render(name):
            if config.pixels:
                advice = "use --env-backend inline or processes, or leave out --pixels"
                raise BadInput(f"EnvPool does not render {name!r} reliably; {advice}")
            pooled = False  # for a video, Gymnasium's environment of this name will do

        def fresh() -> gym.Env[Any, Any]:
            env: gym.Env[Any, Any]
            # A video is of Gymnasium's environment of this name.
            if config.env_backend == "batched" and not render_mode:
                return OneOfBatch(self.source, config)
            env = PooledEnv(name, mode) if pooled else create(self.source, config, mode)
            if config.rate:
                env = Paced(env, config.rate, self.lateness)
            if config.action_repeat > 1:
                env = gym.wrappers.RepeatAction(env, config.action_repeat)
            if config.pixels:
                env = rendered(env, name)
            if config.max_episode_steps:
                env = gym.wrappers.TimeLimit(env, config.max_episode_steps)
            return env

        usual = {} if own_process else surroundings.settings()
        env: gym.Env[Any, Any] | None = None
        try:
            with surroundings.undone():
                env = fresh()
            check_spaces(env, name)
            changed = surroundings.changes(usual)
            if changed:
                raise BadInput(f"environment {name!r} changed {changed[0]}; {surroundings.ADVICE}")
            remake = fresh if config.remake_envs else None
            kind = RememberingEnv if config.action_history else GuardedEnv
            return kind(env, name, index, config, remake, usual)
        except BaseException as error:
            if env is not None:
                close_env(env)
            if isinstance(error, T3DError):
                raise
            raise_interrupt(error)
            raise BadInput(f"environment {name!r} cannot be used: {blame(error)}") from error
