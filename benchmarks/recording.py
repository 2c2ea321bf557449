"""What the report's own numbers cost a run.

    python benchmarks/recording.py

trains on Pendulum-v1 with its preset, whose updates are the cheapest of all presets, and adds up
the time that is spent on what only the report needs.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import t3d
from t3d.learn.t3d import T3D
from t3d.play.collect import Collector
from t3d.run import health

spent = 0.0


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which adds what it takes to `spent`."""

    def call(*given: Any) -> Any:
        global spent
        before = time.perf_counter()
        found = function(*given)
        spent += time.perf_counter() - before
        return found

    return call


def main() -> None:
    """Train, and say what share of the time it was."""
    for owner, name in ((T3D, "value"), (Collector, "noise"), (health, "saturation")):
        setattr(owner, name, timed(getattr(owner, name)))
    with tempfile.TemporaryDirectory() as folder:
        t3d.train("Pendulum-v1", run=Path(folder) / "warm", steps=1100, quiet=True)  # compiles
        global spent
        spent, before = 0.0, time.perf_counter()
        t3d.train("Pendulum-v1", run=Path(folder) / "run", quiet=True)
        whole = time.perf_counter() - before
    print(f"{1000 * spent:.1f} ms of {whole:.1f} s: {spent / whole:.3%}")


if __name__ == "__main__":
    main()
