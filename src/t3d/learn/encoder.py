"""Images as a few numbers, for states that have images: before steps 2 and 3."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from t3d.base.observation import Image, Layout
from t3d.learn.networks import draw, linear


class Encoder(nn.Module):
    """Convolutions of 3 x 3 halve each image until it is small; a linear layer, a LayerNorm
    and a tanh turn it into `features` numbers.

    It belongs to the critic and learns from the critic's loss alone.
    """

    SMALL = 7  # pixels

    def __init__(
        self,
        layout: Layout,
        channels: int,
        features: int,
        stream: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build one tower of layers for each image."""
        super().__init__()
        self.layout = layout
        towers = (
            self._tower(image, layout.frame_stack, channels, features, stream, dtype)
            for image in layout.images
        )
        self.towers = nn.ModuleList(towers)

    def _tower(
        self,
        image: Image,
        frame_stack: int,
        channels: int,
        features: int,
        stream: np.random.Generator,
        dtype: torch.dtype,
    ) -> nn.Sequential:
        inputs, height, width = image.channels * frame_stack, image.height, image.width
        layers: list[nn.Module] = []
        while min(height, width) > self.SMALL:
            convolution = nn.Conv2d(inputs, channels, 3, stride=2, device="meta", dtype=dtype)
            layers += [draw(convolution, stream), nn.ReLU()]
            inputs, height, width = channels, (height - 1) // 2, (width - 1) // 2
        flat = linear(inputs * height * width, features, stream, dtype)
        layers += [nn.Flatten(), flat, nn.LayerNorm(features, dtype=dtype), nn.Tanh()]
        return nn.Sequential(*layers)

    def forward(self, rows: Tensor) -> Tensor:
        """(batch, bytes of the stacked images) -> (batch, features of all images)."""
        frames = rows.reshape(len(rows), self.layout.frame_stack, -1)
        features, start = [], 0
        for image, tower in zip(self.layout.images, self.towers):
            end = start + math.prod(image)
            pixels = frames[:, :, start:end].reshape(len(rows), -1, image.height, image.width)
            dtype = next(tower.parameters()).dtype
            # From bytes to numbers in the order that convolutions are fastest in, in one pass.
            numbers = pixels.to(dtype, memory_format=torch.channels_last)
            features.append(tower(numbers.div_(255).sub_(0.5)))
            start = end
        return torch.cat(features, dim=1)
