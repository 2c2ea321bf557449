"""What an observation is made of, and how it is one row of numbers everywhere in T3D.

Vectors alone are float32, one behind the other. With images, a row is bytes: all images of
the oldest frame of the stack, of the next, ... of the newest, channel by channel, and then
the vectors as the bytes of their float32. So the newest frame and the vectors stand together
at the end, and all that a memory need store of a stack is that end.
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
    def from_json(cls, said: dict[str, Any]) -> "Layout":
        """What `_asdict` became on the way through JSON."""
        images = tuple(Image(*image) for image in said["images"])
        layout = cls(said["vector"], images, said["frame_stack"])
        sizes = [
            layout.vector + 1,
            layout.frame_stack,
            *(side for image in images for side in image),
        ]
        if not all(type(size) is int and 1 <= size < 2**31 for size in sizes):
            raise ValueError(f"{said} is no layout of an observation")
        return layout
