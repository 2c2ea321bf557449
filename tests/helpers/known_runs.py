"""Three known runs of an environment, and runs to check against them."""

from pathlib import Path
from typing import Any

from helpers.runs import write_run

ENV = "Hopper-v5"
STEPS = list(range(0, 1100, 100))
# Three runs that rise from 0 to about 100 at once: their mean is 100 and their deviation 2.
KNOWN: dict[str, Any] = {
    ENV: {
        "config": {"env": ENV, "tau": 0.01, "random_steps": 25, "engine": "fused"},
        "versions": {"t3d": "0.1.0", "gymnasium": "1.4.0", "mujoco": "3.5.0"},
        "step": STEPS,
        "runs": {str(seed): [0.0, *[98.0 + 2 * seed] * 10] for seed in range(3)},
    }
}


def known_with(**parts: Any) -> dict[str, Any]:
    return {ENV: KNOWN[ENV] | parts}


def run_folder(
    path: Path,
    means: list[float],
    *more: dict[str, Any],
    at: list[int] = STEPS,
    versions: dict[str, str] | None = None,
    **knobs: Any,
) -> Path:
    """A run that was evaluated at these steps, and what else it recorded."""
    usual = {"env": ENV, "tau": 0.01, "random_steps": 25, "steps": 1000, "seed": 7}
    evaluations = [{"kind": "evaluation", "step": s, "mean": m} for s, m in zip(at, means)]
    about = {"versions": versions} if versions else {}
    return write_run(path, [*evaluations, *more], about, **(usual | knobs))
