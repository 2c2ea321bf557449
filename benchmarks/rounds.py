"""One side of `update.py --against`: a round of updates for each line of stdin.

It uses only public names, so that it runs with other versions of the sources too.
"""

import json
import sys
import time

import numpy as np

from t3d import Config, FusedT3D, ReplayBuffer


def filled_memory(rows: int, state: int, action: int) -> ReplayBuffer:
    """A memory of random transitions: their values do not matter for the speed."""
    draw = np.random.default_rng(0)
    memory = ReplayBuffer(rows, state, action)
    for first in range(0, rows, 100_000):
        some = min(100_000, rows - first)
        states = draw.standard_normal((2, some, state), np.float32)
        actions = draw.uniform(-1, 1, (some, action))
        rewards = draw.standard_normal(some, np.float32)
        memory.add(states[0], states[1], actions, rewards, draw.random(some) < 0.01)
    return memory


def main(state: int, action: int, hidden: int, batch: int, rows: int, n_step: int) -> None:
    """For every line [threads, seconds] of input, print updates per second.

    With one thread it counts CPU seconds, which other programs hardly disturb.
    """
    memory = filled_memory(rows, state, action)
    agents = {}
    for line in sys.stdin:
        threads, seconds = json.loads(line)
        if threads not in agents:
            knobs = Config(
                hidden=(hidden, hidden), batch_size=batch, threads=threads, n_step=n_step
            )
            agents[threads] = FusedT3D(state, [-1.0] * action, [1.0] * action, knobs)
        clock = time.process_time if threads == 1 else time.perf_counter
        began, count = clock(), 0
        while clock() - began < seconds:
            agents[threads].train(memory, 2)
            count += 2
        print(count / (clock() - began), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
