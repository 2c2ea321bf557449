"""How many minutes of training a score takes: wall clock, with nothing else running.

    python benchmarks/time_to_score.py ENV SCORE [--name NAME] [--seeds 5] [OPTION ...]

trains one run after the other, seeds 0, 1, 2 ..., each until the mean of three evaluations in a
row is SCORE or better, or for --minutes (20). OPTIONs are those of `t3d train`, such as
`--preset fast`. NAME stands for them in the files. Evaluations do not count: their time is kept
apart. Nor does what comes before the first step, such as compiling the engine once, which takes
some 20 seconds.

Ctrl-C saves the run; the same command resumes it. What was measured is written to
benchmarks/results/minutes/NAME-ENV-seedN.json, and a line with all seeds ends the output.
"""

import argparse
import json
import platform
import shlex
import statistics
import time
from pathlib import Path
from typing import Any

import numpy
import torch

import t3d
from t3d.base.machine import cores
from t3d.cli.main import main as command
from t3d.run.folder import RunFolder
from t3d.run.records import Json, Record

RESULTS = Path(__file__).parent / "results" / "minutes"
FILE = "minutes.json"  # in a run's folder


class Clock(t3d.Watcher):
    """Notes at every evaluation how long training took so far, and stops at a score."""

    def __init__(self, score: float, minutes: float) -> None:
        self.score, self.minutes = score, minutes
        self.trained = self.evaluated = 0.0  # seconds
        self.curve: list[list[float]] = []  # minutes of training and of evaluating, step, return
        self._last = 0.0

    def on_start(self, run: Any) -> None:
        """Training goes on from here."""
        self._last = time.perf_counter()

    def _since(self) -> float:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds

    def on_step(self, step: int) -> str | None:
        """Count the step, and what came before it but no evaluation."""
        self.trained += self._since()
        late = self.trained >= 60 * self.minutes
        return f"{self.minutes:g} minutes are over" if late else None

    def on_record(self, record: Record) -> str | None:
        """Count an evaluation."""
        if not isinstance(record, t3d.Evaluation):
            return None
        self.evaluated += self._since()
        times = [round(seconds / 60, 4) for seconds in (self.trained, self.evaluated)]
        self.curve.append([*times, record.step, round(record.mean, 2)])
        return f"{self.score:g} three times in a row" if passed(self.curve, self.score) else None

    def on_end(self, run: Any) -> None:
        """Keep the curve in the run's folder, if it is complete."""
        if self.trained >= 60 * self.minutes or run.finished or passed(self.curve, self.score):
            (run.folder.path / FILE).write_text(json.dumps(self.curve))

    def state_dict(self) -> Json:
        """The clock of a run that is resumed goes on."""
        return {"trained": self.trained, "evaluated": self.evaluated, "curve": self.curve}

    def load_state_dict(self, state: Json) -> None:
        """Take it over."""
        vars(self).update(state)


def passed(curve: list[list[float]], score: float) -> list[float] | None:
    """The first point at which the mean of three evaluations in a row is `score` or better."""
    for three in zip(curve, curve[1:], curve[2:]):
        if statistics.mean(point[3] for point in three) >= score:
            return three[-1]
    return None


def train(env: str, seed: int, name: str, watcher: list[str], options: list[str]) -> Path:
    """Train a run to its end, or go on with it; returns its folder."""
    folder = Path("runs") / "minutes" / f"{name}-{env}-seed{seed}"
    if (folder / FILE).exists():
        return folder
    if folder.exists():
        words = ["resume", str(folder)]
    else:
        words = ["train", env, "--seed", str(seed), "--run", str(folder), *options]
    code = command([*words, "--no-video", "--watcher", *watcher])
    if code:
        raise SystemExit(code)
    return folder


def keep(folder: Path, name: str, score: float, options: list[str]) -> list[float] | None:
    """Write what a run measured; returns where it passed the score."""
    config = RunFolder(folder).config()
    curve = json.loads((folder / FILE).read_text())
    facts = {
        **{"env": config.env, "seed": config.seed, "name": name, "score": score},
        "command": shlex.join(["t3d", "train", config.env, "--seed", str(config.seed), *options]),
        "cores": cores(),
        "processor": _processor(),
        "versions": {
            "t3d": t3d.__version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "passed": passed(curve, score),
        "columns": ["minutes", "minutes of evaluations", "step", "return"],
        "curve": curve,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=1)
    (RESULTS / f"{name}-{config.env}-seed{config.seed}.json").write_text(text + "\n")
    return facts["passed"]  # type: ignore[no-any-return]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(": ")[2] for x in lines if x.startswith("model name")), "")


def main() -> None:
    """Train what is missing, and print the minutes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env")
    parser.add_argument("score", type=float)
    parser.add_argument("--name", default="t3d")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20)
    typed, options = parser.parse_known_args()
    watcher = ["time_to_score:Clock", f"score={typed.score:g}", f"minutes={typed.minutes:g}"]
    minutes: list[float] = []
    for seed in range(typed.first_seed, typed.first_seed + typed.seeds):
        folder = train(typed.env, seed, typed.name, watcher, options)
        point = keep(folder, typed.name, typed.score, options)
        minutes.append(point[0] if point else float("inf"))
        print(f"seed {seed}: {'not passed' if point is None else point}", flush=True)
    each = ", ".join(f"{value:.1f}" for value in minutes)
    middle = statistics.median(minutes)
    print(f"{typed.env} to {typed.score:g}: median {middle:.1f} minutes ({each})")


if __name__ == "__main__":
    main()
