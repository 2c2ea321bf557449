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

    Consecutive steps look alike, and a network that learns from them in order forgets the rest.
    Learning from rows drawn at random from a long memory avoids that. The arrays have their full
    size from the start, but the system allocates a page of RAM only when it is first written: an
    empty memory of a million rows costs almost nothing.

    Every observation is stored once. The next state of a row is the state of the row that follows
    it in the episode. Where none follows (at the end of an episode, and at the newest row of each
    environment), the next state has a place of its own among the *ends*. With stacked frames,
    each frame is stored once (frames.py).

        row            0    1    2    3    4  |  ends  0    1
        observation    s0   s1   s2   z0   z1 |        s3   z2      s3: the last state of an episode
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
        that its last state still has a value. `envs` are the environments that the transitions come
        from. By default a batch is one step of environments 0, 1, 2 ...; if it is longer than
        `num_envs`, it is consecutive steps of environment 0. A full memory overwrites its oldest
        rows. Wrong shapes and numbers that are not finite are refused.
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
        """Cut an environment's episode off: its next transition continues no stored one."""
        self._newest[env] = -1

    def _free_row(self) -> int:
        """The row to write next. If its old transition used an end, that end is freed."""
        row = self.added % self.room
        if self.added >= self.room and self.next_at[row] >= self.room:
            self._ends.give(int(self.next_at[row]))
        return row

    def _row_before(self, env: int) -> int:
        """The newest row of an environment; -1 if its episode ended or the row is overwritten."""
        number = self._newest[env]
        there = number >= 0 and number > self.added - self.room
        return number % self.room if there else -1

    def _leads_to(self, row: int, state: Array) -> bool:
        """Whether a state has the bits of a row's next state, so that both can share a place."""
        return bool(self.observation[self.next_at[row]].tobytes() == state.tobytes())

    def _follow(self, before: int, row: int) -> int:
        """Make a row's state the next state of the row before; returns the end that this frees."""
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
        if self.added - number > self.max_row_gap:  # its earlier frames may be overwritten soon
            raise BadInput("with a frame stack, all environments must add a row in each round")
        state: Array = self.next_states_at(np.array([number % self.room]))[0]
        return state

    def states_at(self, rows: Rows) -> Array:
        """The states of some rows."""
        if self.frames is None:
            return self.observation[rows]
        return self.frames.join(self.observation, rows, self.frames.before[rows])

    def next_states_at(self, rows: Rows) -> Array:
        """The next states of some rows."""
        places = self.next_at[rows]
        if self.frames is None:
            return self.observation[places]
        return self.frames.join(self.observation, places, rows)

    def newest(self, count: int) -> Rows:
        """The rows of the last few transitions, the oldest first."""
        count = min(count, self.size)
        first = (self.added - count) % self.room
        rows = np.arange(first, first + count)
        rows[self.room - first :] -= self.room  # those after the end of the ring
        return rows

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
        """`batch_size` transitions, drawn uniformly with replacement; see `batch`."""
        return self.batch(Uniform().draw(self, batch_size, generator), n_step, discount)

    def batch(self, rows: Rows, n_step: int = 1, discount: float = 0.99) -> Transitions:
        """The transitions of some rows.

        With `n_step` above 1, each covers up to `n_step` consecutive steps: their discounted
        rewards are summed, and the next state is that of the last of them. It stops early at the
        end of the episode, terminated or truncated, and at the newest row.
        """
        return transitions(self, rows, n_step, discount)


_FLOAT = np.dtype(np.float32)


def _checked(
    name: str, values: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any] = _FLOAT
) -> Array:
    """The values as they will be stored: converted first, then checked."""
    if dtype == np.uint8:
        array = np.asarray(values)
        if array.dtype != np.uint8:
            raise BadInput(f"{name} has type {array.dtype}; expected uint8, as this memory holds")
    else:
        try:
            array = as_floats(values)
        except Exception as error:  # whatever it raises when it is asked for an array
            raise BadInput(f"{name} is a {type(values).__name__}; expected numbers") from error
    if array.shape != shape:
        order = "; the order is state, next_state, action, reward" if name == "next_state" else ""
        raise BadInput(f"{name} has shape {array.shape}; expected {shape}{order}")
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
