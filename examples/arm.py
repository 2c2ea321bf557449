r"""A robot task of your own, from the environment to a trained policy.

    python examples/arm.py

or, from the folder of this file, as a command:

    t3d train arm:Arm --preset arm.toml --env-kwargs payload=0.5 --wrap arm:NoisySensors std=0.01 \
        --watcher t3d:Curriculum attribute=spread 'stages=[[0, 0.3], [4000, 1.0]]' \
        --watcher t3d:StopAtSuccess rate=0.95

An arm with two joints moves its tip to a target. It has what real tasks have: bounds that differ
per joint and are not symmetric, a reward of several terms, a success flag, constructor arguments,
a wrapper for noisy sensors, a curriculum, and a success rate at which training stops.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import t3d

Array = NDArray[np.float32]
DT = 0.05  # seconds per step
MAX_STEPS = 60
HOME = np.array([0.5, 1.2])  # the joint angles at the start
LIMITS = np.array([[-1.0, 0.2], [2.0, 2.6]])  # of the angles


class Arm(gym.Env[Array, Array]):
    """Two motors move two links. The tip should be at the target, and stay there."""

    # The elbow's motor is weaker when it opens.
    action_space = gym.spaces.Box(
        np.array([-1.0, -0.4], np.float32), np.array([1.0, 1.0], np.float32)
    )
    observation_space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)

    def __init__(self, payload: float = 0.0, tolerance: float = 0.05) -> None:
        self.payload = payload  # kilograms in the gripper: the arm reacts more slowly
        self.tolerance = tolerance  # metres from the target that count as success
        self.spread = 1.0  # how far targets are from the start: 1 = anywhere

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start at home, with a new target that the arm can reach."""
        super().reset(seed=seed)
        goal = self.np_random.uniform(*LIMITS)
        self.target = tip(HOME + self.spread * (goal - HOME))
        self.angles, self.speed, self.steps = HOME.copy(), np.zeros(2), 0
        return self._observe(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move for 50 milliseconds."""
        torque = 12.0 * np.asarray(action, np.float64)
        self.speed += DT * (torque / (1 + self.payload) - 3.0 * self.speed)
        moved = self.angles + DT * self.speed
        self.angles = np.clip(moved, *LIMITS)
        self.speed[moved != self.angles] = 0.0  # at the end of the range
        self.steps += 1
        distance = float(np.linalg.norm(tip(self.angles) - self.target))
        there = distance < self.tolerance
        terms = {
            "reward_distance": -distance,
            "reward_effort": -0.02 * float(np.sum(action**2)),
            "reward_there": 0.5 * there,
        }
        info = terms | {"distance": distance, "is_success": there}
        # A time limit truncates, it does not terminate: the last state still has a value.
        return self._observe(), sum(terms.values()), False, self.steps >= MAX_STEPS, info

    def _observe(self) -> Array:
        position = tip(self.angles)
        parts = (np.sin(self.angles), np.cos(self.angles), self.speed / 4)
        return np.concatenate([*parts, position, self.target - position]).astype(np.float32)


def tip(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the tip is: links of 0.5 and 0.4 metres."""
    shoulder, elbow = angles[0], angles[0] + angles[1]
    x = 0.5 * np.cos(shoulder) + 0.4 * np.cos(elbow)
    return np.array([x, 0.5 * np.sin(shoulder) + 0.4 * np.sin(elbow)])


class NoisySensors(gym.ObservationWrapper[Array, Array, Array]):
    """Adds Gaussian noise to every observation, from the environment's own generator."""

    def __init__(self, env: gym.Env[Array, Array], std: float = 0.01) -> None:
        super().__init__(env)
        self.std = std

    def observation(self, observation: Array) -> Array:
        """One observation, with noise."""
        noise = self.np_random.normal(0.0, self.std, observation.shape)
        return (observation + noise).astype(np.float32)


def main(**knobs: Any) -> t3d.Agent:
    """Train until 95 % of the evaluation episodes end at the target; then open the report."""
    return t3d.train(
        "arm:Arm",
        preset=str(Path(__file__).with_name("arm.toml")),
        env_kwargs={"payload": 0.5},
        wrap=["arm:NoisySensors", {"std": 0.01}],
        watchers=[
            t3d.Curriculum("spread", [(0, 0.3), (4_000, 1.0)]),
            t3d.StopAtSuccess(0.95),
        ],
        **knobs,
    )


if __name__ == "__main__":
    main()
