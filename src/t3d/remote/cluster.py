"""Ray (an extra): reaching a cluster, or starting one on this machine."""

import math
import socket
from collections.abc import Callable
from typing import Any

from t3d.base.errors import BadInput
from t3d.base.extras import how_to_install
from t3d.base.signals import STOP_SIGNALS, held

_ADVICE = (
    "start one with `ray start --head`, or leave --ray out; if it asks for a token, as Ray's do by"
    " default, RAY_AUTH_MODE=token sends yours"
)

# Ray itself uses SIGINT and SIGTERM, to cancel tasks and to end processes.
_NOT_RAYS = tuple(n for n in STOP_SIGNALS if n.name not in ("SIGINT", "SIGTERM"))


def connect(address: str, cpus: float) -> tuple[Any, Callable[[], None]]:
    """Connect Ray; returns it, and a function that disconnects. `local` starts it with `cpus`.

    A program that has connected Ray itself keeps its connection, whatever the address.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        needs = f"--collectors and --ray need an extra: {how_to_install('ray')}"
        raise BadInput(needs) from error
    if ray.is_initialized():
        return ray, lambda: None
    _check_reachable(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            # Its processes would die with a closed terminal, before the run has saved.
            with held(_NOT_RAYS):
                ray.init("local", num_cpus=math.ceil(cpus), include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        ray.shutdown()
        if "Version mismatch" in str(error):
            what = " ".join(str(error).split())
            raise BadInput(f"the cluster at {address} has another version: {what}") from error
        what = last_line(error)
        raise BadInput(f"no Ray cluster at {address}: {what}; {_ADVICE}") from error
    except BaseException:
        ray.shutdown()
        raise
    return ray, ray.shutdown


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody answers; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"no Ray cluster at {address}: {error}; {_ADVICE}") from error


def last_line(error: BaseException) -> str:
    """The last line of an error, which is where Ray's long ones name the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def is_canceled() -> Callable[[], bool]:
    """A function that says whether the Ray task that this runs in is to end."""
    import ray

    canceled: Callable[[], bool] = ray.get_runtime_context().is_canceled
    return canceled
