"""An observation as one row of numbers: vectors joined, images made small and stacked.

base/observation.py describes the row. The config, which is saved with the agent, says how images
are prepared.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from t3d.base.errors import BadInput
from t3d.base.extras import how_to_install
from t3d.base.numbers import Array, all_finite, as_floats, plain_array
from t3d.base.observation import Image, Layout
from t3d.base.text import one_line, shown
from t3d.config import Config

_MIN_SIDE = 32  # pixels
_MAX_CHANNELS = 16  # a stack of five colour images; a longer axis is no channel axis


class _Part(NamedTuple):
    """A part of an observation, as the environment describes it."""

    name: str  # with a space before it; empty if it is the only one
    key: str | int | None
    shape: tuple[int, ...]
    image: bool
    channels_first: bool


class Observer:
    """Turns observations of one environment into rows, with the histories of an episode.

    With images, `frame_stack` stacks these alone, and a memory stores each once. Without, it joins
    the last observations, the oldest first. The last actions, from -1 to 1 in their range, come at
    the end; before the first there are zeros, the middle of the range.
    """

    def __init__(
        self, space: Any, name: str, config: Config, action_space: gym.spaces.Box | None = None
    ) -> None:
        """Check an observation space; one that T3D cannot learn from is refused."""
        self._grey, self._side = config.grey, config.image_size
        self.parts = _parts(space, name)
        images = [part for part in self.parts if part.image]
        if not images:
            for knob, is_set in (
                ("grey", config.grey),
                ("image_size", config.image_size),
            ):
                if is_set:
                    advice = "leave it out, or learn from rendered images with --pixels"
                    raise BadInput(f"{name!r} has no image, which {knob} is for; {advice}")
        if self._side:
            _pillow()
        sizes = tuple(self._image_size(part, name) for part in images)
        vector = sum(int(np.prod(part.shape)) for part in self.parts if not part.image)
        self._depth = config.frame_stack
        vector *= 1 if images else self._depth
        self._actions: list[Array] = []  # the last ones, the oldest first
        if config.action_history:
            assert action_space is not None
            self._low, self._high = (
                np.asarray(bound, np.float64) for bound in (action_space.low, action_space.high)
            )
            self._actions = [np.zeros(action_space.shape, np.float32)] * config.action_history
            vector += config.action_history * len(self._low)
        self.layout = Layout(vector, sizes, self._depth if images else 1)
        alone = len(self.parts) == 1 and self.parts[0].key is None
        self._plain = alone and not (images or self._actions or self._depth > 1)
        self._frames: list[Array] = []

    def _image_size(self, part: _Part, name: str) -> Image:
        channels, height, width = _as_channels_first(part)
        if self._grey and channels not in (1, 3):
            raise BadInput(f"{name!r} has an image{part.name} of {channels} channels; grey needs 3")
        channels = 1 if self._grey else channels
        height, width = (self._side, self._side) if self._side else (height, width)
        if min(height, width) < _MIN_SIDE:
            advice = f"expected at least {_MIN_SIDE}; enlarge with --image-size {_MIN_SIDE}"
            raise BadInput(f"{name!r} has an image{part.name} of {height} x {width}; {advice}")
        return Image(channels, height, width)

    def __call__(self, observation: Any, first: bool) -> Array:
        """The row of an observation, or a ValueError; `first` begins an episode."""
        if self._plain:
            return _vector(self.parts[0], observation).reshape(-1)
        if first:
            self._actions = [np.zeros_like(action) for action in self._actions]
        values = [(part, part_of(part, observation)) for part in self.parts]
        vectors = [_vector(part, value).reshape(-1) for part, value in values if not part.image]
        if not self.layout.images:
            if self._depth > 1:
                vectors = self._stacked(np.concatenate(vectors), first)
            return np.concatenate([*vectors, *self._actions])
        images = [self._image(part, value) for part, value in values if part.image]
        frames = self._stacked(np.concatenate([image.reshape(-1) for image in images]), first)
        vectors += self._actions
        return np.concatenate(
            [*frames, *(np.ascontiguousarray(vector).view(np.uint8) for vector in vectors)]
        )

    def _stacked(self, frame: Array, first: bool) -> list[Array]:
        """The last frames of the episode; at its start, the first one in place of those before."""
        if self._depth == 1:
            return [frame]
        self._frames = [frame] * self._depth if first else [*self._frames[1:], frame]
        return self._frames

    def remember(self, action: Array) -> None:
        """Note an action that is about to be played."""
        low, high = self._low, self._high
        scaled = (action - low / 2 - high / 2) / (high / 2 - low / 2)  # no overflow
        self._actions = [*self._actions[1:], scaled.astype(np.float32)]

    def _image(self, part: _Part, value: Any) -> Array:
        """An image channel by channel; grey and resized if the config says so."""
        try:
            image = plain_array(value)
        except Exception as error:  # whatever it raises when it is asked for an array
            raise _not_numbers(f"image{part.name}", value, error) from error
        if image.dtype != np.uint8:
            raise ValueError(f"image{part.name} has type {image.dtype}; expected uint8")
        if image.shape != part.shape:
            expected = f"expected {part.shape} as in observation_space"
            raise ValueError(f"image{part.name} has shape {image.shape}; {expected}")
        if image.ndim == 2:
            image = image[None]
        elif not part.channels_first:
            image = np.moveaxis(image, 2, 0)
        if self._grey and len(image) == 3:
            weights = np.array([0.299, 0.587, 0.114], np.float32)  # of the eye, ITU-R BT.601
            image = np.rint(np.tensordot(weights, image, 1)).astype(np.uint8)[None]
        if self._side and image.shape[1:] != (self._side, self._side):
            image = _resized(image, self._side)
        return image


def _parts(space: Any, name: str) -> list[_Part]:
    """The parts of an observation space, in a fixed order."""
    if isinstance(space, gym.spaces.Dict):
        items: list[tuple[str | int | None, Any]] = [(k, v) for k, v in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple):
        items = list(enumerate(space.spaces))
    else:
        items = [(None, space)]
    if not items:
        raise BadInput(f"{name!r} has empty observations, {space}; expected at least one part")
    return [_part(key, part, name) for key, part in items]


def _part(key: str | int | None, space: Any, name: str) -> _Part:
    label = "" if key is None else f" {key!r}"
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        advice = "flatten it with a gymnasium.ObservationWrapper"
        raise BadInput(f"{name!r} has nested observations,{label} is a Dict or Tuple; {advice}")
    if not isinstance(space, gym.spaces.Box):
        kind = type(space).__name__
        advice = "T3D learns from Boxes: turn it into numbers, for example one-hot, in a wrapper"
        raise BadInput(f"{name!r} has {kind} observations{label and ' in'}{label}; {advice}")
    shape = space.shape
    bytes_ = space.dtype == np.uint8
    if bytes_ and len(shape) in (2, 3):
        part = _Part(label, key, shape, image=True, channels_first=_channels_first(shape))
        channels = _as_channels_first(part)[0]
        if channels > _MAX_CHANNELS or (channels > 4 and channels % 3 and channels % 4):
            expected = "expected 1 to 4, or a stack of 3s or 4s, as the first or last axis"
            what = f"images{label} of shape {shape}, {channels} channels"
            raise BadInput(f"{name!r} has {what}; {expected}")
        return part
    if len(shape) == 3:
        advice = "give uint8 from 0 to 255 (from 0 to 1, multiply by 255)"
        raise BadInput(f"{name!r} has images{label} of type {space.dtype}; {advice}")
    if len(shape) > 1 or 0 in shape:
        advice = "flatten them with gymnasium.wrappers.FlattenObservation"
        raise BadInput(f"{name!r} has observations{label} of shape {shape}; {advice}")
    return _Part(label, key, shape, image=False, channels_first=False)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] <= _MAX_CHANNELS and shape[2] > shape[0]


def _as_channels_first(part: _Part) -> tuple[int, ...]:
    if len(part.shape) == 2:
        return (1, *part.shape)
    if part.channels_first:
        return part.shape
    height, width, channels = part.shape
    return channels, height, width


def part_of(part: _Part, observation: Any) -> Any:
    """A part of an observation, or of those of a batch."""
    if part.key is None:
        return observation
    named = isinstance(part.key, str)
    if not isinstance(observation, Mapping if named else (tuple, list)):
        kind = "a dict" if named else "a tuple"
        raise ValueError(f"observation is a {type(observation).__name__}; expected {kind}")
    parts: Any = observation
    try:
        return parts[part.key]
    except (KeyError, IndexError):
        raise ValueError(f"observation lacks{part.name}") from None


def _not_numbers(what: str, value: Any, why: Exception) -> ValueError:
    kind = type(value).__name__
    return ValueError(f"{what} is a {kind}, not numbers: {shown(value)} ({one_line(why)})")


def _vector(part: _Part, value: Any) -> Array:
    try:
        array = as_floats(value)
    except Exception as error:  # whatever it raises when it is asked for an array
        raise _not_numbers(f"observation{part.name}", value, error) from error
    if array.shape != part.shape:
        expected = f"expected {part.shape} as in observation_space"
        raise ValueError(f"observation{part.name} has shape {array.shape}; {expected}")
    if not all_finite(array):
        flat = array.reshape(-1)
        bad = np.flatnonzero(~np.isfinite(flat))[0]
        what = f"observation{part.name}[{bad}] is {flat[bad]}"
        raise ValueError(f"{what}; expected finite numbers, nothing was stored")
    return array


def _pillow() -> Any:
    try:
        from PIL import Image as Pillow
    except ModuleNotFoundError as error:
        raise BadInput(f"image_size needs an extra: {how_to_install('image')}") from error
    return Pillow


def _resized(image: Array, side: int) -> Array:
    """An image of side x side; each of its pixels is the mean of those that it covers."""
    pillow = _pillow()
    box = pillow.Resampling.BOX
    channels = [np.asarray(pillow.fromarray(c).resize((side, side), box)) for c in image]
    return np.stack(channels)
