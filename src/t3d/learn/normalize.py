"""States of any units and sizes, brought to about -1 to 1."""

import numpy as np
import torch
from torch import Tensor

from t3d.base.numbers import Array

_LIMIT = 10.0  # deviations from the mean; a state farther out is clipped to this


class Normalizer:
    """The running mean and deviation of all states, and states normalised by them.

    Before its first update it leaves every number as it is, to the bit. The memory keeps states
    as they came: each batch is normalised by the statistics of its moment.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32) -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.squares = torch.zeros(size, dtype=torch.float64)  # summed distances from the mean
        # A state is normalised as (state - shift) * scale, clipped to ±limit.
        self.shift = torch.zeros(size, dtype=dtype)
        self.scale = torch.ones(size, dtype=dtype)
        self.limit = torch.full((size,), torch.inf, dtype=dtype)

    def update(self, states: Array) -> None:
        """Add states to the statistics, by Chan, Golub and LeVeque's formula for two samples."""
        count = self.count + len(states)
        rows = states.astype(np.float64)
        mean = rows.mean(axis=0)
        total_mean, squares = self.mean.numpy(), self.squares.numpy()  # views
        distance = mean - total_mean
        squares += ((rows - mean) ** 2).sum(axis=0)
        squares += distance**2 * (self.count * len(states) / count)
        total_mean += distance * (len(states) / count)
        self.count = count
        self._apply()

    def _apply(self) -> None:
        """Normalise by the present statistics from now on."""
        # The small term: a number that never changes becomes 0, one that hardly does stays small.
        deviation = np.sqrt(self.squares.numpy() / max(1, self.count) + 1e-8)
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.from_numpy(1 / deviation))
        self.limit.fill_(_LIMIT)

    def __call__(self, states: Tensor) -> Tensor:
        """States as the networks take them."""
        shift, scale, limit = (
            field.to(states.device) for field in (self.shift, self.scale, self.limit)
        )
        return ((states - shift) * scale).clamp(-limit, limit)

    def state_dict(self) -> dict[str, Tensor]:
        """The statistics by name."""
        return {"count": torch.tensor(self.count), "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the statistics of a `state_dict`."""
        self.count = int(state["count"])
        self.mean.copy_(state["mean"])
        self.squares.copy_(state["squares"])
        if self.count:
            self._apply()
        else:
            self.shift.zero_()
            self.scale.fill_(1)
            self.limit.fill_(torch.inf)
