"""How fast one update is, compared with plain PyTorch and the limit of the machine.

    python benchmarks/update.py [--quick] [--json] [--state N --action N --hidden N --batch N]
    python benchmarks/update.py --against OTHER/src [--n-step N] ...

By default the work is HalfCheetah-v5's: 17 state and 6 action dimensions, hidden 256-256,
batch 256, float32, the actor at every second update. The contestants take turns in one
process, many short rounds each, and the median round counts: machines are shared and noisy,
but noise hits neighbouring rounds alike, so ratios are stable. The last line of --json is one
object, in updates per second:

    limit            the matrix products alone, at the rate of sgemm, all cores
    limit_1_thread   the same on one core
    plain_pytorch    as the author of TD3 wrote it: autograd, Adam, a loop for Polyak
    reference        t3d.T3D, with PyTorch's threads
    fused            t3d.FusedT3D, with as many threads as it finds best
    fused_1_thread   the same on one core

The limit is measured with NumPy's product of two 256 x 256 matrices, one in each of as many
threads as there are cores. A library's product copies its operands into a better order first;
the fused engine has them in that order already, which pays for most of what is not a product.

With --against, the fused engine of these sources and that of another source tree take turns, each
in a process of its own. The ratios are above 1 where these sources are faster.
"""

import os

for library in ("OPENBLAS", "MKL"):  # NumPy's products: one thread in each of ours
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from plain import PlainTD3
from rounds import filled_memory
from t3d import T3D, Config, FusedT3D
from t3d.base.machine import cores

SIDE = 256


def flops(state: int, action: int, hidden: int, batch: int) -> float:
    """Floating-point operations of one update's matrix products, the actor's counted at half."""
    actor = state * hidden + hidden**2 + hidden * action
    critic = (state + action) * hidden + hidden**2 + hidden
    inner = hidden**2 + hidden  # layers that a gradient passes through to the first one
    targets = actor + 2 * critic
    critics = 2 * (critic + critic + inner)
    through = critic + inner + hidden * action  # of the first twin, forth and back to the action
    actors = actor + through + actor + hidden**2 + hidden * action
    return 2.0 * batch * (targets + critics + actors / 2)


def per_second(work: Callable[[], object], seconds: float) -> float:
    """The rate of `work` over some seconds."""
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - began)


def products_per_second(threads: int, seconds: float) -> float:
    """The rate of sgemm: NumPy's product of two square matrices, in each of `threads` threads."""
    draw = np.random.default_rng(0)

    def alone(_: int) -> float:
        one, two, out = (draw.random((SIDE, SIDE), np.float32) for _ in range(3))
        return per_second(lambda: np.matmul(one, two, out=out), seconds)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(alone, range(threads)))


def contestants(
    state: int, action: int, hidden: int, batch: int, rows: int
) -> dict[str, Callable[[float], float]]:
    """The contestants: functions that work for some seconds and return updates per second."""
    memory = filled_memory(rows, state, action)
    plain = PlainTD3(state, action, hidden, batch, rows)
    done = 1 - memory.done[:, None]
    stores = (memory.state, memory.next_state, memory.action, memory.reward[:, None], done)
    plain.memory, plain.size = [store.astype(np.float64) for store in stores], rows

    def rate(kind: type[T3D], threads: int) -> Callable[[float], float]:
        config = Config(hidden=(hidden, hidden), batch_size=batch, threads=threads)
        agent = kind(state, [-1.0] * action, [1.0] * action, config)
        return lambda seconds: per_second(lambda: agent.train(memory, 1), seconds)

    per_update = flops(state, action, hidden, batch) / (2 * SIDE**3)
    return {
        "limit": lambda seconds: products_per_second(cores(), seconds) / per_update,
        "limit_1_thread": lambda seconds: products_per_second(1, seconds) / per_update,
        "plain_pytorch": lambda seconds: per_second(plain.update, seconds),
        "reference": rate(T3D, 0),
        "fused": rate(FusedT3D, 0),
        "fused_1_thread": rate(FusedT3D, 1),
    }


def measure(turns: dict[str, Callable[[float], float]], rounds: int) -> dict[str, float]:
    """The median rate of every contestant over rounds in which each has its turn."""
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            rate = turn(0.25)
            if number > 0:  # the first round warms up
                rates[name].append(rate)
    return {name: statistics.median(values) for name, values in rates.items()}


def compare(sources: list[Path], sizes: list[int], rounds: int) -> None:
    """Let two source trees take turns, and print how many times faster the first is."""
    script = Path(__file__).with_name("rounds.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), *map(str, sizes)],
            env=os.environ | {"PYTHONPATH": str(source.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sources
    ]

    def rate(process: "subprocess.Popen[str]", threads: int, seconds: float) -> float:
        assert process.stdin
        assert process.stdout
        print(json.dumps([threads, seconds]), file=process.stdin, flush=True)
        return float(process.stdout.readline())

    for threads in (1, 0):
        for process in processes:
            rate(process, threads, 1.0)  # warms up
        rates: list[list[float]] = [[], []]
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                rates[side].append(rate(processes[side], threads, 0.1))
        here, there = (statistics.median(side) for side in rates)
        name = "1 thread " if threads else "default  "
        print(f"  {name}{here:8.0f} against {there:8.0f} updates per second: {here / there:.3f}")
    for process in processes:
        process.communicate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about 15 seconds")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--state", type=int, default=17, help="numbers in a state")
    parser.add_argument("--action", type=int, default=6, help="numbers in an action")
    parser.add_argument("--hidden", type=int, default=256, help="width of both hidden layers")
    parser.add_argument("--batch", type=int, default=256, help="transitions in a batch")
    parser.add_argument("--rows", type=int, default=100_000, help="transitions in the memory")
    parser.add_argument("--against", type=Path, help="another source tree, to compare with")
    parser.add_argument("--n-step", type=int, default=1, help="length of returns, with --against")
    arguments = parser.parse_args()
    sizes = [arguments.state, arguments.action, arguments.hidden, arguments.batch, arguments.rows]
    if arguments.against:
        here = Path(__file__).parents[1] / "src"
        compare(
            [here, arguments.against],
            [*sizes, arguments.n_step],
            rounds=20 if arguments.quick else 100,
        )
        return
    turns = contestants(*sizes)
    rates = measure(turns, rounds=6 if arguments.quick else 25)
    print(f"{cores()} cores, updates per second:")
    for name, rate in rates.items():
        limit = rates["limit_1_thread" if name.endswith("1_thread") else "limit"]
        plain = rate / rates["plain_pytorch"]
        share = f"{rate / limit:5.2f} of the limit"
        print(f"  {name:<16}{rate:8.0f}   {share}   {plain:5.2f} x plain PyTorch")
    if arguments.json:
        print(json.dumps({name: round(rate, 1) for name, rate in rates.items()}))


if __name__ == "__main__":
    main()
