"""Images as a few numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from helpers.images import LAYOUT, image_states
from t3d.base.observation import Image, Layout
from t3d.learn.encoder import Encoder


def test_the_encoder_sees_all_frames_of_each_image() -> None:
    encoder = Encoder(LAYOUT, 8, 5, np.random.default_rng(0))
    rows = image_states(4)[:, : 2 * LAYOUT.frame_size]
    assert encoder(rows).shape == (4, 10)
    # By hand: frame after frame, first image, then second.
    frames = rows.numpy().reshape(4, 2, LAYOUT.frame_size)
    first = frames[:, :, : 32 * 34].reshape(4, 2, 32, 34)
    second = frames[:, :, 32 * 34 :].reshape(4, 6, 40, 36)
    for tower, pixels, part in zip(encoder.towers, (first, second), (slice(5), slice(5, 10))):
        numbers = torch.from_numpy(pixels.astype(np.float32) / 255 - 0.5)
        torch.testing.assert_close(encoder(rows)[:, part], tower(numbers))


@pytest.mark.parametrize(("side", "convolutions"), [(32, 2), (48, 3), (64, 3), (84, 4), (96, 4)])
def test_an_image_is_halved_until_it_is_small(side: int, convolutions: int) -> None:
    layout = Layout(0, (Image(3, side, side),))
    encoder = Encoder(layout, 8, 50, np.random.default_rng(0))
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert len(layers) == convolutions
    assert encoder(image_states(2, layout)).shape == (2, 50)
