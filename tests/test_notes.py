import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t3d
from t3d import notes

RANDOM = np.random.default_rng(0)
KNOBS = {"hidden": (16, 16), "seed": 3, "threads": 1}


def transitions(count: int) -> list[tuple[Any, ...]]:
    """(state, next_state, action, reward, done), every seventh terminal."""
    numbers = RANDOM.normal(size=(count, 8)).astype(np.float32)
    return [(n[:3], n[3:6], n[6:7], float(n[7]), float(i % 7 == 6)) for i, n in enumerate(numbers)]


def filled(count: int = 200) -> notes.ReplayBuffer:
    buffer = notes.ReplayBuffer(max_size=1e3)
    for transition in transitions(count):
        buffer.add(transition)
    return buffer


def test_the_buffer_gives_back_what_was_added_in_the_order_of_the_notes() -> None:
    buffer = notes.ReplayBuffer(5)
    rows = transitions(12)
    for row in rows:
        buffer.add(row)
    assert len(buffer) == buffer.size == buffer.max_size == 5
    states, nexts, actions, rewards, dones = buffer.sample(300)
    assert (states.shape, nexts.shape, actions.shape) == ((300, 3), (300, 3), (300, 1))
    assert rewards.shape == dones.shape == (300, 1)
    kept = {row[0].tobytes(): row for row in rows[-5:]}
    assert {state.tobytes() for state in states} == kept.keys()
    for state, after, action, reward, done in zip(states, nexts, actions, rewards, dones):
        _, expected_after, expected_action, expected_reward, expected_done = kept[state.tobytes()]
        assert (after == expected_after).all()
        assert (action == expected_action).all()
        assert (reward[0], done[0]) == (np.float32(expected_reward), expected_done)


def test_the_authors_buffer_has_his_order_and_tensors() -> None:
    buffer = notes.ReplayBuffer(3, 1, max_size=100)
    state, after, action, reward, _ = transitions(1)[0]
    buffer.add(state, action, after, reward, True)
    columns = buffer.sample(2)
    expected = state, action, after, [reward], [0.0]  # not_done
    for column, value in zip(columns, expected):
        assert torch.equal(column, torch.tensor(np.array([value, value]), dtype=torch.float32))
    assert notes.ReplayBuffer(3, 1, 50).max_size == 50


def test_the_authors_sizes_may_be_named_and_are_kept() -> None:
    for buffer in (
        notes.ReplayBuffer(state_dim=3, action_dim=1),
        notes.ReplayBuffer(3, action_dim=1, max_size=1e6),
        notes.ReplayBuffer(3, 1, 1e6),
    ):
        assert (buffer.authors, buffer.max_size) == (True, 10**6)
        with pytest.raises(t3d.BadInput, match=r"state has shape \(4,\); expected \(3,\)"):
            buffer.add(np.zeros(4), np.zeros(1), np.zeros(4), 0.0, False)


def test_the_storage_of_the_notes_reads_as_their_list() -> None:
    buffer, rows, listed = notes.ReplayBuffer(5), transitions(7), []
    assert (len(buffer.storage), buffer.ptr) == (0, 0)
    for count, row in enumerate(rows):
        if count < 5:
            listed.append(row)
        else:
            listed[count % 5] = row
        buffer.add(row)
        assert buffer.ptr == max(0, count + 1 - 5)  # the row that is overwritten next

    def plain(row: tuple[Any, ...]) -> list[Any]:
        *arrays, reward, done = row
        return [*(array.tolist() for array in arrays), reward, done]

    storage = buffer.storage
    assert len(storage) == 5
    assert [plain(row) for row in storage] == [plain(row) for row in listed]
    assert plain(storage[-1]) == plain(listed[4])
    assert [plain(row) for row in storage[1:3]] == [plain(row) for row in listed[1:3]]
    with pytest.raises(IndexError):
        storage[5]


def test_the_columns_of_the_author_are_read_by_their_names() -> None:
    buffer = notes.ReplayBuffer(3, 1, max_size=10)
    assert (buffer.ptr, buffer.size, buffer.state.shape) == (0, 0, (0, 3))
    rows = transitions(7)
    for state, after, action, reward, done in rows:
        buffer.add(state, action, after, reward, done)
    assert (buffer.ptr, buffer.size, buffer.max_size) == (7, 7, 10)
    states, nexts, actions, rewards, dones = (np.array(column) for column in zip(*rows))
    for column, expected in (
        (buffer.state, states),
        (buffer.next_state, nexts),
        (buffer.action, actions),
        (buffer.reward, rewards[:, None]),
        (buffer.not_done, 1 - dones[:, None]),
    ):
        np.testing.assert_array_equal(column, expected.astype(np.float32))
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_the_policy_has_the_networks_and_counts_of_the_author() -> None:
    policy = notes.TD3(3, 1, 2.0, **KNOBS)
    policy.train(filled(), 5)
    assert (policy.max_action, policy.total_it) == (2.0, 5)
    for name in ("actor", "critic", "actor_target", "critic_target"):
        network, saved = getattr(policy, name), policy.agent.state_dict()
        for key, value in network.state_dict().items():
            assert torch.equal(value, saved[f"{name}.{key}"])


