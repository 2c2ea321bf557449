"""Groups of runs to compare, written and not trained."""

from pathlib import Path
from typing import Any

from helpers.runs import write_run


def run_folder(
    path: Path,
    means: list[float],
    env: str = "Pendulum-v1",
    seed: int = 0,
    every: int = 100,
    pace: float = 1.0,
    **knobs: Any,
) -> Path:
    """A run that was evaluated every so many steps, one second for each `pace` steps."""
    records = [
        {"kind": "evaluation", "step": n * every, "mean": mean, "seconds": (n * every + 1) / pace}
        for n, mean in enumerate(means)
    ]
    return write_run(path, records, {"preset": "default"}, env=env, seed=seed, **knobs)


def group(
    folder: Path, finals: list[float], env: str = "Pendulum-v1", start: float = -100.0, **more: Any
) -> str:
    """Runs, a seed each, that go from the same start to these ends."""
    for seed, final in enumerate(finals):
        half = (start + final) / 2
        run_folder(folder / f"{env}-{seed}", [start, half, final], env, seed, **more)
    return str(folder)
