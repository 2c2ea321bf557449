"""What TD7 adds to an agent, besides its update (tests/parity/test_td7_oracle.py)."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.memories import filled_memory
from t3d import TD7, BadInput, Config
from t3d.base.observation import Image, Layout
from t3d.learn import td7 as page
from t3d.learn.engines import agent_class, make_agent
from t3d.learn.fused.td7.agent import FusedTD7
from t3d.learn.replay.prioritized import Prioritized
from t3d.learn.replay.sampling import Uniform
from t3d.learn.sale import ValueRange, avg_l1_norm

SMALL: dict[str, Any] = {"agent": "td7", "hidden": (8, 8), "embedding": 6, "batch_size": 16}
SPACES = (Layout(3), [-1.0], [1.0])


def test_the_page_has_at_most_200_lines() -> None:
    assert len(inspect.getsource(page).splitlines()) <= 200


def test_the_page_has_every_step_in_its_order() -> None:
    lines = inspect.getsource(TD7.update).splitlines()
    steps = [line.split("Step ")[1].split()[0] for line in lines if "# Step " in line]
    assert steps == ["A", "B", "C", *"56789", "D", *map(str, range(10, 16)), "E"]


@pytest.mark.parametrize(("engine", "kind"), [("fused", FusedTD7), ("reference", TD7)])
def test_both_engines_have_it(engine: Any, kind: type[TD7]) -> None:
    assert agent_class(Config(agent="td7", engine=engine)) == (kind, "")


def test_priorities_are_the_default_of_td7_alone() -> None:
    choices: Any = (("auto", Prioritized), ("lap", Prioritized), ("uniform", Uniform))
    for sampling, kind in choices:
        agent, _ = make_agent(Config(**SMALL, sampling=sampling), *SPACES)
        assert type(agent.sampler) is kind
        assert agent.config.sampling == sampling
    agent, _ = make_agent(Config(), *SPACES)
    assert type(agent.sampler) is Uniform


@pytest.mark.parametrize(
    ("knobs", "layout", "says"),
    [
        ({}, Layout(0, (Image(3, 8, 8),)), "td7 does not learn from images; use --agent t3d"),
        ({"n_step": 3}, Layout(3), "td7 predicts the next state alone; use --n-step 1"),
        ({"body": "layer_norm"}, Layout(3), "td7 has layers of its own; leave body at mlp"),
        ({"activation": "tanh"}, Layout(3), "td7 has layers of its own; leave activation at relu"),
        ({"layer_norm": "both"}, Layout(3), "td7 has layers of its own; leave layer_norm at none"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "fused", "reference"])
def test_what_it_cannot_do_is_one_line(
    engine: Any, knobs: dict[str, Any], layout: Layout, says: str
) -> None:
    config = Config(**(SMALL | knobs), engine=engine)
    with pytest.raises(BadInput, match=says):
        make_agent(config, layout, [-1.0], [1.0])
    with pytest.raises(BadInput, match=says):
        TD7(layout, [-1.0], [1.0], config)


@pytest.mark.parametrize("knob", [{"embedding": 64}, {"encoder_hidden": (8,)}])
def test_its_knobs_are_refused_for_td3(knob: dict[str, Any]) -> None:
    (name,) = knob
    with pytest.raises(BadInput, match=f"^{name} is a knob of td7; use --agent td7, or leave it"):
        make_agent(Config(**knob), *SPACES)


def test_a_misspelt_algorithm_is_named() -> None:
    with pytest.raises(BadInput, match="no agent is called 'td77'; did you mean 'td7'"):
        make_agent(Config(agent="td77"), *SPACES)


def test_the_embedding_of_a_state_has_scale_1_whatever_the_state() -> None:
    agent = TD7(3, [-1.0], [1.0], Config(**SMALL))
    states = torch.tensor([[1e-3, 0, 0], [1.0, 2.0, 3.0], [1e5, -1e5, 0]])
    sizes = agent.encoder.zs(states).abs().mean(dim=1)
    torch.testing.assert_close(sizes, torch.ones(3))
    assert avg_l1_norm(torch.zeros(1, 4)).tolist() == [[0, 0, 0, 0]]


def test_values_are_clipped_to_the_targets_seen_before_the_last_copy() -> None:
    values = ValueRange(torch.float32)
    some = torch.tensor([-5.0, 0.5, 9.0])
    assert values.clip(some).tolist() == [0, 0, 0]
    values.see(some)
    values.see(torch.tensor([2.0]))
    assert values.clip(some).tolist() == [0, 0, 0]
    values.move()
    assert values.clip(torch.tensor([-7.0, 3.0, 10.0])).tolist() == [-5, 3, 9]


@pytest.mark.parametrize("kind", [TD7, FusedTD7])
def test_a_copy_forgets_the_largest_priority_of_long_ago(kind: type[TD7]) -> None:
    agent = kind(3, [-1.0], [1.0], Config(**SMALL, target_every=3))
    memory = filled_memory(40, 3)
    agent.train(memory, 1)
    assert isinstance(agent.sampler, Prioritized)
    agent.sampler.largest = 100.0
    agent.train(memory, 1)
    assert agent.sampler.largest == 100.0
    agent.train(memory, 1)
    assert agent.sampler.largest == agent.sampler.state_dict()["priority"].max() < 100


@pytest.mark.parametrize("kind", [TD7, FusedTD7])
def test_actions_use_the_fixed_encoder_until_the_next_copy(kind: type[TD7]) -> None:
    agent = kind(3, [-1.0], [1.0], Config(**SMALL, target_every=4, policy_freq=1000))
    memory, states = filled_memory(40, 3), np.eye(3, dtype=np.float32)
    before = agent.select_action(states)
    agent.train(memory, 3)
    np.testing.assert_array_equal(agent.select_action(states), before)
    agent.train(memory, 1)  # the actor has not learned, but sees other embeddings
    assert (agent.select_action(states) != before).any()


@pytest.mark.parametrize("kind", [TD7, FusedTD7])
def test_weights_of_a_collector_are_all_that_acting_needs(kind: type[TD7]) -> None:
    agents = [kind(3, [-1.0], [1.0], Config(**SMALL, seed=seed)) for seed in (0, 1)]
    agents[0].train(filled_memory(40, 3), 300)
    agents[1].load_weights(agents[0].weights())
    states = np.eye(3, dtype=np.float32)
    there, here = (agent.select_action(states) for agent in agents)
    np.testing.assert_array_equal(there, here)


def test_one_critic_is_two_that_stay_alike() -> None:
    agent = TD7(3, [-1.0], [1.0], Config(**SMALL, twins=False))
    agent.train(filled_memory(40, 3), 5)
    state = agent.critic.state_dict()
    for name in [name for name in state if name.startswith("twin1.")]:
        assert torch.equal(state[name], state[name.replace("twin1", "twin2")])


@pytest.mark.parametrize("kind", [TD7, FusedTD7])
def test_it_is_saved_with_its_encoders_and_its_range_of_values(
    kind: type[TD7], tmp_path: Path
) -> None:
    agent = kind(3, [-1.0], [1.0], Config(**SMALL, target_every=2))
    agent.train(filled_memory(40, 3), 5)
    agent.save(tmp_path / "agent.safetensors")
    again = kind.load(tmp_path / "agent.safetensors")
    state = again.state_dict()
    assert {"values.limits", "fixed_encoder_target.g.0.weight", "sampler.priority"} < state.keys()
    for name, value in agent.state_dict().items():
        assert torch.equal(value, state[name]), name
