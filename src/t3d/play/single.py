"""`single_env`: one environment in the life of a program, for training and evaluation in turn.

It may be hardware, or a simulator with one licence: no second one is ever made, no action is
played that was not asked for, and none is played again.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.config import Config
from t3d.play.envs import EnvMaker, EnvSource, close_env
from t3d.play.making import factory
from t3d.play.vector import Environments


class _Lent(gym.Wrapper[Any, Any, Any, Any]):
    """The environment in the hands of whoever asked for one: they cannot close it."""

    def close(self) -> None:
        """It is the lender's to close."""


class OneEnv:
    """Makes an environment once, and lends it to whoever asks for one; an `EnvSource`."""

    def __init__(self, source: EnvSource) -> None:
        self.lends = source
        self._env: gym.Env[Any, Any] | None = None

    def __call__(self, **arguments: Any) -> gym.Env[Any, Any]:
        """The environment. The arguments are those with which it is made, the first time."""
        if self._env is None:
            env = factory(self.lends)(**arguments)
            if not isinstance(env, gym.Env):  # it is refused by name
                return env  # type: ignore[no-any-return]
            self._env = env
        return _Lent(self._env)

    def close(self) -> None:
        """End the environment."""
        if self._env is not None:
            close_env(self._env)


@contextmanager
def lending(maker: EnvMaker) -> Iterator[EnvMaker]:
    """A maker whose environments are all the same one, if the config says so; closed at the end.

    Within another `lending` it is the same maker, and the outer one closes the environment.
    """
    if not maker.config.single_env or isinstance(maker.source, OneEnv):
        yield maker
        return
    one = OneEnv(maker.source)
    try:
        yield replace(maker, source=one)
    finally:
        one.close()


class OneEnvironment(Environments):
    """The training environment that evaluations play in, too: between two of its episodes.

    An episode begins with its first step, not when the one before ends: an evaluation may come
    in between. Until then, `state` is where the last step led. On resume no action is played
    again: it begins a new episode.
    """

    def __init__(self, maker: EnvMaker) -> None:
        super().__init__(maker)
        self.at_rest = True

    def reset(self) -> None:
        """Nothing: the first episode begins with its first step."""

    def check(self) -> None:
        """Begin the next episode, unless one is in progress."""
        if self.at_rest:
            self._begin([0])
            self.at_rest = False

    def _next(self, ended: list[int]) -> None:
        """The next episode waits."""
        self.episode[ended] += 1
        self.played, self.checksums, self.before = [[]], [0], [([], 0)]
        self.at_rest = True

    def cut(self) -> list[int]:
        """End the episode in progress here, if there is one."""
        if self.at_rest:
            return []
        self._next([0])
        return [0]

    def set_attribute(self, name: str, value: Any) -> None:
        """Not here: evaluations, which keep the task, play in the same environment."""
        advice = "train without --single-env, or without the curriculum"
        raise BadInput(f"{name!r} cannot be set for training alone in one environment; {advice}")

    def state_dict(self) -> dict[str, Array]:
        """As of any environments; `begun` says whether an episode is in progress."""
        return super().state_dict() | {"begun": np.array(not self.at_rest)}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume with a new episode; `lost` names the environment if another was in progress."""
        self.episode, self.state = arrays["episode"].copy(), arrays["state"].copy()
        self.at_rest = not arrays["begun"]
        self.lost = self.cut()


def require_consent(
    config: Config, given: Collection[str], ask: Callable[[str], bool] = lambda question: False
) -> None:
    """Refuse random actions in the one environment, unless the user agreed to them.

    Whoever gave `random_steps` agreed, and so does whoever says yes when asked.
    """
    count = min(config.random_steps, config.steps)
    if not config.single_env or not count or "random_steps" in given:
        return
    if not ask(f"The first {count:,} steps in {config.env} are random actions. Play them?"):
        what = f"with --single-env, the first {count:,} steps would be random actions"
        agree = f"agree with --random-steps {config.random_steps}"
        advice = f"{agree}, or play none with --random-steps 0 (in Python, random_steps=)"
        raise BadInput(f"{what} in {config.env}; {advice}")
