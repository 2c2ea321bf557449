"""What the networks see: who teaches the encoder, shifted images, rows of bytes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.agents import agent_memory, small_agent
from helpers.images import LAYOUT, image_agent, image_batch, image_states
from t3d import T3D, Batch, Config, T3DError
from t3d.base.observation import Image, Layout
from t3d.learn.perception import shifted


def values(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def changed(before: list[torch.Tensor], module: nn.Module) -> list[bool]:
    return [not torch.equal(old, new) for old, new in zip(before, module.parameters())]


def test_the_encoder_learns_from_the_critic_and_not_from_the_actor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = image_agent(policy_freq=1, image_shift=0)
    noise = torch.zeros(6, 1)
    encoder = values(learner.critic.encoder)
    learner.update(learner.perceive(image_batch()), noise)
    assert all(changed(encoder, learner.critic.encoder))
    # With the critic's step left out, the actor moves and the encoder stays.
    encoder, actor = values(learner.critic.encoder), values(learner.actor)
    monkeypatch.setattr(learner.critic_optimizer, "step", lambda: None)
    learner.update(learner.perceive(image_batch()), noise)
    assert not any(changed(encoder, learner.critic.encoder))
    assert any(changed(actor, learner.actor))


def test_every_parameter_has_one_optimiser_and_one_target() -> None:
    learner = image_agent()
    optimised = [
        parameter
        for optimizer in (learner.actor_optimizer, learner.critic_optimizer)
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert len({id(parameter) for parameter in optimised}) == len(optimised)
    all_of_them = [*learner.actor.parameters(), *learner.critic.parameters()]
    assert {id(p) for p in optimised} == {id(p) for p in all_of_them}
    target = dict(learner.critic_target.named_parameters())
    before = {name: value.clone() for name, value in target.items()}
    learner.update(learner.perceive(image_batch()), torch.zeros(6, 1))
    learner.update(learner.perceive(image_batch()), torch.zeros(6, 1))
    for name, value in learner.critic.named_parameters():
        expected = torch.lerp(before[name], value.detach(), learner.config.tau)
        torch.testing.assert_close(target[name], expected)


def test_the_next_state_is_seen_by_the_target() -> None:
    learner = image_agent()
    for parameter in learner.critic_target.encoder.parameters():
        parameter.data.zero_()
    seen = learner.perceive(image_batch())
    assert not seen.next_state[:, :10].any()
    assert seen.state[:, :10].any()
    assert seen.state.requires_grad
    assert not seen.next_state.requires_grad


@settings(max_examples=50, deadline=None)
@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 1))
def test_images_move_and_their_edges_stay(down: int, right: int, which: int) -> None:
    rows = image_states(2)
    moves = np.zeros((2, 2, 2), np.int64)
    moves[1, which] = down, right
    moved = shifted(rows, LAYOUT, moves).numpy()
    assert np.array_equal(moved[0], rows[0])
    before, after = (
        array[1][: 2 * LAYOUT.frame_size].reshape(2, -1) for array in (rows.numpy(), moved)
    )
    assert np.array_equal(rows.numpy()[1][-8:], moved[1][-8:])  # the vector is no image
    start = 0
    for i, image in enumerate(LAYOUT.images):
        end = start + image.channels * image.height * image.width
        old, new = (part[:, start:end].reshape(2, *image) for part in (before, after))
        y = np.clip(np.arange(image.height) - (down if i == which else 0), 0, image.height - 1)
        x = np.clip(np.arange(image.width) - (right if i == which else 0), 0, image.width - 1)
        assert np.array_equal(new, old[:, :, y][:, :, :, x])
        start = end


@pytest.mark.parametrize("vector", [0, 1])
@pytest.mark.parametrize("rows", [1, 2])
def test_an_image_may_have_any_number_of_bytes(vector: int, rows: int) -> None:
    layout = Layout(vector, (Image(3, 33, 33),))
    learner = T3D(layout, [-1], [1], Config(hidden=(8,), normalize_observations=True))
    seen = image_states(rows, layout).numpy()
    learner.observe(seen)
    assert learner.select_action(seen).shape == (rows, 1)
    assert learner.select_action(seen[0]).shape == (1,)


def test_a_state_that_is_no_row_of_bytes_is_refused() -> None:
    with pytest.raises(T3DError, match="expected rows of bytes"):
        image_agent().select_action(np.zeros((32, 34, 1), np.uint8))
    with pytest.raises(T3DError, match="expected rows of bytes"):
        image_agent().select_action(np.zeros(LAYOUT.size, np.float32))


def test_rewards_are_scaled_and_the_rest_passes_as_stored() -> None:
    agent, stored = small_agent(reward_scale=0.5), agent_memory().batch(np.arange(10))
    batch = agent.perceive(stored)
    assert isinstance(batch, Batch)
    assert not isinstance(stored, Batch)
    for name in Batch._fields:
        expected = 0.5 * stored.reward if name == "reward" else getattr(stored, name)
        assert torch.equal(getattr(batch, name), expected), name


def test_states_are_normalised_by_what_was_observed() -> None:
    agent, stored = small_agent(normalize_observations=True), agent_memory().batch(np.arange(50))
    agent.observe(stored.state.numpy())
    batch = agent.perceive(stored)
    assert batch.state.mean(dim=0).abs().max() < 1e-5
    torch.testing.assert_close(batch.state.std(dim=0, correction=0), torch.ones(3))
    assert not torch.equal(batch.next_state, stored.next_state)
