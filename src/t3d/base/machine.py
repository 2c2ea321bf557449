"""What this machine has: memory, cores, devices."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.errors import BadInput

if TYPE_CHECKING:
    import torch


def available_memory() -> int | None:
    """Bytes of RAM that a program may still use; None if the system does not report it."""
    limits = []
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # a container's share
        group = Path("/sys/fs/cgroup")
        maximum = int((group / "memory.max").read_text())
        limits.append(maximum - int((group / "memory.current").read_text()))
    return min(limits, default=None)


def cores() -> int:
    """How many cores this process may use."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        allowed = os.cpu_count() or 1
    try:  # a container's share of the machine
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):
        return allowed


def usable_device(name: str) -> "torch.device":
    """A device of PyTorch, if this machine has it."""
    import torch  # takes a second, and not every command needs it

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta" and torch.get_default_device().type != "meta":
            raise NotImplementedError("it computes nothing")  # but for skeletons: learn/saving.py
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise BadInput(f"device {name!r} cannot be used: {reason}; cpu always can") from error
    return device
