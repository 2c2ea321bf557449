"""Which engine learns: the page that people read, or the same fused for the CPU."""

from typing import Literal

import torch

from t3d.base.errors import BadInput
from t3d.base.observation import Layout
from t3d.config import Config
from t3d.learn.t3d import T3D

Engine = Literal["reference", "fused"]


def engine_for(config: Config, layout: Layout | None = None) -> tuple[Engine, str]:
    """The engine that a config asks for, and, if it is not the fast one for all that, why."""
    if config.engine == "reference":
        return "reference", ""
    if layout and layout.images:
        why = "fused has no convolutions for images"
    elif config.device.partition(":")[0] != "cpu":
        why = f"fused runs on the CPU, not on {config.device}"
    else:
        try:
            import numba  # noqa: F401

            return "fused", ""
        except ImportError as error:  # not there, or not made for this Python or NumPy
            why = f"fused needs numba: {error}"
    if config.engine == "fused":
        raise BadInput(f"engine {why}; take --engine reference")
    return "reference", why


def reference_threads(config: Config, layout: Layout) -> int:
    """PyTorch's threads for the reference: as asked; else 1 where more only wait for each other."""
    small = config.batch_size * max(config.hidden) ** 2 < 2**22 and not layout.images
    return config.threads or (1 if small else torch.get_num_threads())


def agent_class(engine: Engine) -> type[T3D]:
    """The class of an engine's agents."""
    if engine == "reference":
        return T3D
    from t3d.learn.fused.agent import FusedT3D

    return FusedT3D
