"""Step 1: states that begin with a stack of frames, each frame stored once.

The oldest frame comes first. Of each state only its newest frame is stored, with the vectors
that follow it. The older frames are the newest ones of the rows before. An episode begins with
its first frame repeated.

    state   a a a    a a b    a b c    b c d
    stored  a        b        c        d
    before  -1       row 0    row 1    row 2
"""

import numpy as np
import torch

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.base.observation import Layout


class FrameStack:
    """Cuts stacked states down to what is new, and puts them together again."""

    def __init__(self, layout: Layout, room: int) -> None:
        """Keep the row before each of `room` rows."""
        self.depth = layout.frame_stack
        self.frame = layout.frame_size
        self.before = np.zeros(room, np.int32)  # the row of the step before, or -1

    def cut(
        self, states: Array, next_states: Array, previous: list[Array | None]
    ) -> tuple[Array, Array, list[bool]]:
        """What is new in each state and next state, and whether each state continues a stack.

        `previous` holds the state that each environment was in last, or None if its episode
        begins. Anything but a stack is refused.
        """
        frame, older = self.frame, (self.depth - 1) * self.frame
        valid = np.array_equal(next_states[:, :older], states[:, frame : frame + older])
        continues = []
        for state, before in zip(states, previous):
            continues.append(before is not None and np.array_equal(before, state))
            valid &= continues[-1] or np.array_equal(state[:older], state[frame : frame + older])
        if not valid:
            rule = "the first frame repeated, then each time one more for the oldest"
            raise BadInput(f"state is not a stack of {self.depth} frames; expected {rule}")
        return states[:, older:], next_states[:, older:], continues

    def join(self, observation: Array, newest: Array, before: Array) -> Array:
        """Complete states, from the row of each newest frame and the row of the step before."""
        places = np.empty((len(newest), self.depth), np.int64)
        places[:, -1] = newest
        for i in range(self.depth - 2, -1, -1):
            places[:, i] = np.where(before >= 0, before, places[:, i + 1])
            before = np.where(before >= 0, self.before[before], -1)
        if observation.shape[1] == self.frame:
            # PyTorch spreads this over its threads.
            frames, flat = torch.from_numpy(observation), torch.from_numpy(places.reshape(-1))
            stacks = frames.index_select(0, flat).numpy()
            return stacks.reshape(len(newest), self.depth * self.frame)
        older = observation[places[:, :-1], : self.frame]
        older = older.reshape(len(newest), (self.depth - 1) * self.frame)
        return np.concatenate([older, observation[newest]], axis=1)
