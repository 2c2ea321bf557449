"""Agents that see images, and states and batches for them."""

from typing import Any

import numpy as np
import torch

from t3d import T3D, Config
from t3d.base.observation import Image, Layout
from t3d.learn.replay.sampling import Transitions

LAYOUT = Layout(2, (Image(1, 32, 34), Image(3, 40, 36)), 2)


def image_states(rows: int, layout: Layout = LAYOUT, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (rows, layout.frame_stack * layout.frame_size), np.uint8)
    vector = random.normal(size=(rows, layout.vector)).astype(np.float32)
    return torch.from_numpy(np.concatenate([images, vector.view(np.uint8)], axis=1))


def image_batch(rows: int = 6) -> Transitions:
    random = np.random.default_rng(1)
    fields = (
        random.uniform(-1, 1, (rows, 1)),
        random.normal(size=rows),
        np.zeros(rows),
        np.ones(rows),
    )
    rest = (torch.from_numpy(np.float32(field)) for field in fields)
    return Transitions(image_states(rows, seed=2), image_states(rows, seed=3), *rest)


def image_agent(**knobs: Any) -> T3D:
    config = Config(hidden=(16, 16), batch_size=6, features=5, learning_rate=1e-2, **knobs)
    return T3D(LAYOUT, [-1], [1], config)
