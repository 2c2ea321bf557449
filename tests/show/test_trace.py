"""The trace, against the update that it watches and against an independent answer."""

import copy
import inspect

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.memories import filled_memory
from t3d import T3D, Config, ReplayBuffer
from t3d.show.trace import Trace, step_lines, trace

CONFIG = Config(hidden=(8,), batch_size=8, learning_rate=0.01, tau=0.1)


def agent_and_memory() -> tuple[T3D, ReplayBuffer]:
    low, high = [-1, -1], [1, 1]
    return T3D(3, low, high, CONFIG), filled_memory(60, 3, low, high)


@pytest.fixture(scope="module")
def traced() -> tuple[T3D, Trace, T3D, Trace]:
    """Two updates, with the agent as it was before each."""
    agent, memory = agent_and_memory()
    first = copy.deepcopy(agent)
    one = trace(agent, memory)
    second = copy.deepcopy(agent)
    return first, one, second, trace(agent, memory)


def test_a_watched_update_is_the_update() -> None:
    watched, memory = agent_and_memory()
    other = copy.deepcopy(watched)
    for _ in range(2):
        trace(watched, memory)
    other.train(memory, 2)
    mine, theirs = watched.state_dict(), other.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_every_line_of_the_page_has_its_step() -> None:
    lines, first = inspect.getsourcelines(T3D.update)
    steps = [step_lines().get(number) for number, _ in enumerate(lines, first)]
    assert sorted({step for step in steps if step}) == list(range(5, 16))
    assert set(step_lines().values()) == set(range(4, 16))


def test_the_values_are_those_of_the_algorithm(traced: tuple[T3D, Trace, T3D, Trace]) -> None:
    """Recomputed with NumPy from the batch, the noise and the weights before."""
    _, _, agent, seen = traced
    assert seen.number == 2
    batch, drawn = seen.value(4, "batch"), seen.value(4, "noise").numpy()
    weights = {key: value.numpy().astype(float) for key, value in agent.state_dict().items()}

    def forward(name: str, inputs: np.ndarray) -> np.ndarray:
        hidden = inputs @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"]
        answer = np.maximum(hidden, 0) @ weights[f"{name}.2.weight"].T
        total: np.ndarray = answer + weights[f"{name}.2.bias"]
        return total

    def close(name: str, step: int, expected: np.ndarray) -> None:
        assert np.allclose(seen.value(step, name).numpy(), expected, atol=1e-5), (step, name)

    state, next_state, action, reward, done, _ = (part.numpy().astype(float) for part in batch)
    next_action = np.tanh(forward("actor_target.layers", next_state))
    close("next_action", 5, next_action)
    noise = np.clip(drawn * 0.2, -0.5, 0.5)
    close("noise", 6, noise)
    next_action = np.clip(next_action + noise, -1, 1)
    close("next_action", 6, next_action)
    inputs = np.concatenate([next_state, next_action], axis=1)
    twins = [forward(f"critic_target.twin{i}", inputs)[:, 0] for i in (1, 2)]
    close("target_Q1", 7, twins[0])
    close("target_Q2", 7, twins[1])
    close("target_Q", 8, np.minimum(*twins))
    target = reward + 0.99 * (1 - done) * np.minimum(*twins)
    close("target_Q", 9, target)
    inputs = np.concatenate([state, action], axis=1)
    predicted = [forward(f"critic.twin{i}", inputs)[:, 0] for i in (1, 2)]
    close("Q1", 10, predicted[0])
    close("Q2", 10, predicted[1])
    loss = sum(np.mean((q - target) ** 2) for q in predicted)
    assert seen.value(11, "critic_loss").item() == pytest.approx(loss, rel=1e-5)
    # The critic has moved by then, so the actor's loss is of the weights after step 12.
    weights |= {f"critic.{k}": v.numpy().astype(float) for k, v in _after(seen, "critic").items()}
    chosen = np.tanh(forward("actor.layers", state))
    values = forward("critic.twin1", np.concatenate([state, chosen], axis=1))
    assert seen.value(13, "actor_loss").item() == pytest.approx(-values.mean(), rel=1e-5)


def _after(traced: Trace, network: str) -> dict[str, Tensor]:
    change = traced.change(network)
    assert change is not None
    return change.after


def test_the_rows_are_those_that_were_drawn(traced: tuple[T3D, Trace, T3D, Trace]) -> None:
    _, one, _, two = traced
    _, memory = agent_and_memory()
    for seen in (one, two):
        assert seen.rows is not None
        assert torch.equal(seen.value(4, "batch").reward, memory.batch(seen.rows).reward)


def test_every_second_update_moves_the_actor_and_the_targets(
    traced: tuple[T3D, Trace, T3D, Trace],
) -> None:
    first, one, second, two = traced
    assert [change.network for change in one.changes] == ["critic"]
    networks = ["critic", "actor", "actor_target", "critic_target"]
    assert [change.network for change in two.changes] == networks
    assert [step_lines()[change.line] for change in two.changes] == [12, 13, 14, 15]
    for change in two.changes:
        before = dict(getattr(second, change.network).named_parameters())
        assert all(torch.equal(change.before[name], before[name]) for name in before)
    for name in ("actor", "critic"):
        target, model = two.change(f"{name}_target"), two.change(name)
        assert target is not None
        assert model is not None
        assert model.gradient.keys() == model.after.keys()
        for key in target.after:
            moved = 0.9 * target.before[key] + 0.1 * model.after[key]
            assert torch.allclose(target.after[key], moved, atol=1e-6)
    assert first.updates == 0
