"""The page: what an agent plays, and what each step of an update does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from helpers.agents import HIGH, LOW, agent_memory, changed
from helpers.agents import small_agent as agent
from helpers.agents import small_config as config
from t3d import T3D, Batch, FusedT3D, ReplayBuffer, T3DError
from t3d.learn.agent import Measures

ACTOR = ("actor.", "actor_optimizer.")
CRITIC = ("critic.", "critic_optimizer.")
TARGETS = ("actor_target.", "critic_target.")


@pytest.fixture(scope="module")
def buffer() -> ReplayBuffer:
    return agent_memory()


# Playing.


def test_one_state_gives_one_action_and_a_batch_gives_a_batch() -> None:
    player, states = agent(), np.random.default_rng(0).normal(size=(5, 3))
    one, batch = player.select_action(states[0]), player.select_action(states)
    assert one.shape == (2,)
    assert batch.shape == (5, 2)
    np.testing.assert_allclose(batch[0], one, rtol=1e-5)
    assert player.select_action(states.tolist()[0]).tolist() == one.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_actions_are_float32_and_inside_the_range(dtype: torch.dtype) -> None:
    low, high = (-1.0, 0.1, 1e3), (1.0, 0.3, 1e3 + 1)
    player = T3D(3, low, high, config(), dtype=dtype)
    actions = player.select_action(np.random.default_rng(0).normal(size=(1000, 3)) * 1e4)
    assert actions.dtype == np.float32
    assert (actions >= np.array(low, np.float32)).all()
    assert (actions <= np.array(high, np.float32)).all()


def test_playing_changes_nothing_and_adds_no_noise() -> None:
    player = agent()
    before = player.state_dict()
    first, again = (player.select_action(np.ones(3)) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert changed(before, player.state_dict()) == set()


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 1, 3), (0,)])
def test_a_state_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(T3DError, match="state has shape"):
        agent().select_action(np.zeros(shape))


# Learning.


class Spy(T3D):
    """An agent that remembers the noise of its updates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noises: list[Tensor] = []

    def update(self, batch: Batch, noise: Tensor) -> Measures:
        self.noises.append(noise)
        return super().update(batch, noise)


def test_smoothing_noise_is_one_standard_normal_draw_per_row_and_dimension(
    buffer: ReplayBuffer,
) -> None:
    spy = Spy(3, LOW, HIGH, config(batch_size=500))
    spy.train(buffer, 2)
    assert [tuple(noise.shape) for noise in spy.noises] == [(500, 2), (500, 2)]
    drawn = torch.stack(spy.noises).numpy()
    assert len(np.unique(drawn)) > 0.99 * drawn.size
    assert abs(drawn.mean()) < 0.1
    assert drawn.std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("policy_freq", [1, 2, 3])
def test_actor_and_targets_move_only_at_every_policy_freq_th_update(
    buffer: ReplayBuffer, policy_freq: int
) -> None:
    learner = agent(policy_freq=policy_freq)
    for update in range(1, 8):
        before = learner.state_dict()
        measured = learner.train(buffer, 1)
        moved = changed(before, learner.state_dict())
        now = update % policy_freq == 0
        assert any(key.startswith(CRITIC) for key in moved)
        for part in (*ACTOR, *TARGETS):
            assert any(key.startswith(part) for key in moved) == now
        assert ("actor_loss" in measured) == now
        assert learner.updates == update


@pytest.mark.parametrize(("policy_freq", "done"), [(2, 1), (2, 3), (3, 2), (3, 5)])
def test_the_delay_resumes_where_it_was_saved(
    buffer: ReplayBuffer, tmp_path: Path, policy_freq: int, done: int
) -> None:
    learner = agent(policy_freq=policy_freq)
    learner.train(buffer, done)
    learner.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    before = loaded.state_dict()
    loaded.train(buffer, 1)
    moved = changed(before, loaded.state_dict())
    assert any(key.startswith("actor.") for key in moved)
    assert loaded.updates == done + 1


def test_the_critic_step_leaves_the_actor_alone(buffer: ReplayBuffer) -> None:
    learner = agent(policy_freq=2)
    before = learner.state_dict()
    learner.train(buffer, 1)
    moved = changed(before, learner.state_dict())
    assert any(key.startswith(CRITIC) for key in moved)
    assert not any(key.startswith(ACTOR + TARGETS) for key in moved)


