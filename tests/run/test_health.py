"""Warnings about the agent's health."""

import numpy as np
import pytest

from helpers import odd_envs
from helpers.runs import in_memory
from t3d import T3D, Config, ReplayBuffer
from t3d.base.observation import Image, Layout
from t3d.run.health import warnings

CONFIG = Config(hidden=(4,), discount=0.5, image_channels=2, features=2)


@pytest.mark.parametrize(("largest", "explodes"), [(5.0, True), (100.0, False)])
def test_the_values_are_compared_with_the_rewards_that_are_stored(
    largest: float, explodes: bool
) -> None:
    """With stacked frames, a row outlives its transition: its reward counts no longer."""
    layout = Layout(0, (Image(1, 32, 32),), frame_stack=2)
    memory = ReplayBuffer(3, layout, 1)
    nothing = np.zeros(layout.size, np.uint8)
    for reward in (1, 100, 3, 4, largest):
        memory.add(nothing, nothing, [0], reward, False)
    measured = {"saturation": 0.0, "mean_Q": 50.0}  # beyond 2 * 5 / (1 - 0.5), below 100
    agent = T3D(layout, [-1], [1], CONFIG)
    names = [name for name, _ in warnings(agent, memory, CONFIG, measured)]
    assert names == (["exploding"] if explodes else [])


def test_observations_whose_squares_overflow_are_no_reason_to_warn() -> None:
    trained = in_memory(odd_envs.HugeObservation, normalize_observations=True)
    assert trained.records.of("warning") == []
