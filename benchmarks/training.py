"""What a step of training costs, end to end, with this source and with another one, in turns.

python benchmarks/training.py --against OLD/src [ENV] [--steps 8000]

Both train in processes of their own, on one pinned core, with one thread. They take turns of 250
steps, and each counts its own CPU seconds: environment, update, records and terminal. Machines are
shared and noisy, but noise hits neighbouring turns alike: the median ratio is what to look at.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "src"
TURN, BEFORE = 250, 1_000  # steps; those before the first turn are play at random, and compiling


def train(env: str, steps: int, folder: str) -> None:
    """One side: for each line of stdin, train a turn and write its CPU seconds to stderr."""
    import t3d

    class Turns(t3d.Watcher):
        began = 0.0

        def on_step(self, step: int) -> None:
            if step >= BEFORE and step % TURN == 0:
                print("turn", time.process_time() - self.began, file=sys.stderr, flush=True)
                sys.stdin.readline()
                self.began = time.process_time()

    knobs: dict[str, Any] = {"random_steps": 500, "steps": steps + BEFORE + 1, "threads": 1}
    knobs |= {"engine": "fused", "eval_every": 0, "eval_episodes": 1, "checkpoint_every": 0}
    t3d.train(env, run=f"{folder}/run", watchers=[Turns()], **knobs)


def side(source: Path, env: str, steps: int, folder: str) -> "subprocess.Popen[str]":
    """Start one side; its table goes to a file, as to a terminal that is not looked at."""
    words = [sys.executable, __file__, "--side", env, str(steps), folder]
    variables = os.environ | {"PYTHONPATH": str(source.resolve())}
    pipe = subprocess.PIPE
    with open(f"{folder}/out.txt", "w") as out:
        return subprocess.Popen(
            words, env=variables, stdin=pipe, stdout=out, stderr=pipe, text=True
        )


def turn(process: "subprocess.Popen[str]") -> float:
    """The CPU seconds of the turn that a side has just trained."""
    assert process.stderr
    for line in process.stderr:
        if line.startswith("turn "):
            return float(json.loads(line.removeprefix("turn ")))
    raise SystemExit("one side ended early")


def main() -> None:
    """Have both sides take turns."""
    if sys.argv[1:2] == ["--side"]:
        train(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("env", nargs="?", default="HalfCheetah-v5")
    parser.add_argument("--against", type=Path, required=True, help="the other source folder")
    parser.add_argument("--steps", type=int, default=8_000)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        sides = [
            side(source, options.env, options.steps, folder)
            for source, folder in ((HERE, one), (options.against, other))
        ]
        for each in sides:
            turn(each)
        seconds: list[list[float]] = []
        for number in range(options.steps // TURN):
            order = (0, 1) if number % 2 else (1, 0)
            taken = [0.0, 0.0]
            for which in order:
                process = sides[which]
                assert process.stdin
                process.stdin.write("\n")
                process.stdin.flush()
                taken[which] = turn(process)
            seconds.append(taken)
        for each in sides:
            each.kill()
            each.communicate()
    here, there = (TURN / statistics.median(column) for column in zip(*seconds))
    ratio = statistics.median(theirs / mine for mine, theirs in seconds)
    print(f"{options.env}: {here:.1f} steps per CPU second here, {there:.1f} there")
    print(f"median ratio of {len(seconds)} turns: {ratio:.4f}")


if __name__ == "__main__":
    main()
