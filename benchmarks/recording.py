"""What share of a run's time the report's numbers cost.

    python benchmarks/recording.py

trains on Pendulum-v1 with its preset, whose updates are the cheapest of all presets, and sums the
time of the measures that only the report needs.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import t3d
from t3d.learn.t3d import T3D
from t3d.run import health, journal

spent = 0.0


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which now adds its time to `spent`."""

    def call(*arguments: Any) -> Any:
        global spent
        before = time.perf_counter()
        result = function(*arguments)
        spent += time.perf_counter() - before
        return result

    return call


def main() -> None:
    """Train, and print the share."""
    for owner, name in ((T3D, "value"), (journal, "mean_noise"), (health, "saturation")):
        setattr(owner, name, timed(getattr(owner, name)))
    with tempfile.TemporaryDirectory() as folder:
        t3d.train("Pendulum-v1", run=Path(folder) / "warm", steps=1100, quiet=True)  # compiles
        global spent
        spent, before = 0.0, time.perf_counter()
        t3d.train("Pendulum-v1", run=Path(folder) / "run", quiet=True)
        total = time.perf_counter() - before
    print(f"{1000 * spent:.1f} ms of {total:.1f} s: {spent / total:.3%}")


if __name__ == "__main__":
    main()
