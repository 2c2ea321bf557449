"""Environments small enough to know the answer, learned by a complete run."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import t3d
from t3d.run.folder import RunFolder

LEARN: dict[str, Any] = {
    "preset": "default",
    "steps": 1_500,
    "random_steps": 200,
    "hidden": (32, 32),
    "batch_size": 64,
    "learning_rate": 3e-3,
    "tau": 0.05,
    "eval_every": 0,
    "eval_episodes": 1,
    "threads": 1,
    "quiet": True,
}


class Probe(gym.Env[Any, Any]):
    """One number to see, one action between -1 and 1."""

    observation_space = Box(-10, 10, (1,), np.float32)
    action_space: gym.Space[Any] = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at: float = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.at], np.float32)


class ConstantReward(Probe):
    """One step, reward 1, the end."""

    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, True, False, {}


class TwoSteps(Probe):
    """Nothing for the first step, 1 for the second, the end."""

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.seen(), float(self.at == 2), self.at == 2, False, {}


class CutShort(Probe):
    """Reward 1 for ever, but a time limit ends every episode after one step."""

    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, False, True, {}


class FindTheAction(Probe):
    """The closer to 0.6, the better."""

    def step(self, action: Any) -> Any:
        return self.seen(), -float((action[0] - 0.6) ** 2), True, False, {}


class FindTheLopsidedAction(Probe):
    """Bounds as CarRacing's: different per dimension, and not symmetric."""

    action_space = Box(np.array([-1, 0, 10], np.float32), np.array([1, 2, 50], np.float32))
    best = np.array([-0.5, 1.6, 20])

    def step(self, action: Any) -> Any:
        miss = (action - self.best) / [1, 1, 20]
        return self.seen(), -float(miss @ miss), True, False, {}


class FollowTheState(Probe):
    """The best action is the state itself: the actor must look."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-0.8, 0.8)
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        return self.seen(), -float((action[0] - self.at) ** 2), True, False, {}


def learned(env: Any, path: Path, **knobs: Any) -> t3d.Agent:
    t3d.train(env, run=path / "run", **(LEARN | knobs))
    return t3d.load(path / "run", which="last")


def q_values(agent: t3d.Agent, state: float) -> list[float]:
    """Both twins' values of the policy's own action."""
    states = torch.tensor([[state]], dtype=torch.float32)
    with torch.no_grad():
        return [float(q) for q in agent.critic(states, agent.actor(states))]


def test_a_constant_reward_is_its_own_value(tmp_path: Path) -> None:
    agent = learned(ConstantReward, tmp_path)
    assert q_values(agent, 0) == pytest.approx([1, 1], abs=0.02)


def test_a_later_reward_is_discounted_once(tmp_path: Path) -> None:
    agent = learned(TwoSteps, tmp_path, discount=0.7)
    assert q_values(agent, 1) == pytest.approx([1, 1], abs=0.03)
    assert q_values(agent, 0) == pytest.approx([0.7, 0.7], abs=0.03)
    *_, last = RunFolder(tmp_path / "run").records(t3d.Evaluation)
    assert last.true_Q == pytest.approx(0.7)
    assert last.cut_off == 0  # it terminated
    assert last.estimated_Q == pytest.approx(0.7, abs=0.03)


def test_termination_and_truncation_are_worth_different_values(tmp_path: Path) -> None:
    terminated = learned(ConstantReward, tmp_path / "terminated", discount=0.5)
    truncated = learned(CutShort, tmp_path / "truncated", discount=0.5)
    assert q_values(terminated, 0) == pytest.approx([1, 1], abs=0.02)
    # The next state is worth as much again: 1 + 0.5 * (1 + 0.5 * ...) = 2.
    assert q_values(truncated, 0) == pytest.approx([2, 2], abs=0.05)


def test_the_actor_finds_the_rewarded_action(tmp_path: Path) -> None:
    agent = learned(FindTheAction, tmp_path)
    assert agent.select_action([0.0]) == pytest.approx([0.6], abs=0.1)


def test_the_actor_finds_it_between_lopsided_bounds(tmp_path: Path) -> None:
    agent = learned(FindTheLopsidedAction, tmp_path, steps=2_500)
    miss = (agent.select_action([0.0]) - FindTheLopsidedAction.best) / [1, 1, 20]
    assert np.abs(miss).max() < 0.15


def test_the_actor_looks_at_the_state(tmp_path: Path) -> None:
    agent = learned(FollowTheState, tmp_path, steps=2_500)
    states = np.linspace(-0.7, 0.7, 8, dtype=np.float32)[:, None]
    assert np.abs(agent.select_action(states) - states).max() < 0.2
