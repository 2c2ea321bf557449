"""Step 1: the replay memory."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from t3d.base.errors import BadInput
from t3d.base.numbers import Array, all_finite, as_floats
from t3d.learn.replay.sampling import Rows, Transitions, Uniform, transitions
from t3d.learn.replay.tables import Tables


class ReplayBuffer(Tables):
    """Step 1: the last `capacity` transitions, to learn from in random order.

    Consecutive steps look alike, and a network that learns from them one after the other
    forgets the rest; a random draw from a long memory does not. The arrays are reserved
    once, but the system only hands out pages that are written to: an empty memory of a
    million rows costs nothing.

    Every observation is stored once. The next state of a step is the state of the row that
    follows it, if one does. The last observation of an episode, and the newest of all, have a
    place of their own among the *ends*. Of stacked frames each is stored once (frames.py).

        row            0    1    2    3    4  |  ends  0    1
        observation    s0   s1   s2   z0   z1 |        s3   z2      s3: where an episode ended
        next_at        1    2   e0    4    e1 |
    """

    def add(
        self,
        state: ArrayLike,
        next_state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
        truncated: ArrayLike = False,
        envs: ArrayLike | None = None,
    ) -> None:
        """Store one transition, or a batch of them (then every argument has a leading axis).

        `done` means that the episode terminated; `truncated`, that a time limit cut it off, so
        that its last state still has a value. A batch is one step of each of `envs`, by default
        of environments 0, 1, 2 ..., or consecutive steps of one if it is longer than these. Once
        the memory is full, the oldest rows are overwritten. Shapes are checked, and numbers that
        are not finite are refused.
        """
        batch = np.shape(reward)[:1]
        count = batch[0] if batch else 1
        size, dtype = self.layout.size, self.observation.dtype
        states = _checked("state", state, (*batch, size), dtype).reshape(count, size)
        nexts = _checked("next_state", next_state, (*batch, size), dtype).reshape(count, size)
        width = self.action.shape[1]
        actions = _checked("action", action, (*batch, width)).reshape(count, width)
        rewards = _checked("reward", reward, batch).reshape(count)
        dones = _checked("done", done, batch).reshape(count)
        if np.shape(truncated) not in ((), (count,)):
            raise BadInput(f"truncated has shape {np.shape(truncated)}; expected {(count,)}")
        ends = (dones.astype(bool) | np.asarray(truncated, bool)).tolist()
        numbers = _env_numbers(envs, count, self.num_envs)
        continues = None
        if self.frames:
            previous = self._previous_states(numbers, nexts, ends)
            states, nexts, continues = self.frames.cut(states, nexts, previous)

        for i, env in enumerate(numbers):
            row, before = self._free_row(), self._row_before(env)
            self.added += 1
            if before >= 0 and (continues[i] if continues else self._leads_to(before, states[i])):
                place = self._follow(before, row)
            else:
                before, place = -1, self._ends.take()
            self.observation[row] = states[i]
            self.observation[place] = nexts[i]
            self.action[row] = actions[i]
            self.reward[row] = rewards[i]
            self.done[row] = dones[i]
            self.next_at[row] = place
            if self.frames:
                self.frames.before[row] = before
            self._row_blocks.mark(row, self.added)
            self._end_blocks.mark(place - self.room, self.added)
            self._newest[env] = -1 if ends[i] else self.added - 1

    def end(self, env: int) -> None:
        """Cut an environment's episode off: its next transition follows none of the stored."""
        self._newest[env] = -1

    def _free_row(self) -> int:
        """The row to write next, without what it held."""
        row = self.added % self.room
        if self.added >= self.room and self.next_at[row] >= self.room:
            self._ends.give(int(self.next_at[row]))
        return row

    def _row_before(self, env: int) -> int:
        """The row that an environment's next one may follow; -1 if none, or if it is gone."""
        number = self._newest[env]
        there = number >= 0 and number > self.added - self.room
        return number % self.room if there else -1

    def _leads_to(self, row: int, state: Array) -> bool:
        """Whether a state is where a row led; the same bits, so that nothing stored changes."""
        return bool(self.observation[self.next_at[row]].tobytes() == state.tobytes())

    def _follow(self, before: int, row: int) -> int:
        """Let a row's state be where the row before it led; returns the end that this frees."""
        place = int(self.next_at[before])
        self.next_at[before] = row
        self._row_blocks.mark(before, self.added)
        return place

    def _previous_states(
        self, envs: list[int], next_states: Array, ends: list[bool]
    ) -> list[Array | None]:
        """The state that each transition's environment was in last; None if an episode begins."""
        in_batch: dict[int, Array | None] = {}
        previous = []
        for env, after, ended in zip(envs, next_states, ends):
            if env not in in_batch:
                in_batch[env] = self._last_state(env)
            previous.append(in_batch[env])
            in_batch[env] = None if ended else after
        return previous

    def _last_state(self, env: int) -> Array | None:
        number = self._newest[env]
        if number < max(0, self.added - self.room):
            return None
        if self.added - number > self.max_row_gap:  # the frames before may be overwritten soon
            raise BadInput("with a frame stack, all environments must add a row in each round")
        state: Array = self.next_states_at(np.array([number % self.room]))[0]
        return state

    def states_at(self, rows: Rows) -> Array:
        """The states of some rows."""
        if self.frames is None:
            return self.observation[rows]
        return self.frames.join(self.observation, rows, self.frames.before[rows])

    def next_states_at(self, rows: Rows) -> Array:
        """Where some rows led."""
        places = self.next_at[rows]
        if self.frames is None:
            return self.observation[places]
        return self.frames.join(self.observation, places, rows)

    def newest(self, count: int) -> Rows:
        """The rows of the last few transitions, the oldest first."""
        rows = np.arange(self.added - min(count, self.size), self.added)
        return rows % self.room

    def live_rows(self) -> Rows:
        """The rows of all stored transitions, the oldest first."""
        return self.newest(self.size)

    def sample(
        self,
        batch_size: int,
        generator: np.random.Generator,
        n_step: int = 1,
        discount: float = 0.99,
    ) -> Transitions:
        """The transitions of so many rows, drawn uniformly; see `batch`."""
        return self.batch(Uniform().draw(self, batch_size, generator), n_step, discount)

    def batch(self, rows: Rows, n_step: int = 1, discount: float = 0.99) -> Transitions:
        """The transitions of some rows.

        With `n_step`, each includes the steps that followed it, up to so many in all: their
        discounted rewards are summed, and the next state is where the last of them led. It stops
        at the end of the episode, however it ended, and at the newest row.
        """
        return transitions(self, rows, n_step, discount)


_FLOAT = np.dtype(np.float32)


def _checked(
    name: str, values: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any] = _FLOAT
) -> Array:
    """The values in the type that is stored, so that what is checked is what is stored."""
    if dtype == np.uint8:
        array = np.asarray(values)
        if array.dtype != np.uint8:
            raise BadInput(f"{name} has type {array.dtype}; expected uint8, as this memory holds")
    else:
        try:
            array = as_floats(values)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name} is a {type(values).__name__}; expected numbers") from error
    if array.shape != shape:
        raise BadInput(f"{name} has shape {array.shape}; expected {shape}")
    if dtype == np.float32 and not all_finite(array):
        bad = array[~np.isfinite(array)][0] if array.ndim else array
        raise BadInput(f"{name} holds {bad}; expected finite numbers, nothing was stored")
    return array


def _env_numbers(envs: ArrayLike | None, count: int, num_envs: int) -> list[int]:
    if envs is None:
        return list(range(count)) if count <= num_envs else [0] * count
    numbers: list[int] = np.atleast_1d(envs).tolist()
    if len(numbers) != count or not all(0 <= env < num_envs for env in numbers):
        raise BadInput(f"envs is {numbers}; expected {count} numbers below num_envs, {num_envs}")
    return numbers