def test_noise_is_in_the_units_of_the_action_and_defaults_are_those_of_each_code() -> None:
    policy = notes.T3D(3, 1, 2.0)
    policy.train(filled(), 1)
    config = policy.agent.config
    assert (config.policy_noise, config.noise_clip) == (0.1, 0.25)
    assert (config.batch_size, config.hidden, config.learning_rate) == (100, (400, 300), 1e-3)
    assert policy.agent.engine == "fused"

    later = notes.TD3(3, 1, 2.0, discount=0.9, policy_noise=0.4)
    buffer = notes.ReplayBuffer(3, 1)
    for state, after, action, reward, done in transitions(20):
        buffer.add(state, action, after, reward, done)
    later.train(buffer, 64)
    config = later.agent.config
    assert (later.agent.updates, config.batch_size, config.discount) == (1, 64, 0.9)
    assert (config.policy_noise, config.hidden, config.learning_rate) == (0.2, (256, 256), 3e-4)
    later.train(buffer)
    assert (later.agent.updates, later.agent.config.batch_size) == (2, 256)
    later.train(buffer, batch_size=32)
    assert (later.agent.updates, later.agent.config.batch_size) == (3, 32)
    later.train(buffer, 5.0, 32)  # type: ignore[arg-type]
    assert later.agent.updates == 8


def test_knobs_change_from_call_to_call_in_both_engines_alike() -> None:
    calls = [
        (3, 32, 0.9, 0.01, 0.2, 0.5, 2),
        (4, 17, 0.5, 0.5, 1.0, 0.1, 1),
        (3, 32, 0.9, 0.01, 0.2, 0.5, 3),
    ]
    buffer, states = filled(), []
    for engine in ("reference", "fused"):
        policy = notes.T3D(3, 1, 2.0, engine=engine, **KNOBS)
        for call in calls:
            policy.train(buffer, *call)
            assert policy.agent.config.batch_size == call[1]
        assert (policy.agent.engine, policy.agent.updates) == (engine, 10)
        states.append(policy.agent.state_dict())
    plain = notes.T3D(3, 1, 2.0, **KNOBS)
    plain.train(buffer, 10, *calls[0][1:])
    for name, expected in states[0].items():
        torch.testing.assert_close(states[1][name], expected, rtol=2e-4, atol=2e-5)
    assert any((plain.agent.state_dict()[k] != states[1][k]).any() for k in states[1])


def test_the_learning_rate_changes_in_both_engines_alike_and_is_not_saved(tmp_path: Path) -> None:
    memory = filled().filled()
    config = t3d.Config(hidden=(16,), batch_size=32, threads=1)
    agents = [kind(3, [-1.0], [1.0], config) for kind in (t3d.T3D, t3d.FusedT3D)]
    for agent in agents:
        agent.train(memory, 3)
        before = agent.state_dict()["actor.layers.0.weight"]
        agent.change(learning_rate=1e-12)
        agent.train(memory, 3)
        after = agent.state_dict()["actor.layers.0.weight"]
        torch.testing.assert_close(after, before, rtol=0, atol=1e-9)
        agent.change(learning_rate=0.01)
        agent.train(memory, 3)
        assert (agent.state_dict()["actor.layers.0.weight"] - after).abs().max() > 1e-3
    reference, fused = (agent.state_dict() for agent in agents)
    for name, expected in reference.items():
        torch.testing.assert_close(fused[name], expected, rtol=2e-4, atol=2e-5)
    agents[1].save(tmp_path / "agent")
    assert t3d.FusedT3D.load(tmp_path / "agent").config == dataclasses.replace(config, agent="t3d")
    with pytest.raises(t3d.BadInput, match="hidden cannot change; these can: batch_size, learn"):
        agents[1].change(hidden=(3,))


def test_an_agent_is_saved_and_loaded_with_its_optimisers(tmp_path: Path) -> None:
    buffer = filled()
    policy, other = (notes.T3D(3, 1, 2.0, hidden=(16,), seed=seed) for seed in (1, 2))
    policy.train(buffer, 5)
    policy.save("TD3_Pendulum-v1_0", directory=tmp_path / "pytorch_models")
    other.load("TD3_Pendulum-v1_0", str(tmp_path / "pytorch_models"))
    for each in (policy, other):
        each.train(buffer, 5)
    state = [0.1, 0.2, 0.3]
    assert policy.select_action(state).tobytes() == other.select_action(state).tobytes()
    assert policy.select_action(np.array([state])).shape == (1,)  # as the notes' flatten


def test_a_notebook_that_seeds_numpy_repeats_its_numbers() -> None:
    actions = []
    for seed in (1, 1, 2):
        np.random.seed(seed)  # noqa: NPY002
        actions.append(float(notes.T3D(3, 1, 2.0).select_action([0.1, 0.2, 0.3])[0]))
    assert actions[0] == actions[1] != actions[2]


