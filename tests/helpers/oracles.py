"""The updates written in NumPy, as learners that take tensors and give tensors."""

from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from helpers.numpy_td3 import NumpyTD3
from helpers.numpy_td7 import NumpyTD7
from helpers.training import Case
from t3d import T3D, Batch


def to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.numpy().astype(np.float64)


Learner = TypeVar("Learner", NumpyTD3, NumpyTD7)


class Oracle(Generic[Learner]):
    """What an untrained agent becomes, according to NumPy."""

    def __init__(self, agent: T3D, case: Case, kind: type[Learner]) -> None:
        state = agent.state_dict()
        self.streams = {name: value for name, value in state.items() if "generator." in name}
        weights = {name: to_numpy(value) for name, value in state.items()}
        self.learner: Learner = kind(weights, case.low, case.high, agent.config)

    def update(self, batch: Batch, noise: torch.Tensor) -> dict[str, float]:
        return self.learner.update(map(to_numpy, batch), to_numpy(noise))

    def state_dict(self) -> dict[str, torch.Tensor]:
        state = {k: torch.from_numpy(value) for k, value in self.learner.state_dict().items()}
        return state | self.streams  # which no update changes
