"""Ray: the one place that joins a cluster, or starts one. Needs the extra `ray`."""

import logging
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from t3d.errors import T3DError


def connect(address: str, cpus: int) -> Any:
    """Ray, connected: to `local`, which starts a cluster of so many CPUs here, or to one there is.

    That is `auto`, host:port or ray://host:port. `ray.shutdown()` ends what this began.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise T3DError("Ray needs an extra: pip install 't3d[ray]'") from error
    if ray.is_initialized():  # as in a task of Ray's own
        return ray
    try:
        _knock(address)
        ray.init(
            address,
            num_cpus=cpus if address == "local" else None,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())
        advice = "`ray start --head` starts one; the address local does, too"
        raise T3DError(f"no Ray cluster at {address!r}: {why}; {advice}") from error
    return ray


def _knock(address: str) -> None:
    """See that someone answers at host:port; Ray itself would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    if ":" in address:
        place = urlsplit(f"//{address.removeprefix('ray://')}")
        port = 10001 if place.port is None else place.port
        socket.create_connection((place.hostname or "", port), timeout=5).close()
