"""What each of TD3's three ideas does: leave one out, and compare the critic's estimate with the
true return. The page of `t3d explain` shows the result.

    python benchmarks/experiments.py

trains five seeds of each on Pendulum-v1 with its preset and writes
src/t3d/show/pages/experiments.json.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import t3d
from t3d.run.folder import RunFolder, versions

OUT = Path(__file__).parents[1] / "src/t3d/show/pages/experiments.json"
SEEDS = range(5)
LEFT_OUT: dict[str, dict[str, Any]] = {
    "TD3 as it is": {},
    "without twins": {"twins": False},
    "without delay": {"policy_freq": 1},
    "without smoothing": {"policy_noise": 0.0},
}


def main() -> None:
    """Train all, and write their curves."""
    results: dict[str, Any] = {"env": "Pendulum-v1", "seeds": list(SEEDS), "experiments": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, knobs in LEFT_OUT.items():
            curves: dict[str, list[list[float]]] = {"estimated_Q": [], "true_Q": [], "mean": []}
            steps: list[int] = []
            for seed in SEEDS:
                path = Path(folder) / f"{name}-{seed}"
                t3d.train(
                    "Pendulum-v1", run=path, quiet=True, threads=1, steps=20_000, seed=seed, **knobs
                )
                records = list(RunFolder(path).records(t3d.Evaluation))
                steps = [record.step for record in records]
                for key, rows in curves.items():
                    rows.append([float(f"{getattr(record, key):.5g}") for record in records])
            results["experiments"].append({"name": name, "knobs": knobs, "steps": steps, **curves})
            gap = [e[-1] - r[-1] for e, r in zip(curves["estimated_Q"], curves["true_Q"])]
            print(name, "estimated less true Q at the end:", [f"{value:.1f}" for value in gap])
    results["versions"] = versions()
    OUT.write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