def test_the_actor_step_leaves_the_critic_alone(buffer: ReplayBuffer) -> None:
    with_actor, without = agent(policy_freq=1), agent(policy_freq=2)
    with_actor.train(buffer, 1)
    without.train(buffer, 1)
    differ = changed(with_actor.state_dict(), without.state_dict())
    assert any(key.startswith(ACTOR) for key in differ)
    assert not any(key.startswith(CRITIC) for key in differ)


def test_targets_never_have_a_gradient(buffer: ReplayBuffer) -> None:
    learner = agent(policy_freq=1)
    learner.train(buffer, 2)
    for target in (learner.actor_target, learner.critic_target):
        for parameter in target.parameters():
            assert not parameter.requires_grad
            assert parameter.grad is None


def test_targets_with_tau_one_are_copies_of_the_models(buffer: ReplayBuffer) -> None:
    learner = agent(policy_freq=1, tau=1.0)
    learner.train(buffer, 3)
    state = learner.state_dict()
    for part in ("actor", "critic"):
        keys = [key for key in state if key.startswith(f"{part}.")]
        for key in keys:
            assert torch.equal(state[key], state[key.replace(part, f"{part}_target", 1)])


def constant(learner: T3D, **values: float) -> None:
    """Make each critic named in `values` give that value for everything, and the others 0."""
    state = learner.state_dict()
    for key, value in state.items():
        if key.startswith(("critic.", "critic_target.")):
            name, twin, layer, kind = key.split(".")
            last = layer == "4" and kind == "bias"
            value.fill_(values.get(f"{name}_{twin}", 0.0) if last else 0.0)
    learner.load_state_dict(state)


def rows(*, reward: list[float], done: list[float]) -> Batch:
    ones = torch.ones(len(reward), 3)
    action = torch.zeros(len(reward), 2)
    steps = torch.ones(len(reward))
    return Batch(ones, ones, action, torch.tensor(reward), torch.tensor(done), steps)


@pytest.mark.parametrize(
    ("done", "target"),
    [
        (0.0, 2 + 0.5 * 3),  # cut by a time limit, or not over: the smaller twin's value counts
        (1.0, 2.0),  # terminated: nothing comes after
    ],
)
@pytest.mark.parametrize("values", [(3.0, 5.0), (5.0, 3.0)])
def test_the_bellman_target_is_what_a_hand_computes(
    done: float, target: float, values: tuple[float, float]
) -> None:
    learner = agent(discount=0.5)
    constant(learner, critic_target_twin1=values[0], critic_target_twin2=values[1])
    measured = learner.update(rows(reward=[2.0], done=[done]), torch.zeros(1, 2))
    # Both twins say 0, so each is wrong by the target.
    assert float(measured["critic_loss"]) == pytest.approx(2 * target**2)


def test_the_value_of_a_state_is_the_first_critics_in_the_rewards_own_units() -> None:
    learner = agent(reward_scale=0.1)
    constant(learner, critic_twin1=3.0, critic_twin2=5.0)
    assert learner.value(np.ones((4, 3))) == pytest.approx([30.0] * 4)


@pytest.mark.parametrize("engine", [T3D, FusedT3D])
def test_without_twins_both_critics_stay_one(engine: type[T3D], buffer: ReplayBuffer) -> None:
    for twins in (True, False):
        learner = engine(3, LOW, HIGH, config(twins=twins))
        learner.train(buffer, 5)
        one, two = (
            list(twin.parameters()) for twin in (learner.critic.twin1, learner.critic.twin2)
        )
        alike = [torch.equal(mine, other) for mine, other in zip(one, two)]
        assert alike == [not twins] * len(one)


def test_the_critic_loss_is_the_mean_over_rows_summed_over_twins() -> None:
    learner = agent(discount=0.5)
    constant(learner, critic_target_twin1=4.0, critic_target_twin2=6.0, critic_twin1=1.0)
    measured = learner.update(rows(reward=[2.0, 2.0], done=[0.0, 1.0]), torch.zeros(2, 2))
    # Targets 4 and 2. The first twin says 1: (9 + 1) / 2. The second says 0: (16 + 4) / 2.
    assert float(measured["critic_loss"]) == pytest.approx(5 + 10)
    assert float(measured["mean_Q"]) == 1


