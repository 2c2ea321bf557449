"""One traced update as data for the page of `t3d explain`: the result of each step."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.show.html import numbers, packed
from t3d.show.trace import Change, Trace

ROWS = 8  # of a batch that are shown
_CORNER = 16  # rows and columns of a weight matrix that are shown
_STRIP = 12  # transitions around a sampled one that are shown
_FEW = 12  # numbers of a parameter that are shown, where targets follow
_MAXIMUM_STATE = 1000  # numbers of a state that go into the page; of a larger one, the first 24

Data = dict[str, Any]


def update_data(before: T3D, traced: Trace) -> Data:
    """One update: what each step computed, for the first rows of the batch."""
    batch = traced.value(4, "batch")

    def value(step: int, name: str) -> Any:
        return _first(traced.value(step, name))

    critic, actor = traced.change("critic"), traced.change("actor")
    assert critic is not None
    data: Data = {
        "number": traced.number,
        "batch": {name: _first(getattr(batch, name)) for name in batch._fields},
        "stored": _stored(before, traced),
        "noise": value(4, "noise"),
        "next_action": value(5, "next_action"),
        "clipped": value(6, "noise"),
        "smoothed": value(6, "next_action"),
        "target_Q1": value(7, "target_Q1"),
        "target_Q2": value(7, "target_Q2"),
        "smaller": value(8, "target_Q"),
        "target": value(9, "target_Q"),
        "Q1": value(10, "Q1"),
        "Q2": value(10, "Q2"),
        "critic_loss": float(traced.value(11, "critic_loss")),
        "critic": _change(critic),
        "actor": None,
    }
    if actor is not None:
        data |= {
            "actor_loss": float(traced.value(13, "actor_loss")),
            "actor": _change(actor),
            "climb": _climb(before, critic, actor, batch.state[:ROWS].detach()),
            "follow": {
                name: _follow(traced.change(f"{name}_target"), traced.change(name))
                for name in ("actor", "critic")
            },
        }
    return data


def _first(values: Tensor) -> Any:
    """The first rows of a batch; of very long ones, their beginning."""
    rows = values.detach()[:ROWS]
    is_long = rows.ndim == 2 and rows.shape[1] > _MAXIMUM_STATE
    return numbers(rows[:, :24] if is_long else rows)


def _stored(before: T3D, traced: Trace) -> Data | None:
    """States as they were stored, for pictures, if the networks see them normalised."""
    if not before.config.normalize_observations or before.layout.images:
        return None
    stored = traced.value(4, "stored")
    return {name: _first(getattr(stored, name)) for name in ("state", "next_state")}


def _change(change: Change) -> list[Data]:
    """Each parameter before and after, with its gradient; a corner of it where it is large."""
    parameters = []
    for name, before in change.before.items():
        corner = tuple(slice(_CORNER) for _ in before.shape[:2])
        parts = before, change.gradient[name], change.after[name]
        # Of a convolution, one pixel of the kernel.
        cut = [part[corner].reshape(*part[corner].shape[:2], -1)[..., 0] for part in parts]
        flat = [part if before.ndim > 1 else part.reshape(1, -1) for part in cut]
        values = {k: numbers(part) for k, part in zip(("before", "gradient", "after"), flat)}
        parameters.append({"name": name, "shape": list(before.shape), **values})
    return parameters


def _follow(target: Change | None, model: Change | None) -> list[Data]:
    """The first few numbers of each parameter of a target, and of the model that it follows."""
    assert target is not None
    assert model is not None
    parameters = []
    for name, before in target.before.items():
        parts = before, target.after[name], model.after[name]
        few = [numbers(part.reshape(-1)[:_FEW]) for part in parts]
        parameters.append({"name": name, **dict(zip(("before", "after", "model"), few))})
    return parameters


@torch.no_grad()
def _climb(before: T3D, critic: Change, actor: Change, state: Tensor) -> Data:
    """The first critic over the first dimension of the action, and the actor before and after."""
    judge, player = copy.deepcopy(before.critic), copy.deepcopy(before.actor)
    judge.load_state_dict(critic.after)  # step 12 is done by then
    old = player(state)
    player.load_state_dict(actor.after)
    new = player(state)
    grid = torch.linspace(float(before.low[0]), float(before.high[0]), 61, dtype=before.dtype)
    curves = []
    for row, action in zip(state, old):
        actions = action.repeat(len(grid), 1)
        actions[:, 0] = grid
        curves.append(numbers(judge.Q1(row.repeat(len(grid), 1), actions)))
    return {
        "grid": numbers(grid),
        "curves": curves,
        "before": numbers(old),
        "after": numbers(new),
        "value_before": numbers(judge.Q1(state, old)),
        "value_after": numbers(judge.Q1(state, new)),
    }


def example_row(update: Data) -> int:
    """The row to follow: one in which each step visibly does something."""
    disagreement = np.abs(np.subtract(update["target_Q1"], update["target_Q2"]))
    noise = np.abs([row[0] for row in update["clipped"]])
    low, high = (end(update["climb"]["grid"]) for end in (min, max))
    near_a_limit = np.array(
        [
            max(abs((2 * row[0] - low - high) / (high - low)) for row in rows)
            for rows in zip(update["smoothed"], update["climb"]["before"])
        ]
    )
    visible = disagreement / (disagreement.max() or 1) + noise / (noise.max() or 1)
    return int(np.argmax(visible - 4 * np.maximum(near_a_limit - 0.8, 0)))


def memory_strip(memory: ReplayBuffer, traced: Trace, agent: T3D, example: int) -> Data:
    """Successive transitions of one environment, around one that was sampled."""
    assert traced.rows is not None
    oldest, every = memory.added - memory.size, memory.num_envs  # environments take turns
    ages = (traced.rows[:ROWS] - oldest) % memory.room  # from the oldest on
    before, env = divmod(int(ages[example]), every)
    length = 1 + (memory.size - 1 - env) // every
    count = min(_STRIP, length)
    start = max(0, min(before - _STRIP // 2, length - count))
    shown = env + every * np.arange(start, start + count)
    batch = memory.batch((oldest + shown) % memory.room)
    state = batch.state.numpy()
    if agent.layout.images:
        state = np.zeros((count, 0), np.float32)
    return {
        "size": memory.size,
        "sampled": [int(age) for age in ages],
        "shown": [int(age) for age in shown],
        "state": numbers(state[:, :12]),
        "action": numbers(batch.action),
        "reward": numbers(batch.reward),
    }


class Networks:
    """Networks for the page to compute with; what is equal in both updates is stored once."""

    def __init__(self) -> None:
        self.distinct: list[Any] = []

    def add(self, *networks: torch.nn.Module) -> int:
        """Add the networks of an update; returns their place in the list."""
        layers = [_layers(network) for network in networks]
        if layers not in self.distinct:
            self.distinct.append(layers)
        return self.distinct.index(layers)


def _layers(network: torch.nn.Module) -> list[Data]:
    """The linear layers of a network."""
    return [
        {"weight": packed(layer.weight.detach()), "bias": packed(layer.bias.detach())}
        for layer in network.modules()
        if isinstance(layer, torch.nn.Linear)
    ]
