"""Agents that see: the encoder, who teaches it, and runs that end where they should."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import t3d
from helpers import seeing_envs
from helpers.memories import frames
from helpers.runs import TINY, same_bits
from t3d import Batch, Config, T3DError
from t3d.base import files
from t3d.base.observation import Image, Layout
from t3d.learn.networks import Encoder
from t3d.learn.t3d import shifted

LAYOUT = Layout(2, (Image(1, 32, 34), Image(3, 40, 36)), 2)


def states(rows: int, layout: Layout = LAYOUT, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (rows, layout.frame_stack * layout.frame_size), np.uint8)
    vector = random.normal(size=(rows, layout.vector)).astype(np.float32)
    return torch.from_numpy(np.concatenate([images, vector.view(np.uint8)], axis=1))


def batch(rows: int = 6) -> Batch:
    random = np.random.default_rng(1)
    fields = (
        random.uniform(-1, 1, (rows, 1)),
        random.normal(size=rows),
        np.zeros(rows),
        np.ones(rows),
    )
    rest = (torch.from_numpy(np.float32(field)) for field in fields)
    return Batch(states(rows, seed=2), states(rows, seed=3), *rest)


def agent(**knobs: Any) -> t3d.T3D:
    config = Config(hidden=(16, 16), batch_size=6, features=5, learning_rate=1e-2, **knobs)
    return t3d.T3D(LAYOUT, [-1], [1], config)


def test_the_encoder_sees_all_frames_of_each_image() -> None:
    encoder = Encoder(LAYOUT, 8, 5, np.random.default_rng(0))
    rows = states(4)[:, : 2 * LAYOUT.frame_size]
    assert encoder(rows).shape == (4, 10)
    # By hand: frame after frame, first image, then second.
    frames = rows.numpy().reshape(4, 2, LAYOUT.frame_size)
    first = frames[:, :, : 32 * 34].reshape(4, 2, 32, 34)
    second = frames[:, :, 32 * 34 :].reshape(4, 6, 40, 36)
    for tower, pixels, part in zip(encoder.towers, (first, second), (slice(5), slice(5, 10))):
        numbers = torch.from_numpy(pixels.astype(np.float32) / 255 - 0.5)
        torch.testing.assert_close(encoder(rows)[:, part], tower(numbers))


@pytest.mark.parametrize(("side", "convolutions"), [(32, 2), (48, 3), (64, 3), (84, 4), (96, 4)])
def test_an_image_is_halved_until_it_is_small(side: int, convolutions: int) -> None:
    layout = Layout(0, (Image(3, side, side),))
    encoder = Encoder(layout, 8, 50, np.random.default_rng(0))
    found = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert len(found) == convolutions
    shapes = [tuple(parameter.shape) for parameter in encoder.parameters()]
    assert shapes == Encoder.shapes(layout, 8, 50)
    assert encoder(states(2, layout)).shape == (2, 50)


def values(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def changed(before: list[torch.Tensor], module: nn.Module) -> list[bool]:
    return [not torch.equal(old, new) for old, new in zip(before, module.parameters())]


def test_the_encoder_learns_from_the_critic_and_not_from_the_actor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = agent(policy_freq=1, image_shift=0)
    noise = torch.zeros(6, 1)
    encoder = values(learner.critic.encoder)
    learner.update(learner.see(batch()), noise)
    assert all(changed(encoder, learner.critic.encoder))
    # With the critic's step left out, the actor moves and the encoder stays.
    encoder, actor = values(learner.critic.encoder), values(learner.actor)
    monkeypatch.setattr(learner.critic_optimizer, "step", lambda: None)
    learner.update(learner.see(batch()), noise)
    assert not any(changed(encoder, learner.critic.encoder))
    assert any(changed(actor, learner.actor))


def test_every_parameter_has_one_optimiser_and_one_target() -> None:
    learner = agent()
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
    learner.update(learner.see(batch()), torch.zeros(6, 1))
    learner.update(learner.see(batch()), torch.zeros(6, 1))
    for name, value in learner.critic.named_parameters():
        expected = torch.lerp(before[name], value.detach(), learner.config.tau)
        torch.testing.assert_close(target[name], expected)


def test_the_next_state_is_seen_by_the_target() -> None:
    learner = agent()
    for parameter in learner.critic_target.encoder.parameters():
        parameter.data.zero_()
    seen = learner.see(batch())
    assert not seen.next_state[:, :10].any()
    assert seen.state[:, :10].any()
    assert seen.state.requires_grad
    assert not seen.next_state.requires_grad


@settings(max_examples=50, deadline=None)
@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 1))
def test_images_move_and_their_edges_stay(down: int, right: int, which: int) -> None:
    rows = states(2)
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


def test_an_agent_that_sees_is_saved_and_loaded(tmp_path: Path) -> None:
    learner = agent(normalize_observations=True)
    learner.observe(states(50).numpy())
    learner.update(learner.see(batch()), torch.zeros(6, 1))
    learner.save(tmp_path / "agent.safetensors")
    loaded = t3d.T3D.load(tmp_path / "agent.safetensors")
    assert loaded.layout == LAYOUT
    assert loaded.normalizer.count == 50
    rows = states(5, seed=9).numpy()
    assert np.array_equal(loaded.select_action(rows), learner.select_action(rows))
    alone = loaded.select_action(rows[0])
    np.testing.assert_allclose(alone, loaded.select_action(rows)[0], atol=1e-6)
    one, other = learner.state_dict(), loaded.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("vector", [0, 1])
@pytest.mark.parametrize("rows", [1, 2])
def test_an_image_may_have_any_number_of_bytes(vector: int, rows: int) -> None:
    layout = Layout(vector, (Image(3, 33, 33),))
    learner = t3d.T3D(layout, [-1], [1], Config(hidden=(8,), normalize_observations=True))
    seen = states(rows, layout).numpy()
    learner.observe(seen)
    assert learner.select_action(seen).shape == (rows, 1)
    assert learner.select_action(seen[0]).shape == (1,)


@pytest.mark.parametrize(
    "change",
    [
        {"vector": 150_000_000, "frame_stack": -450_000_000},
        {"vector": float("inf")},
        {"vector": -1},
        {"images": [[0, 32, 32]]},
        {"images": [[1, 32]]},
        {"images": 5},
        {"frame_stack": "2"},
    ],
)
def test_a_file_with_a_layout_that_makes_no_sense_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    tensors = load_file(path)
    about = json.loads(files.header(path).metadata["t3d"])
    about["layout"] |= change
    save_file(tensors, path, metadata={"t3d": json.dumps(about)})
    with pytest.raises(T3DError, match="is not a T3D agent"):
        t3d.T3D.load(path)


def test_a_memory_of_another_type_is_refused() -> None:
    bytes_ = t3d.ReplayBuffer(10, frames(2, stack=3), 1)
    with pytest.raises(T3DError, match="the memory holds uint8; this agent learns from float32"):
        t3d.FusedT3D(6, [-1], [1]).train(bytes_, 1)
    with pytest.raises(T3DError, match="the memory holds float32; this agent learns from uint8"):
        agent().train(t3d.ReplayBuffer(10, LAYOUT.size, 1), 1)


def test_a_state_that_is_no_row_of_bytes_is_refused() -> None:
    with pytest.raises(T3DError, match="expected rows of bytes"):
        agent().select_action(np.zeros((32, 34, 1), np.uint8))
    with pytest.raises(T3DError, match="expected rows of bytes"):
        agent().select_action(np.zeros(LAYOUT.size, np.float32))


def test_the_fused_engine_says_that_it_does_not_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(T3DError, match="fused has no convolutions for images; take --engine ref"):
        t3d.train(seeing_envs.Camera, run=tmp_path / "run", engine="fused", **TINY)
    assert not (tmp_path / "run").exists()
    t3d.train(seeing_envs.Camera, run=tmp_path / "run", **(TINY | {"steps": 30}))
    said = capsys.readouterr().out
    assert "engine reference (fused has no convolutions for images)" in said
    assert "the replay memory takes up to" in said


SEEN = [
    (seeing_envs.Camera, {"frame_stack": 3, "grey": True}),
    (seeing_envs.Robot, {"frame_stack": 2, "normalize_observations": True, "n_step": 3}),
    (seeing_envs.Camera, {"num_envs": 2, "frame_stack": 2, "capacity": 25}),
    (seeing_envs.Sensors, {"num_envs": 2, "normalize_observations": True}),
    (seeing_envs.Camera, {"image_size": 36, "replay_on_disk": True, "action_repeat": 2}),
]


@pytest.mark.parametrize(("env", "knobs"), SEEN)
def test_a_resumed_run_ends_where_an_uninterrupted_one_ends(
    tmp_path: Path, env: Any, knobs: dict[str, Any]
) -> None:
    asked = TINY | {"preset": "default", "features": 6, "quiet": True} | knobs
    t3d.train(env, run=tmp_path / "whole", **(asked | {"steps": 70}))
    t3d.train(env, run=tmp_path / "parts", **(asked | {"steps": 30}))
    t3d.resume(tmp_path / "parts", steps=70, quiet=True)
    assert same_bits(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(("env", "knobs"), SEEN[:2])
def test_in_processes_of_their_own_environments_look_the_same(
    tmp_path: Path, env: Any, knobs: dict[str, Any]
) -> None:
    asked = TINY | {"num_envs": 2, "features": 6, "quiet": True} | knobs
    t3d.train(env, run=tmp_path / "here", **asked)
    t3d.train(env, run=tmp_path / "there", env_backend="processes", **asked)
    assert same_bits(tmp_path / "here", tmp_path / "there")


def test_it_learns_to_move_what_it_sees(tmp_path: Path) -> None:
    """The square is to stay in the middle; at random it makes about half of what is possible."""
    t3d.train(
        seeing_envs.Camera,
        run=tmp_path / "run",
        quiet=True,
        steps=500,
        random_steps=150,
        grey=True,
        features=16,
        hidden=(32, 32),
        batch_size=32,
        learning_rate=1e-3,
        tau=0.02,
        discount=0.5,
        exploration_noise=0.3,
        eval_every=0,
        capacity=1000,
    )
    last = list(t3d.run.folder.RunFolder(tmp_path / "run").metrics("evaluation"))[-1]
    assert last["mean"] > 6.5  # of 8 at most
