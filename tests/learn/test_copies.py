"""Copies of an agent, by copy.deepcopy and by pickle, learn on as the agent does."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from helpers.agents import HIGH, LOW, agent_memory, small_config
from t3d import T3D, FusedT3D

WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
}


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_copy_learns_on_as_the_agent_does(kind: type[T3D], way: str, dtype: torch.dtype) -> None:
    memory = agent_memory()
    agent = kind(3, LOW, HIGH, small_config(normalize_observations=True), dtype=dtype)
    agent.observe(memory.state[:50])
    agent.train(memory, 7)
    agent.change(learning_rate=2e-3, tau=0.3, policy_freq=3, batch_size=9)
    agent.train(memory, 4)
    agent.memory = memory
    agent.score = {"mean": 1.0}
    twin = WAYS[way](agent)
    assert type(twin) is kind
    assert twin.score == agent.score
    assert (twin.config, twin.built_with, twin.changed) == (
        agent.config,
        agent.built_with,
        agent.changed,
    )
    assert twin.memory is None  # it may be gigabytes
    assert agent.memory is memory
    before = agent.state_dict()
    states = memory.state[:5]
    np.testing.assert_array_equal(twin.select_action(states), agent.select_action(states))
    twin.observe(memory.state[50:60])
    twin.train(memory, 5)
    assert all(torch.equal(value, before[k]) for k, value in agent.state_dict().items())
    agent.observe(memory.state[50:60])
    agent.train(memory, 5)
    after = twin.state_dict()
    assert not torch.equal(after["actor.layers.0.weight"], before["actor.layers.0.weight"])
    for name, value in agent.state_dict().items():
        assert torch.equal(after[name], value), name
    np.testing.assert_array_equal(twin.select_action(states), agent.select_action(states))
