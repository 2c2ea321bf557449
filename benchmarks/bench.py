"""Compare the speed of T3D with its peers: the figures of docs/speed.md.

    make bench                                  everything, about 20 minutes
    python benchmarks/bench.py --only steps     one part: update, steps, growth, start
    python benchmarks/bench.py --only steps --match Ant     one case; the others keep their results
    python benchmarks/bench.py --draw           the page and the plots again, from the JSON

Every contestant is a process of its own, built once, in a virtual environment of its own
(benchmarks/.venvs). They take turns of a second or two, and the median turn counts: machines
are shared and noisy, but noise hits neighbouring turns alike, so ratios are stable.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the limit is one product per core; see update.py

import argparse
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VENVS = HERE / ".venvs"
RESULTS = HERE / "results" / "speed.json"
PAGE = HERE.parent / "docs" / "speed.md"
IMAGES = HERE.parent / "docs" / "images"
PEERS = {
    "sb3": ["torch==2.13.0", "stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0"],
    "sbx": ["torch==2.13.0", "sbx-rl==0.28.0", "jax==0.10.2", "gymnasium[mujoco]==1.4.0"],
}
NAMES = {
    "fused": "**T3D, fused**",
    "fused-1": "T3D, fused, 1 thread",
    "reference": "T3D, reference",
    "plain": "plain PyTorch, the author's style",
    "sb3": "Stable-Baselines3 2.9.2",
    "sbx": "SBX 0.28.0 (JAX)",
    "jax": "JAX 0.10.2, a scan of 100 updates",
}
SIZES = {"HalfCheetah": (17, 6), "Humanoid": (348, 17)}
ENVS = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5", "Pendulum-v1"]
GROWTH = {
    "batch": [64, 256, 1024, 2048],
    "hidden": [64, 256, 512, 1024],
    "state": [3, 17, 376],
    "rows": [10_000, 100_000, 1_000_000],
    "environments": [1, 4, 32],
}


def python_of(kind: str) -> str:
    """The interpreter of a contestant; its virtual environment is created on first use."""
    name = {"sb3": "sb3", "sbx": "sbx", "jax": "sbx"}.get(kind)
    if name is None:
        return sys.executable
    folder = VENVS / name
    if not (folder / "ready").exists():
        print(f"setting up {folder} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PEERS[name]], check=True)
        (folder / "ready").touch()
    return str(folder / "bin/python")


class Contestant:
    """A process that works on request."""

    def __init__(self, kind: str, *words: object) -> None:
        command = [python_of(kind), str(HERE / "contestant.py"), kind, *map(str, words)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=HERE
        )
        while (line := self._line()) != "ready\n":
            if not line:
                raise SystemExit(f"{' '.join(command)} failed; run it by hand to see why")
        self.rates: list[float] = []
        self.megabytes = 0.0

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def turn(self, seconds: float) -> None:
        """Let it work for some seconds, and record its rate."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        done = json.loads(self._line())
        self.rates.append(done["count"] / done["seconds"])
        self.megabytes = done["megabytes"]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def products(threads: int, seconds: float) -> float:
    """Products of two 256 x 256 matrices per second."""
    from update import products_per_second

    return products_per_second(threads, seconds)


def take_turns(contestants: dict[str, Contestant], rounds: int, seconds: float) -> Any:
    """Let all contestants work in turns, and measure the limit between them."""
    from t3d.base.machine import cores

    limits: dict[str, list[float]] = {"limit": [], "limit_1_thread": []}
    for _ in range(rounds):
        limits["limit"].append(products(cores(), seconds / 2))
        limits["limit_1_thread"].append(products(1, seconds / 2))
        for contestant in contestants.values():
            contestant.turn(seconds)
    results: dict[str, Any] = {"products": {k: statistics.median(v) for k, v in limits.items()}}
    for name, contestant in contestants.items():
        rate = statistics.median(contestant.rates)
        results[name] = {"rate": rate, "rates": contestant.rates, "megabytes": contestant.megabytes}
        contestant.close()
    shown = {name: round(results[name]["rate"]) for name in contestants}
    print(f"  {shown}", flush=True)
    return results


