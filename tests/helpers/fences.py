"""Room to compute in that notices what is written outside of it."""

from typing import Any

import numpy as np

from t3d.base.numbers import Array
from t3d.learn.fused.plan import Scratch, new_scratch


class Fenced:
    """Room to compute in for the engine, with a fence around each array."""

    WIDTH, MARK = 4096, 12345.0  # numbers on each side

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def __call__(self, *sizes: Any) -> Scratch:
        return Scratch(*(self.fence(array) for array in new_scratch(*sizes)))

    def fence(self, inside: Array) -> Array:
        """Zeros of the same shape, between two fences."""
        array = np.full(inside.size + 2 * self.WIDTH, self.MARK, inside.dtype)
        self.arrays.append(array)
        fenced: Array = array[self.WIDTH : -self.WIDTH].reshape(inside.shape)
        fenced[...] = 0
        return fenced

    def is_whole(self) -> bool:
        """Whether nothing was written on a fence."""
        ends = slice(None, self.WIDTH), slice(-self.WIDTH, None)
        return all((array[end] == self.MARK).all() for array in self.arrays for end in ends)
