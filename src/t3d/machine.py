"""What this machine has left."""

from contextlib import suppress
from pathlib import Path


def available_memory() -> int | None:
    """Bytes of RAM that a program may still take; None where the system does not tell."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # a container's share
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        found.append(most - int((group / "memory.current").read_text()))
    return min(found, default=None)
