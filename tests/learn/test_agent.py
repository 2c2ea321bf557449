"""What every agent has: bounds, class facts, optimisers, the check of a memory."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import nn

from helpers.agents import HIGH, LOW, agent_memory, small_agent, small_config
from helpers.images import LAYOUT, image_agent
from t3d import T3D, Agent, BadInput, Config, FusedT3D, ReplayBuffer, T3DError


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([1.0], [1.0]),
        ([1.0], [-1.0]),
        ([-1.0, 0.0], [1.0, 0.0]),
        ([-np.inf], [1.0]),
        ([-1.0], [np.inf]),
        ([np.nan], [1.0]),
        ([], []),
        ([-1.0], [1.0, 1.0]),
        (-1.0, 1.0),
        ([[-1.0]], [[1.0]]),
        ([-1e39], [1e39]),  # finite, but not in float32
    ],
)
def test_bounds_that_are_no_range_are_refused(low: ArrayLike, high: ArrayLike) -> None:
    with pytest.raises(T3DError, match="bound"):
        T3D(3, low, high, small_config())


def test_max_action_is_half_the_range() -> None:
    assert small_agent().max_action.tolist() == pytest.approx([1.0, 0.1])


def test_a_memory_of_other_sizes_is_refused() -> None:
    memory = ReplayBuffer(10, 4, 2)
    memory.add(np.zeros(4), np.zeros(4), np.zeros(2), 0.0, 0.0)
    with pytest.raises(T3DError, match=r"the memory holds states \(4,\), actions 2; this agent's"):
        T3D(3, [-1.0], [1.0]).train(memory, 1)


def test_a_memory_of_another_type_is_refused() -> None:
    with pytest.raises(T3DError, match="the memory holds float32; this agent learns from uint8"):
        image_agent().train(ReplayBuffer(10, LAYOUT.size, 1), 1)


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
def test_updates_that_look_like_a_batch_size_are_named_once(
    kind: type[T3D], capsys: pytest.CaptureFixture[str]
) -> None:
    agent, memory = kind(3, LOW, HIGH, small_config(batch_size=4)), agent_memory()
    agent.train(memory, 4)
    agent.train(memory, 4)
    assert agent.updates == 8
    what = "train(replay_buffer, 4) does 4 updates; the size of a batch is config.batch_size, 4"
    assert (
        capsys.readouterr().err == f"t3d: note: {what}; for one update, train(replay_buffer, 1)\n"
    )
    kind(3, LOW, HIGH, small_config(batch_size=4)).train(memory, 3)
    kind(3, LOW, HIGH, small_config(batch_size=1)).train(memory, 1)
    assert capsys.readouterr().err == ""


class Own(T3D):
    """A subclass that says nothing of itself."""


def test_an_agents_config_says_which_agent_it_is() -> None:
    assert small_agent().config.agent == "t3d"
    assert FusedT3D(3, LOW, HIGH, small_config()).config.agent == "t3d"
    assert Own(3, LOW, HIGH, small_config()).config.agent == f"{__name__}:Own"


def test_classes_say_their_engine_and_whether_threads_change_their_bits() -> None:
    facts = {kind: (kind.engine, kind.depends_on_threads) for kind in (T3D, Own, FusedT3D)}
    reference = ("reference", True)
    assert facts == {T3D: reference, Own: reference, FusedT3D: ("fused", False)}


def test_all_networks_are_known_by_their_attributes() -> None:
    agent = small_agent()
    agent.loss = nn.HuberLoss()  # type: ignore[attr-defined]
    names = ["actor", "critic", "actor_target", "critic_target", "loss"]
    assert list(agent.networks) == names
    assert agent.networks["critic"] is agent.critic
    assert list(agent.optimizers) == ["actor", "critic"]


def test_an_agent_without_its_methods_cannot_be_built() -> None:
    class Empty(Agent):
        pass

    with pytest.raises(TypeError, match=r"abstract methods? .*build"):
        Empty(3, LOW, HIGH)  # type: ignore[abstract]


def test_the_reference_begins_nothing_in_the_background_and_needs_no_preparation() -> None:
    agent, memory = small_agent(), agent_memory()
    agent.prepare(lambda: pytest.fail("nothing takes long"))
    assert agent.begin(memory) is None
    assert agent.updates == 0
    assert agent.last_batch(memory) is None


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
@pytest.mark.parametrize("knobs", [{}, {"normalize_observations": True}])
def test_an_agent_with_anothers_weights_acts_like_it(
    kind: type[T3D], knobs: dict[str, Any]
) -> None:
    learner, player = (kind(3, LOW, HIGH, small_config(seed=seed, **knobs)) for seed in (1, 2))
    memory, states = agent_memory(), 10 * np.random.default_rng(3).normal(size=(20, 3))
    learner.observe(states.astype(np.float32))
    learner.train(memory, 5)
    assert not np.array_equal(player.select_action(states), learner.select_action(states))
    player.load_weights(learner.weights())
    assert np.array_equal(player.select_action(states), learner.select_action(states))


def test_an_agent_with_images_sends_its_encoder_along() -> None:
    learner, player = image_agent(seed=1), image_agent(seed=2)
    rows = np.random.default_rng(0).integers(0, 256, (5, LAYOUT.size), np.uint8)
    rows[:, -8:] = 0  # the vector
    player.load_weights(learner.weights())
    assert np.array_equal(player.select_action(rows), learner.select_action(rows))


def test_device_places_all_networks() -> None:
    with torch.device("meta"):
        agent = T3D(3, [-1], [1], Config(device="meta"))
    devices = {p.device for network in agent.networks.values() for p in network.parameters()}
    assert devices == {torch.device("meta")}


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
def test_one_state_has_one_value_and_one_action(kind: type[T3D]) -> None:
    agent = kind(3, LOW, HIGH, small_config())
    states = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert agent.value(states[1]).shape == ()
    assert float(agent.value(states[1])) == pytest.approx(agent.value(states)[1], rel=1e-6)
    assert agent.select_action(states[1]).shape == (2,)


@pytest.mark.parametrize("kind", [T3D, FusedT3D])
def test_a_state_that_is_not_finite_is_refused_by_its_first_bad_component(kind: type[T3D]) -> None:
    agent = kind(3, LOW, HIGH, small_config())
    with pytest.raises(BadInput, match=r"^state\[1\] is nan; expected finite numbers$"):
        agent.select_action([0.0, np.nan, np.inf])
    with pytest.raises(BadInput, match=r"^state\[1, 2\] is inf; expected finite numbers$"):
        agent.value([[0.0, 1.0, 2.0], [0.0, 1.0, np.inf]])
    largest = np.full(3, np.finfo(np.float32).max)  # its square is infinite
    assert np.isfinite(agent.perception.checked(largest)).all()
