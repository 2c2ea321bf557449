"""What a checkpoint costs: python benchmarks/checkpoints.py.

A run with HalfCheetah's sizes and a full memory of a million transitions saves, adds 10,000
transitions, and saves again. The time is compared with that of as many steps and updates.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from t3d import Config
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.loop import Run

STEPS = 10_000


def written(run: Run) -> int:
    """Bytes of the newest checkpoint that no other shares."""
    newest = run.folder.newest_checkpoint()
    assert newest is not None
    return sum(f.stat().st_size for f in newest.iterdir() if f.stat().st_nlink == 1)


def main() -> None:
    """Measure and print."""
    rare = {"eval_every": 0, "checkpoint_every": 0, "log_every": 10**9, "steps": 10**9}
    config = Config.from_dict(
        {"env": "HalfCheetah-v5", "random_steps": 1_000, "keep_checkpoints": 4, **rare}
    )
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as place:
        run = Run.start(EnvMaker(config.env, config), RunFolder(Path(place) / "run"), about={})
        draw, memory = np.random.default_rng(0), run.memory
        states = draw.standard_normal((100_000, 17), np.float32)
        action, zeros = draw.uniform(-1, 1, (100_000, 6)), np.zeros(100_000)
        while memory.added < memory.capacity:
            memory.add(states, states, action, zeros, zeros)
        while run.agent.updates < 100:
            run.step()
        began, steps = time.perf_counter(), run.collector.steps
        while time.perf_counter() - began < 15:
            run.step()
        pace = (run.collector.steps - steps) / (time.perf_counter() - began)
        rounds = []
        for number in range(8):
            rows = slice(0, STEPS)
            memory.add(states[rows], states[rows], action[rows], zeros[rows], zeros[rows])
            assert isinstance(run.collector, Collector)
            run.collector.steps += STEPS
            began = time.perf_counter()
            run.checkpoint()
            rounds.append((time.perf_counter() - began, written(run)))
            first = " (the first two write everything)" if number == 0 else ""
            print(f"{rounds[-1][0]:.3f} s, {rounds[-1][1] / 1e6:.1f} MB written{first}")
        run.close()
    seconds = statistics.median(seconds for seconds, _ in rounds[2:])
    share = seconds / (STEPS / pace)
    print(
        f"a checkpoint every {STEPS:,} steps: {seconds:.3f} s in addition to {STEPS / pace:.1f} s"
    )
    print(f"of training at {pace:.0f} steps/s: {share:.2%} slower than without")


if __name__ == "__main__":
    main()
