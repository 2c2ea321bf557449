import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from helpers.memories import filled_memory
from t3d import T3D, Batch, Config, FusedT3D, ReplayBuffer, T3DError

LOW, HIGH = (-1.0, 0.0), (1.0, 0.2)
ACTOR = ("actor.", "actor_optimizer.")
CRITIC = ("critic.", "critic_optimizer.")
TARGETS = ("actor_target.", "critic_target.")


def config(**knobs: Any) -> Config:
    return Config.from_dict({"hidden": (8, 6), "batch_size": 16, "tau": 0.1, **knobs})


def agent(dtype: torch.dtype = torch.float32, **knobs: Any) -> T3D:
    return T3D(3, LOW, HIGH, config(**knobs), dtype=dtype)


@pytest.fixture(scope="module")
def buffer() -> ReplayBuffer:
    return filled_memory(100, 3, LOW, HIGH)


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {key for key, value in before.items() if not torch.equal(value, after[key])}


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
        T3D(3, low, high, config())


def test_max_action_is_half_the_range() -> None:
    assert agent().max_action.tolist() == pytest.approx([1.0, 0.1])


# Learning.


class Spy(T3D):
    """An agent that remembers the noise of its updates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noises: list[Tensor] = []

    def update(self, batch: Batch, noise: Tensor) -> dict[str, SupportsFloat]:
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
def test_the_delay_goes_on_where_it_was_saved(
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


# Saving and loading.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("done", [0, 3, 4])
def test_a_loaded_agent_goes_on_bit_for_bit_like_the_one_saved(
    buffer: ReplayBuffer, tmp_path: Path, dtype: torch.dtype, done: int
) -> None:
    learner = agent(dtype, seed=4)
    learner.train(buffer, done)
    learner.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    assert loaded.dtype == dtype
    assert loaded.config == learner.config
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    for each in (learner, loaded):
        each.train(buffer, 5)
    assert changed(learner.state_dict(), loaded.state_dict()) == set()
    states = np.random.default_rng(0).normal(size=(4, 3))
    assert (learner.select_action(states) == loaded.select_action(states)).all()


def test_a_state_dict_is_a_copy(buffer: ReplayBuffer) -> None:
    learner = agent()
    state = learner.state_dict()
    kept = {key: value.clone() for key, value in state.items()}
    learner.train(buffer, 2)
    assert changed(kept, state) == set()
    before = learner.state_dict()
    learner.load_state_dict(state)
    state["actor.layers.0.weight"].zero_()
    assert "actor.layers.0.weight" in changed(before, learner.state_dict())
    assert bool(learner.state_dict()["actor.layers.0.weight"].any())


def test_a_loaded_state_dict_makes_another_agent_the_same(buffer: ReplayBuffer) -> None:
    learner, other = agent(seed=1), agent(seed=2)
    learner.train(buffer, 3)
    other.load_state_dict(learner.state_dict())
    for each in (learner, other):
        each.train(buffer, 3)
    assert changed(learner.state_dict(), other.state_dict()) == set()


def without(state: dict[str, Tensor], key: str) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name != key}


SPOILERS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "a weight is missing": lambda s: without(s, "critic_target.twin2.0.weight"),
    "a moment is missing": lambda s: without(s, "critic_optimizer.twin2.4.bias.exp_avg_sq"),
    "the counter is missing": lambda s: without(s, "updates"),
    "a stream is missing": lambda s: without(s, "generator.smoothing"),
    "something is too much": lambda s: {**s, "temperature": torch.zeros(1)},
    "a weight has another shape": lambda s: {**s, "critic.twin1.4.bias": torch.zeros(2)},
    "a stream has another shape": lambda s: {**s, "generator.smoothing": torch.zeros(3).long()},
    "a stream is not whole numbers": lambda s: {**s, "generator.smoothing": torch.zeros(6)},
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    buffer: ReplayBuffer, spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    learner, other = agent(seed=1), agent(seed=2)
    other.train(buffer, 3)
    before = learner.state_dict()
    with pytest.raises(T3DError):
        learner.load_state_dict(spoil(other.state_dict()))
    assert changed(before, learner.state_dict()) == set()


def test_an_agent_of_another_size_is_refused() -> None:
    with pytest.raises(T3DError, match="of shape"):
        agent().load_state_dict(agent(hidden=(8, 7)).state_dict())
    with pytest.raises(T3DError, match="missing or unexpected"):
        agent().load_state_dict(agent(hidden=(8,)).state_dict())


def test_the_file_is_a_header_and_numbers_and_nothing_that_can_run(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    agent().save(path)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["t3d"])
    assert about["layout"]["vector"] == 3
    assert header.keys() == agent().state_dict().keys()
    # The tensors fill the rest of the file, end to end: there is no room for anything else.
    extents = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    ends = [end for _, end in extents]
    assert [start for start, _ in extents] == [0, *ends[:-1]]
    assert 8 + length + ends[-1] == len(raw)


class Bomb:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("content", ["empty", "garbage", "pickle", "cut short", "absent", "folder"])
def test_a_file_that_is_no_agent_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path, fuse = tmp_path / "agent.safetensors", tmp_path / "fuse"
    agent().save(path)
    whole = path.read_bytes()
    path.unlink()
    contents = {
        "empty": b"",
        "garbage": bytes(range(256)) * 20,
        "pickle": pickle.dumps(Bomb(fuse)),
        "cut short": whole[:-1],
    }
    if content in contents:
        path.write_bytes(contents[content])
    elif content == "folder":
        path.mkdir()
    with pytest.raises(T3DError) as refusal:
        T3D.load(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not fuse.exists()


def test_a_safetensors_file_of_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "memory.safetensors"
    ReplayBuffer(3, 3, 2).save(path)
    with pytest.raises(T3DError) as refusal:
        T3D.load(path)
    assert "\n" not in str(refusal.value)


def test_an_unknown_device_is_refused_when_loading(tmp_path: Path) -> None:
    agent().save(tmp_path / "agent.safetensors")
    assert T3D.load(tmp_path / "agent.safetensors", device="cpu").config.device == "cpu"
    with pytest.raises(T3DError, match="device 'abacus'"):
        T3D.load(tmp_path / "agent.safetensors", device="abacus")


def test_a_loaded_agent_acts_to_the_bit_whatever_the_bounds(tmp_path: Path) -> None:
    agent = T3D(3, [0.1, -0.3], [0.7, 1.1])  # numbers that float32 has to round
    agent.save(tmp_path / "agent.safetensors")
    loaded = T3D.load(tmp_path / "agent.safetensors")
    states = np.random.default_rng(0).normal(size=(1000, 3))
    assert np.array_equal(agent.select_action(states), loaded.select_action(states))


def test_a_memory_of_other_sizes_is_refused() -> None:
    memory = ReplayBuffer(10, 4, 2)
    memory.add(np.zeros(4), np.zeros(4), np.zeros(2), 0.0, 0.0)
    with pytest.raises(T3DError, match=r"the memory holds states \(4,\), actions 2; this agent's"):
        T3D(3, [-1.0], [1.0]).train(memory, 1)
