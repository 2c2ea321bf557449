"""Small agents, a memory for them to learn from, and how two states are compared."""

from typing import Any

import torch
from torch import Tensor

from helpers.memories import filled_memory
from t3d import T3D, Config, ReplayBuffer

LOW, HIGH = (-1.0, 0.0), (1.0, 0.2)


def small_config(**knobs: Any) -> Config:
    return Config.from_dict({"hidden": (8, 6), "batch_size": 16, "tau": 0.1, **knobs})


def small_agent(dtype: torch.dtype = torch.float32, **knobs: Any) -> T3D:
    return T3D(3, LOW, HIGH, small_config(**knobs), dtype=dtype)


def agent_memory(rows: int = 100) -> ReplayBuffer:
    """A memory that a small agent can learn from."""
    return filled_memory(rows, 3, LOW, HIGH)


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """The names whose tensors differ in any bit."""
    assert before.keys() == after.keys()
    return {key for key, value in before.items() if not torch.equal(value, after[key])}
