"""A simulator that is born batched: carts on a rail, computed by PyTorch, all in one call.

    t3d train examples.batched_carts:Carts --env-backend batched --num-envs 32

Each cart is pushed towards the middle of its rail and must stop there. On a graphics card, pass
`--env-kwargs device=cuda`: T3D takes tensors from any device, and returns actions to it.
"""

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

STEPS, RAIL = 100, 2.0


class Carts(VectorEnv[Tensor, Tensor, Tensor]):
    """`num_envs` carts. A cart that ends its episode begins the next in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012, as in Gymnasium

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.single_observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._random = torch.Generator(self.device)
        self._place = self._speed = torch.zeros(num_envs, device=self.device)
        self._step = torch.zeros(num_envs, device=self.device)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Put every cart somewhere, at rest."""
        if seed is not None:
            self._random.manual_seed(seed)
        self._begin(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        return self._observation(), {}

    def _begin(self, which: Tensor) -> None:
        draw = torch.rand(self.num_envs, generator=self._random, device=self.device)
        self._place = torch.where(which, 2 * draw - 1, self._place)
        self._speed = torch.where(which, 0.0, self._speed)
        self._step = torch.where(which, 0.0, self._step)

    def _observation(self) -> Tensor:
        return torch.stack([self._place, self._speed], dim=1)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Push every cart for a twentieth of a second."""
        push = actions[:, 0].clamp(-1, 1)
        self._speed = 0.98 * self._speed + 0.2 * push
        self._place = self._place + 0.05 * self._speed
        self._step = self._step + 1
        reward = -(self._place.abs() + 0.1 * self._speed.abs() + 0.01 * push**2)
        off = self._place.abs() > RAIL
        late = (self._step >= STEPS) & ~off
        stopped = (self._place.abs() < 0.1) & (self._speed.abs() < 0.1)
        info = {"final_obs": self._observation(), "final_info": {"is_success": stopped}}
        self._begin(off | late)
        return self._observation(), reward - 100 * off, off, late, info
