"""Steps per second of environments alone, by backend: the table in docs/environments.md.

python benchmarks/backends.py
"""

import time
from typing import Any

import numpy as np

from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.play.vector import Environments

TASKS = ("Pendulum-v1", "HalfCheetah-v5", "Humanoid-v5", "BipedalWalker-v3", "CarRacing-v3")
SECONDS = 2.0


def speed(env: str, num_envs: int, backend: Any) -> float:
    """Steps per second with random actions, resets included."""
    config = Config(env=env, num_envs=num_envs, env_backend=backend)
    environments = Environments(EnvMaker(env, config))
    low, high = environments.low, environments.high
    random = np.random.default_rng(0)
    environments.reset()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        environments.step(random.uniform(low, high, (num_envs, len(low))).astype(np.float32))
        steps += num_envs
    took = time.perf_counter() - began
    environments.close()
    return steps / took


def main() -> None:
    """Print the table."""
    for env in TASKS:
        for num_envs in (4, 1):
            speeds = {b: speed(env, num_envs, b) for b in ("inline", "processes", "envpool")}
            text = ", ".join(f"{backend} {number:,.0f}" for backend, number in speeds.items())
            print(f"{env}, {num_envs} at once: {text} steps/s", flush=True)


if __name__ == "__main__":
    main()