def test_no_iterations_change_nothing(buffer: ReplayBuffer) -> None:
    learner = agent()
    before = learner.state_dict()
    assert learner.train(buffer, 0) == {}
    assert changed(before, learner.state_dict()) == set()


def test_the_seed_decides_all_of_training_bit_for_bit(buffer: ReplayBuffer) -> None:
    first, again, other = agent(seed=1), agent(seed=1), agent(seed=2)
    for learner in (first, again, other):
        learner.train(buffer, 20)
    assert changed(first.state_dict(), again.state_dict()) == set()
    differ = changed(first.state_dict(), other.state_dict())
    assert {"actor.layers.0.weight", "critic.twin1.0.weight", "generator.sampling"} <= differ


def test_training_leaves_the_global_generators_alone_and_does_not_use_them(
    buffer: ReplayBuffer,
) -> None:
    first, again = agent(), agent()
    with torch.random.fork_rng():
        before = torch.random.get_rng_state()
        first.train(buffer, 3)
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.manual_seed(123)
        again.train(buffer, 3)
    assert changed(first.state_dict(), again.state_dict()) == set()


def test_training_in_parts_is_training_at_once(buffer: ReplayBuffer) -> None:
    at_once, in_parts = agent(), agent()
    at_once.train(buffer, 9)
    for iterations in (1, 3, 5):
        in_parts.train(buffer, iterations)
    assert changed(at_once.state_dict(), in_parts.state_dict()) == set()


# What a variant changes.


def test_a_variant_changes_the_actors_loss_alone(buffer: ReplayBuffer) -> None:
    class Still(T3D):
        def actor_loss(self, batch: Batch) -> Tensor:
            return torch.mean(self.actor(batch.state) ** 2)

    plain, still = agent(), Still(3, LOW, HIGH, config())
    for learner in (plain, still):
        measures = learner.train(buffer, 2)
    differ = changed(plain.state_dict(), still.state_dict())
    assert any(key.startswith(ACTOR) for key in differ)
    assert not any(key.startswith(CRITIC) for key in differ)
    assert float(measures["actor_loss"]) >= 0


def test_a_variant_changes_the_critics_loss(buffer: ReplayBuffer) -> None:
    class Huber(T3D):
        def td_loss(self, value: Tensor, target: Tensor) -> Tensor:
            return huber_loss(value, target)

    learner = Huber(3, LOW, HIGH, config(discount=0.5))
    constant(learner, critic_target_twin1=4.0, critic_target_twin2=6.0, critic_twin1=1.0)
    measured = learner.update(rows(reward=[2.0, 2.0], done=[0.0, 1.0]), torch.zeros(2, 2))
    # Targets 4 and 2. Errors 3 and 1, then 4 and 2; beyond 1, Huber's loss is |error| - 1/2.
    assert float(measured["critic_loss"]) == pytest.approx((2.5 + 0.5) / 2 + (3.5 + 1.5) / 2)


def test_td_errors_are_those_of_the_worse_twin_in_each_row() -> None:
    learner = agent(discount=0.5)
    targets = {"critic_target_twin1": 4.0, "critic_target_twin2": 6.0}
    constant(learner, **targets, critic_twin1=1.0, critic_twin2=5.0)
    learner.update(rows(reward=[2.0, 2.0], done=[0.0, 1.0]), torch.zeros(2, 2))
    # Targets 4 and 2. The first twin says 1: it is wrong by 3 and 1. The second says 5: 1 and 3.
    assert learner.td_errors.tolist() == [3.0, 3.0]


def test_the_agent_remembers_the_rows_of_its_last_batch(buffer: ReplayBuffer) -> None:
    learner = agent()
    learner.train(buffer, 1)
    last = learner.last_batch(buffer)
    assert last is not None
    assert learner.rows is not None
    assert torch.equal(last[0].reward, buffer.batch(learner.rows).reward)
    assert learner.td_errors.shape == (16,)
