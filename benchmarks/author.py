"""A learning curve of the author's own code, to compare T3D with.

    git clone https://github.com/sfujim/TD3 TD3
    python benchmarks/author.py TD3 Hopper-v5 --seed 0 --steps 300000 --random-steps 25000

The loop is ours, the learner is his: `TD3.py` and `utils.py`, unchanged, from the given folder,
with the knobs of his `main.py`. As in T3D, an episode that ran out of time is not stored as
ended. The curve is written to benchmarks/results/author/ during training: a line about the run,
then one for each evaluation, with `step`, `ret` (mean return of ten noiseless episodes) and `sec`.
"""

import argparse
import hashlib
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from t3d.run.folder import versions

RESULTS = Path(__file__).parent / "results/author"


def digest(folder: Path) -> dict[str, str]:
    """The SHA-256 of his files: which version this is."""
    names = "TD3.py", "utils.py"
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def evaluate(policy: Any, env: Any, seed: int) -> float:
    """The mean return of ten noiseless episodes, from the same ten starts each time."""
    total = 0.0
    for episode in range(10):
        state, _ = env.reset(seed=seed + 100 + episode)
        done = False
        while not done:
            state, reward, terminated, truncated, _ = env.step(policy.select_action(state))
            total += reward
            done = terminated or truncated
    return total / 10


def main() -> None:
    """Train, and write the curve."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("env")
    for name, default in (("--seed", 0), ("--steps", 300_000), ("--random-steps", 25_000)):
        parser.add_argument(name, type=int, default=default)
    arguments = parser.parse_args()
    if not (arguments.folder / "TD3.py").is_file():
        parser.error(
            f"there is no TD3.py in {arguments.folder}; expected a clone of his repository"
        )
    path = (
        RESULTS
        / f"{arguments.env}-random-steps-{arguments.random_steps}-seed{arguments.seed}.jsonl"
    )
    if path.exists():
        parser.error(f"{path} exists: move it away to measure it again")
    sys.path.insert(0, str(arguments.folder))
    learner, memory = importlib.import_module("TD3"), importlib.import_module("utils")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    np.random.seed(arguments.seed)  # noqa: NPY002  his memory draws from this one
    env: Any
    env, test = gymnasium.make(arguments.env), gymnasium.make(arguments.env)
    env.action_space.seed(arguments.seed)
    high = float(env.action_space.high[0])
    sizes = env.observation_space.shape[0], env.action_space.shape[0]
    knobs = {"policy_noise": 0.2 * high, "noise_clip": 0.5 * high, "policy_freq": 2}
    policy = learner.TD3(*sizes, high, discount=0.99, tau=0.005, **knobs)
    buffer = memory.ReplayBuffer(*sizes)
    about = {"random_steps": arguments.random_steps, "code": digest(arguments.folder)}
    began = time.perf_counter()
    state, _ = env.reset(seed=arguments.seed)
    with path.open("w", buffering=1) as out:
        out.write(json.dumps(about | {"versions": versions()}) + "\n")
        for step in range(1, arguments.steps + 1):
            if step <= arguments.random_steps:
                action = env.action_space.sample()
            else:
                noise = np.random.normal(0, high * 0.1, sizes[1])  # noqa: NPY002  as in his main.py
                action = (policy.select_action(state) + noise).clip(-high, high)
            next_state, reward, terminated, truncated, _ = env.step(action)
            buffer.add(state, action, next_state, reward, float(terminated))
            state = next_state
            if step > arguments.random_steps:
                policy.train(buffer, 256)
            if terminated or truncated:
                state, _ = env.reset()
            if step % 10_000 == 0:
                point = {"step": step, "ret": evaluate(policy, test, arguments.seed)}
                point["sec"] = round(time.perf_counter() - began, 1)
                out.write(json.dumps(point) + "\n")
                progress = f"step {step:,} of {arguments.steps:,}, {point['sec']:.0f} s"
                print(f"{progress}: {point['ret']:,.1f}")


if __name__ == "__main__":
    main()