def test_networks_have_the_notes_shapes() -> None:
    state, action = torch.randn(4, 3), torch.randn(4, 2)
    actor, critic = notes.Actor(3, 2, 5.0), notes.Critic(3, 2)
    assert (actor(1000 * state).abs() <= 5).all()
    assert actor(1000 * state).abs().max() > 4
    Q1, Q2 = critic(state, action)
    assert Q1.shape == Q2.shape == critic.Q1(state, action).shape == (4, 1)
    assert torch.equal(Q1, critic.Q1(state, action))
    assert not torch.equal(Q1, Q2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p, b, d: p.train([], 3), "replay_buffer is a list; expected a t3d.notes.Replay"),
        (lambda p, b, d: p.train(notes.ReplayBuffer(), 3), "is empty; add transitions first"),
        (lambda p, b, d: p.train(b), "train needs the number of iterations"),
        (lambda p, b, d: b.add(1, 2, 3, 4, 5, 6), "add got 6 values; expected (state, next_state"),
        (lambda p, b, d: b.add((1, 2)), "add got 2 values; expected (state, next_state, action"),
        (lambda p, b, d: b.add(([1.0, 2], [1, 2], [1], 0, 0)), "state has shape (2,); expected"),
        (
            lambda p, b, d: b.add(([1.0, 2, 3], [1], [1, 2, 3], 0, 0)),
            "next_state 1; expected as many in the order (state, next_state, action",
        ),
        (
            lambda p, b, d: notes.ReplayBuffer(3, 1).add([1, 2, 3], [1, 2, 3], [1], 0, 0),
            "state has 3 numbers and next_state 1; expected as many in the order state, action, ne",
        ),
        (lambda p, b, d: p.train(b, -5), "iterations is -5; expected a whole number at least 0"),
        (lambda p, b, d: p.train(b, 5.5), "iterations is 5.5; expected a whole number at least"),
        (lambda p, b, d: notes.ReplayBuffer("abc"), "max_size is 'abc'"),  # type: ignore[arg-type]
        (lambda p, b, d: notes.ReplayBuffer(np.nan), "max_size is nan; expected a whole number"),
        (lambda p, b, d: notes.ReplayBuffer(-5), "max_size is -5; expected a whole number at le"),
        (lambda p, b, d: notes.ReplayBuffer(3, state_dim=3), "ReplayBuffer takes max_size, or sta"),
        (lambda p, b, d: notes.ReplayBuffer(size=3), "ReplayBuffer takes max_size, or state_dim"),
        (lambda p, b, d: notes.ReplayBuffer().state, "is empty; add transitions first"),
        (lambda p, b, d: notes.T3D(3, 1, 2.0, gamma=0.9), "T3D takes no 'gamma'; it takes discou"),
        (lambda p, b, d: notes.T3D(3, 2, [1.0, 2.0]), "the notes have one for all dimensions"),
        (lambda p, b, d: notes.T3D(3, 1, "x"), "max_action is 'x'; expected one positive number"),
        (lambda p, b, d: notes.ReplayBuffer(1, 2, 3, 4), "ReplayBuffer takes max_size, or state"),
        (lambda p, b, d: p.load("old", d), "old_actor.pth is a pickle, which T3D does not load"),
        (lambda p, b, d: p.load("none", d), "no agent at "),
    ],
)
def test_bad_input_is_named(wrong: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "old_actor.pth").write_bytes(b"")
    policy = notes.T3D(3, 1, 2.0, hidden=(4,))
    with pytest.raises(t3d.BadInput) as error:
        wrong(policy, filled(10), tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_swapped_first_transition_leaves_the_buffer_as_it_was() -> None:
    buffer = notes.ReplayBuffer()
    state, after, action, *rest = transitions(1)[0]
    with pytest.raises(t3d.BadInput):
        buffer.add((state, action, after, *rest))
    buffer.add((state, after, action, *rest))
    assert len(buffer) == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: t3d.ReplayBuffer(), t3d.BadInput),  # type: ignore[call-arg]
        (lambda: t3d.ReplayBuffer(max_size=1e6), t3d.BadInput),  # type: ignore[call-arg]
        (lambda: t3d.ReplayBuffer(17, 6), t3d.BadInput),  # type: ignore[call-arg]
        (lambda: t3d.ReplayBuffer(17, 6, 10**6), t3d.BadInput),
        (lambda: t3d.T3D(3, 1, 2.0), t3d.BadInput),
        (lambda: t3d.T3D(3, 1, 2.0, discount=0.9), t3d.BadInput),  # type: ignore[call-arg]
        (lambda: t3d.TD3, ImportError),
        (lambda: exec("from t3d import TD3"), ImportError),
    ],
)
def test_the_signatures_of_the_notes_on_t3d_itself_name_this_module(call: Any, error: Any) -> None:
    with pytest.raises(error, match=r"t3d\.notes\.\w+") as raised:
        call()
    assert "\n" not in str(raised.value)
