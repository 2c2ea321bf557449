"""The parts of an observation, and how T3D stores it as one row of numbers.

Without images, a row is the vectors as float32, one after another. With images, it is bytes:
first the images of each frame of the stack, oldest frame first, channel by channel; then the
bytes of the float32 vectors. The newest frame and the vectors are together at the end of the
row, and a memory stores only that end.
"""

import math
from typing import Any, NamedTuple

import numpy as np


class Image(NamedTuple):
    """One image of a frame."""

    channels: int
    height: int
    width: int


class Layout(NamedTuple):
    """The parts of an observation."""

    vector: int  # numbers in all vectors together
    images: tuple[Image, ...] = ()  # of one frame
    frame_stack: int = 1

    @property
    def frame_size(self) -> int:
        """Bytes of all images of a frame."""
        return sum(math.prod(image) for image in self.images)

    @property
    def size(self) -> int:
        """Numbers in a row."""
        if not self.images:
            return self.vector
        return self.frame_stack * self.frame_size + 4 * self.vector

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of these numbers."""
        return np.dtype(np.uint8 if self.images else np.float32)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Layout":
        """The layout whose `_asdict` was written as JSON."""
        images = tuple(Image(*image) for image in values["images"])
        layout = cls(values["vector"], images, values["frame_stack"])
        sizes = [
            layout.vector + 1,
            layout.frame_stack,
            *(side for image in images for side in image),
        ]
        if not all(type(size) is int and 1 <= size < 2**31 for size in sizes):
            raise ValueError(f"{values} is no layout of an observation")
        return layout
