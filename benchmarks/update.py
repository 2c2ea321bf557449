"""How fast one update is, compared with plain PyTorch and the limit of the machine.

    python benchmarks/update.py [--quick] [--json] [--state N --action N --hidden N --batch N]
    python benchmarks/update.py --td7 [--embedding N] [--hidden N] ...
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

With --td7 the agent is TD7 instead: there is no plain_pytorch, but `td3`, the fused TD3 with hidden
256-256, for comparison.

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
from typing import Any

import numpy as np

from plain import PlainTD3
from rounds import filled_memory
from t3d import T3D, TD7, Config, FusedT3D, ReplayBuffer
from t3d.base.machine import cores
from t3d.learn.fused.td7.agent import FusedTD7

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


def flops_td7(state: int, action: int, hidden: int, embedding: int, batch: int) -> float:
    """The same of TD7. No gradient is taken by inputs that stand for something fixed."""
    square, out = hidden**2, hidden * embedding
    f, g = state * hidden + square + out, (embedding + action) * hidden + square + out
    # Back to the first layer of g, to zs, and to the first layer of f.
    encoder = 2 * f + g + (out + square) + out + (out + square) + f + g
    critic = (state + action) * hidden + (hidden + 2 * embedding) * hidden + square + hidden
    inner = hidden + 2 * square  # from the value to the first layer
    actor = state * hidden + (hidden + embedding) * hidden + square + hidden * action
    targets, fixed = f + actor + g + 2 * critic, f + g
    critics = 2 * (critic + inner + critic)
    to_action = 2 * (inner + out + hidden * action) + (out + square + hidden * action)
    actors = actor + g + 2 * critic + to_action + (hidden * action + 2 * square) + actor
    return 2.0 * batch * (encoder + targets + fixed + critics + actors / 2)


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
    per_update = flops(state, action, hidden, batch) / (2 * SIDE**3)
    plain = PlainTD3(state, action, hidden, batch, rows)
    done = 1 - memory.done[:, None]
    stores = (memory.state, memory.next_state, memory.action, memory.reward[:, None], done)
    plain.memory, plain.size = [store.astype(np.float64) for store in stores], rows

    def rate(kind: type[T3D], threads: int) -> Callable[[float], float]:
        config = Config(hidden=(hidden, hidden), batch_size=batch, threads=threads)
        return trainer(kind(state, [-1.0] * action, [1.0] * action, config), memory)

    return {
        **limits(per_update),
        "plain_pytorch": lambda seconds: per_second(plain.update, seconds),
        "reference": rate(T3D, 0),
        "fused": rate(FusedT3D, 0),
        "fused_1_thread": rate(FusedT3D, 1),
    }


def contestants_td7(
    embedding: int, state: int, action: int, hidden: int, batch: int, rows: int
) -> dict[str, Callable[[float], float]]:
    """The same for TD7."""
    memory = filled_memory(rows, state, action)
    per_update = flops_td7(state, action, hidden, embedding, batch) / (2 * SIDE**3)

    def rate(kind: type[T3D], width: int, threads: int) -> Callable[[float], float]:
        knobs: dict[str, Any] = {} if kind is FusedT3D else {"embedding": embedding}
        config = Config(hidden=(width, width), batch_size=batch, threads=threads, **knobs)
        return trainer(kind(state, [-1.0] * action, [1.0] * action, config), memory)

    return {
        **limits(per_update),
        "reference": rate(TD7, hidden, 0),
        "fused": rate(FusedTD7, hidden, 0),
        "fused_1_thread": rate(FusedTD7, hidden, 1),
        "td3": rate(FusedT3D, 256, 0),
        "td3_1_thread": rate(FusedT3D, 256, 1),
    }


def trainer(agent: T3D, memory: ReplayBuffer) -> Callable[[float], float]:
    """A contestant: an agent that learns from a memory."""
    return lambda seconds: per_second(lambda: agent.train(memory, 1), seconds)


def limits(per_update: float) -> dict[str, Callable[[float], float]]:
    """The contestants that do nothing but products, so many per update."""
    return {
        "limit": lambda seconds: products_per_second(cores(), seconds) / per_update,
        "limit_1_thread": lambda seconds: products_per_second(1, seconds) / per_update,
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
    parser.add_argument("--td7", action="store_true", help="measure TD7 instead of TD3")
    parser.add_argument("--embedding", type=int, default=256, help="size of TD7's embeddings")
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
    turns = contestants_td7(arguments.embedding, *sizes) if arguments.td7 else contestants(*sizes)
    rates = measure(turns, rounds=6 if arguments.quick else 25)
    print(f"{cores()} cores, updates per second:")
    for name, rate in rates.items():
        limit = rates["limit_1_thread" if name.endswith("1_thread") else "limit"]
        base = "reference" if arguments.td7 else "plain_pytorch"
        times = f"{rate / rates[base]:5.2f} x {base.replace('_pytorch', ' PyTorch')}"
        share = "" if name.startswith("td3") else f"{rate / limit:5.2f} of the limit   {times}"
        print(f"  {name:<16}{rate:8.0f}   {share}".rstrip())
    if arguments.json:
        print(json.dumps({name: round(rate, 1) for name, rate in rates.items()}))


if __name__ == "__main__":
    main()
