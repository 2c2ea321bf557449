"""How long ten evaluation episodes take, one after the other and several at the same time.

    python benchmarks/evaluation.py [MILLISECONDS]

The environment is Pendulum-v1, 200 steps per episode, which computes for a millisecond at every
step, as many simulators do. All take turns, and the median of three counts. Returns must be equal.
"""

import statistics
import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym

from t3d import Config, FusedT3D
from t3d.base.machine import cores
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate, evaluation_env


class Busy(gym.Wrapper[Any, Any, Any, Any]):
    """A pendulum that computes for a while at every step."""

    def __init__(self, seconds: float) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self._seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        end = time.perf_counter() + self._seconds
        answer = self.env.step(action)
        while time.perf_counter() < end:
            pass
        return answer


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) / 1e3 if len(sys.argv) > 1 else 1e-3
    agent = FusedT3D(3, [-2.0], [2.0], Config())
    agent.prepare(lambda: None)
    taken: dict[int, list[float]] = {}
    returns = []
    with ExitStack() as opened:
        make = partial(Busy, seconds)
        envs = {
            count: opened.enter_context(
                closing(evaluation_env(EnvMaker(make, Config(eval_envs=count))))
            )
            for count in (1, cores(), cores() + 1, 2 * cores())
        }
        for _ in range(3):
            for count, env in envs.items():
                began = time.perf_counter()
                returns.append(evaluate(agent.select_action, env, range(10), seed=0).returns)
                taken.setdefault(count, []).append(time.perf_counter() - began)
    assert returns.count(returns[0]) == len(returns)
    alone = statistics.median(taken[1])
    print(f"{cores()} cores, ten episodes of 200 steps of {1e3 * seconds:g} ms:")
    for count, each in taken.items():
        middle = statistics.median(each)
        print(f"  --eval-envs {count:<3} {middle:6.2f} s  {alone / middle:5.2f} times as fast")


if __name__ == "__main__":
    main()
