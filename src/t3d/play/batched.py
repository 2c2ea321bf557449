"""A batch of environments as those of a run: guarded, and with their state."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from t3d.base.errors import BadInput, BrokenEnvironment
from t3d.base.numbers import Array, all_finite, as_floats, plain_array
from t3d.base.randomness import derived_seed
from t3d.base.signals import set_handlers_again
from t3d.base.text import blame, one_line
from t3d.config import Config
from t3d.play import surroundings
from t3d.play.batch import as_array, final_observation, like, make_batch, reset_mode
from t3d.play.envs import EnvMaker, EnvSource, Spaces, check_spaces, env_name
from t3d.play.info import BatchTally, EpisodeInfo
from t3d.play.making import raise_interrupt
from t3d.play.observe import Observer, part_of
from t3d.play.vector import Environments, Steps

_LARGEST = float(np.finfo(np.float32).max)
_CLOSE_LIMIT = 10.0  # seconds that a batch has to close


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

    def __init__(self, source: EnvSource, config: Config) -> None:
        self.name, self.num_envs = env_name(source), config.num_envs
        self._usual = surroundings.settings()
        self._step = 0
        with surroundings.undone():
            self._env = make_batch(source, config, config.num_envs)
        try:
            self._take(config)
        except BaseException:
            self.close()
            raise

    def _take(self, config: Config) -> None:
        """Check what was made."""
        env = self._env
        self._require_unchanged()
        if env.num_envs != config.num_envs:
            what = f"{self.name!r} made a batch of {env.num_envs} environments"
            raise BadInput(
                f"{what}, and num_envs is {config.num_envs}: use --num-envs {env.num_envs}"
            )
        space, action = env.single_observation_space, env.single_action_space
        check_spaces(SimpleNamespace(observation_space=space, action_space=action), self.name)
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


def _batched(observation: Any) -> Any:
    """An observation of one environment as that of a batch of one."""
    if isinstance(observation, dict):
        return {name: _batched(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_batched(part) for part in observation)
    return np.asarray(as_array(observation))[None]


class BatchedEnvironments(Environments):
    """Environments that one object plays at once.

    Nobody can begin a single one of them with a seed of its own. So no episode can be played again:
    a resumed run begins new ones, and is marked not bit-exact.
    """

    def __init__(self, maker: EnvMaker) -> None:
        config = maker.config
        self.batch = Batch(maker.source, config)
        low, high = as_floats(self.batch.low), as_floats(self.batch.high)
        self._keep(maker, 0, Spaces(self.batch.layout, low, high))

    def take_restarts(self) -> list[tuple[int, str]]:
        """None: there are no processes to restart."""
        return []

    def reset(self) -> None:
        """Begin the first episode of every environment."""
        self.state = self.batch.reset(derived_seed(self.seed, "reset", 0, int(self.episode.sum())))

    def set_attribute(self, name: str, value: Any) -> None:
        """Not here: a batch has no environments of its own to set it in."""
        advice = "train with --env-backend inline or processes, or without the curriculum"
        raise BadInput(f"{name!r} cannot be set in a batch of environments; {advice}")

    def step(self, action: Array) -> Steps:
        """Play one action in each; those that begin their next episode instead are `lost`."""
        played = self.batch.step(action)
        self.state = played.state
        skipped = np.flatnonzero(played.skipped)
        ended = (played.terminated | played.truncated) & ~played.skipped
        self.episode += ended
        return Steps(
            played.next_state,
            np.where(played.skipped, 0.0, played.reward),
            played.terminated & ended,
            played.truncated & ended,
            skipped.tolist(),
            played.infos,
        )

    def state_dict(self) -> dict[str, Array]:
        """How many episodes each environment has finished, and its state."""
        return {"episode": self.episode.copy(), "state": self.state.copy()}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Resume with new episodes in all of them."""
        self.episode = arrays["episode"] + 1
        self.lost = list(range(self.num_envs))
        self.reset()

    def close(self) -> None:
        """End the batch."""
        self.batch.close()
