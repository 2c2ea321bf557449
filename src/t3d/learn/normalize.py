"""States of any units and sizes, brought to about -1 to 1."""

import numpy as np
import torch
from torch import Tensor

from t3d.base.numbers import Array

_MOST = 10.0  # deviations from the mean; what is farther out counts as this far


class Normalizer:
    """The mean and the deviation of all states so far, and states seen through them.

    Untouched, it leaves every number as it is, to the bit. The memory keeps states as they came:
    each batch is seen through what is known by then.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # the sum of squared distances from the mean
        # What is done with a state: (state - shift) * scale, cut off at +-most.
        self.shift = torch.zeros(size, dtype=dtype)
        self.scale = torch.ones(size, dtype=dtype)
        self.most = torch.full((size,), torch.inf, dtype=dtype)

    def update(self, states: Array) -> None:
        """Take some more states into account: Chan, Golub and LeVeque's sum of two samples."""
        count = self.count + len(states)
        rows = states.astype(np.float64)
        mean = rows.mean(axis=0)
        apart = mean - self.mean
        self.squares += ((rows - mean) ** 2).sum(axis=0)
        self.squares += apart**2 * (self.count * len(states) / count)
        self.mean += apart * (len(states) / count)
        self.count = count
        self._take_effect()

    def _take_effect(self) -> None:
        # One that has never changed is left at 0, and one that hardly does is not blown up.
        deviation = np.sqrt(self.squares / max(1, self.count) + 1e-8)
        self.shift.copy_(torch.from_numpy(self.mean))
        self.scale.copy_(torch.from_numpy(1 / deviation))
        self.most.fill_(_MOST)

    def __call__(self, states: Tensor) -> Tensor:
        """States as the networks see them."""
        shift, scale, most = (
            field.to(states.device) for field in (self.shift, self.scale, self.most)
        )
        return ((states - shift) * scale).clamp(-most, most)

    def state_dict(self) -> dict[str, Tensor]:
        """All that it knows."""
        known = {"count": np.array(self.count), "mean": self.mean, "squares": self.squares}
        return {name: torch.from_numpy(value) for name, value in known.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Know what `state_dict` told."""
        self.count = int(state["count"])
        self.mean = state["mean"].cpu().numpy().copy()
        self.squares = state["squares"].cpu().numpy().copy()
        if self.count:
            self._take_effect()
        else:
            self.shift.zero_()
            self.scale.fill_(1)
            self.most.fill_(torch.inf)
