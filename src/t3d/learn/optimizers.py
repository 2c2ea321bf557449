"""Adam as every agent uses it, and the learning rate of each update."""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from t3d.config import Config


def rate_at(config: Config, network: str, updates: int) -> float:
    """The learning rate of a network, such as `actor`, after so many updates.

    It depends on nothing else, so that a resumed run has the rates of an uninterrupted one.
    """
    own: float = getattr(config, f"{network}_learning_rate", 0.0)
    rate = own or config.learning_rate
    if config.learning_rate_schedule == "constant":
        return rate
    done = min(1.0, updates / max(1, config.updates_by(config.steps)))
    linear = config.learning_rate_schedule == "linear"
    left = 1 - done if linear else (1 + math.cos(math.pi * done)) / 2
    return rate * (config.learning_rate_final + (1 - config.learning_rate_final) * left)


def adam(
    network: nn.Module, rate: float, weight_decay: float, device: torch.device
) -> torch.optim.Adam:
    """Adam for a network; with weight decay, AdamW."""
    # Fused Adam steps all parameters in one pass, and counts its steps on the device.
    fused = device.type in ("cpu", "cuda", "mps")
    kind: Any = torch.optim.AdamW if weight_decay else torch.optim.Adam
    optimizer = kind(network.parameters(), lr=rate, weight_decay=weight_decay, fused=fused)
    optimizer.state.update(adam_state(network, device if fused else "cpu"))
    return cast(torch.optim.Adam, optimizer)


def adam_state(network: nn.Module, counter_device: torch.device | str) -> dict[Tensor, Any]:
    """Adam's state of each parameter before its first step.

    PyTorch creates it at the first step. Created here, the state always has the same shape.
    """
    return {
        parameter: {
            "step": torch.zeros((), device=counter_device),
            "exp_avg": _zeros_like(parameter),
            "exp_avg_sq": _zeros_like(parameter),
        }
        for parameter in network.parameters()
    }


def _zeros_like(parameter: Tensor) -> Tensor:
    # Of a skeleton's, PyTorch would load its symbolic shapes, and SymPy for them: half a second.
    if parameter.is_meta:
        return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
    return torch.zeros_like(parameter)
