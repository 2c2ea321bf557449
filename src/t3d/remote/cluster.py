"""Ray (an extra): reaching a cluster, or starting one on this machine."""

import math
import socket
from collections.abc import Callable
from typing import Any

from t3d.base.errors import BadInput

_ADVICE = (
    "start one with `ray start --head`, or leave --ray out; if it wants a token, as Ray's do by"
    " default, RAY_AUTH_MODE=token sends yours"
)


def connect(address: str, cpus: float) -> tuple[Any, Callable[[], None]]:
    """Ray, connected, and what to call in the end; `local` starts it with so many CPUs.

    A program that has connected Ray itself keeps its connection, whatever the address.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise BadInput("--collectors and --ray need an extra: pip install 't3d[ray]'") from error
    if ray.is_initialized():
        return ray, lambda: None
    _knock(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            ray.init("local", num_cpus=math.ceil(cpus), include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        ray.shutdown()
        what = last_line(error)
        if "Version mismatch" in str(error):
            what = " ".join(str(error).split())
            raise BadInput(f"the cluster at {address} is not for us: {what}") from error
        raise BadInput(f"no Ray cluster at {address}: {what}; {_ADVICE}") from error
    except BaseException:
        ray.shutdown()
        raise
    return ray, ray.shutdown


def _knock(address: str) -> None:
    """Refuse an address where nobody answers; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"no Ray cluster at {address}: {error}; {_ADVICE}") from error


def last_line(error: BaseException) -> str:
    """What an error of Ray comes down to: the last line of its long stories."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def is_canceled() -> Callable[[], bool]:
    """Of the task that this runs in: what tells whether it is to end."""
    import ray

    asked: Callable[[], bool] = ray.get_runtime_context().is_canceled
    return asked