def measure_updates(match: str) -> Any:
    """Updates per second, at the sizes of two tasks and for two narrow networks."""
    results = {}
    cases = {
        "HalfCheetah, 256-256": (*SIZES["HalfCheetah"], 256, 256),
        "HalfCheetah, 128-128": (*SIZES["HalfCheetah"], 128, 256),
        "HalfCheetah, 64-64": (*SIZES["HalfCheetah"], 64, 256),
        "Humanoid, 256-256": (*SIZES["Humanoid"], 256, 256),
    }
    from update import SIDE, flops

    for name, sizes in cases.items():
        if match not in name:
            continue
        print(f"updates: {name}", flush=True)
        results[name] = take_turns({k: Contestant(k, "update", *sizes) for k in NAMES}, 12, 1.0)
        per_update = flops(*sizes) / (2 * SIDE**3)
        for key, products in results[name].pop("products").items():
            results[name][key] = {"rate": products / per_update}
    return results


def measure_steps(match: str) -> Any:
    """Environment steps per second with one update each, end to end."""
    results = {}
    for env in ENVS:
        if match not in env:
            continue
        print(f"steps: {env}", flush=True)
        kinds = [kind for kind in NAMES if kind not in ("jax", "fused-1")]
        runs = {kind: Contestant(kind, "steps", env, 256, 256) for kind in kinds}
        results[env] = take_turns(runs, 25 if env == "HalfCheetah-v5" else 3, 1.5)
        results[env].pop("products")
    return results


def measure_growth(match: str) -> Any:
    """How the cost grows with each size, the others as in HalfCheetah."""
    results: dict[str, Any] = {}
    for what, values in GROWTH.items():
        if match not in what:
            continue
        for value in values:
            print(f"growth: {what} {value}", flush=True)
            sizes = {"state": 17, "action": 6, "hidden": 256, "batch": 256, "rows": 100_000}
            if what == "environments":
                knobs = json.dumps({"num_envs": value})
                words: list[object] = ["steps", "HalfCheetah-v5", 256, 256, knobs]
                kinds = ["fused"]
            else:
                sizes[what] = value
                words = ["update", *sizes.values()]
                kinds = ["fused", "plain"]
            runs = {kind: Contestant(kind, *words) for kind in kinds}
            results.setdefault(what, {})[value] = take_turns(runs, 3, 0.7)
    return results


def measure_start(match: str) -> Any:
    """Seconds to start: the median of several."""
    results = {}
    ask = "from t3d.cli.main import main; main(['--help'])"
    words = {
        "import t3d": ["-c", "import t3d"],
        "t3d --help": ["-c", ask],
        "import torch, for comparison": ["-c", "import torch"],
    }
    for name, word in words.items():
        times = []
        for _ in range(7):
            began = time.perf_counter()
            subprocess.run([sys.executable, *word], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - began)
        results[name] = statistics.median(times)
    with tempfile.TemporaryDirectory() as cache:
        results["t3d train, first update, nothing compiled yet"] = first_update(cache)
        again = [first_update(cache) for _ in range(5)]
        results["t3d train, first update, later"] = statistics.median(again)
    for name, seconds in results.items():
        print(f"  {name}: {seconds:.2f} s", flush=True)
    return results


def first_update(cache: str) -> float:
    """Seconds from the start of `t3d train` until its first update is in metrics.jsonl."""
    folder = Path(tempfile.mkdtemp()) / "run"
    command = f"from t3d.cli.main import main; main(['train', '--run', {str(folder)!r}, "
    command += "'--steps', '1001', '--no-video'])"  # 1,000 are random
    began = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    process = subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.DEVNULL, env=environment
    )
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and '"updates": 1,' in metrics.read_text()):
        time.sleep(0.01)
        if process.poll() is not None:
            raise SystemExit("t3d train ended before its first update")
    seconds = time.perf_counter() - began
    process.kill()
    process.wait()
    return seconds


def processor() -> str:
    """The name of this machine's processor."""
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match.group(1) if match else platform.processor()


def main() -> None:
    """Measure the chosen parts, store the results, and draw them."""
    parts = {
        "update": measure_updates,
        "steps": measure_steps,
        "growth": measure_growth,
        "start": measure_start,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=parts, nargs="+", default=list(parts))
    parser.add_argument("--match", default="", help="only cases with this in their name")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not arguments.draw:
        from t3d.base.machine import cores

        results["machine"] = {"processor": processor(), "cores": cores()}
        for part in arguments.only:
            results[part] = results.get(part, {}) | parts[part](arguments.match)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    from draw_speed import draw

    draw(json.loads(RESULTS.read_text()), NAMES, PAGE, IMAGES)
    print(f"{RESULTS}\n{PAGE}")


if __name__ == "__main__":
    main()
