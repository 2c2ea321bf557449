"""Cases of training for the parity tests: agents, batches, and how two learners are compared."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, SupportsFloat, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st

from helpers.memories import filled_memory
from t3d import T3D, Batch, Config, FusedT3D, ReplayBuffer

Kind = TypeVar("Kind", bound=T3D)


class Learner(Protocol):
    """An agent, or what an agent is to agree with."""

    def update(self, batch: Batch, noise: torch.Tensor) -> Mapping[str, SupportsFloat]: ...

    def state_dict(self) -> Mapping[str, torch.Tensor]: ...


@dataclasses.dataclass(frozen=True)
class Case:
    state_dim: int = 3
    low: tuple[float, ...] = (-1.0, 0.0, -7.5)
    high: tuple[float, ...] = (1.0, 0.2, 20.0)
    done: float = 0.25  # the share of rows that are terminal
    rows: int = 24
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def config(self) -> Config:
        defaults = {"hidden": (12, 9), "learning_rate": 1e-3, "tau": 0.05, "seed": 3}
        return Config.from_dict({**defaults, "batch_size": self.rows, **self.knobs})

    def agent(self, kind: type[Kind], dtype: torch.dtype) -> Kind:
        return kind(self.state_dim, self.low, self.high, self.config(), dtype=dtype)

    def batches(self, dtype: torch.dtype) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Batches and noise, always the same, of numbers that float32 holds exactly."""
        random = np.random.default_rng(0)
        states, actions = (self.rows, self.state_dim), (self.rows, len(self.low))
        while True:
            fields = (
                random.normal(size=states),
                random.normal(size=states),
                random.uniform(self.low, self.high, actions),
                random.normal(size=self.rows),
                random.random(self.rows) < self.done,
                random.integers(1, 4, self.rows),
            )
            noise = random.standard_normal(actions, np.float32)
            batch = Batch(*(torch.from_numpy(np.float32(field)).to(dtype) for field in fields))
            yield batch, torch.from_numpy(noise).to(dtype)


def small_fused(**knobs: Any) -> FusedT3D:
    """A fused agent of two-dimensional states and one action."""
    return FusedT3D(2, [-1], [1], Config.from_dict({"hidden": (8,), "batch_size": 64, **knobs}))


def small_memory() -> ReplayBuffer:
    """A memory for it."""
    return filled_memory(64, state_dim=2)


CASES = {
    "plain": Case(),
    "one hidden layer": Case(knobs={"hidden": (16,)}),
    "four hidden layers": Case(knobs={"hidden": (10, 7, 8, 33)}),
    "one unit": Case(state_dim=1, low=(-2.0,), high=(2.0,), knobs={"hidden": (1,)}),
    "one row": Case(rows=1),
    "far from zero": Case(low=(100.0, -3.0), high=(101.0, -2.5)),
    "actor at every update": Case(knobs={"policy_freq": 1}),
    "actor at every third update": Case(knobs={"policy_freq": 3}),
    "all rows terminal": Case(done=1.0),
    "no row terminal": Case(done=0.0),
    "no smoothing": Case(knobs={"policy_noise": 0.0}),
    "the noise clip bites": Case(knobs={"policy_noise": 2.0, "noise_clip": 0.3}),
    "the action range bites": Case(knobs={"policy_noise": 5.0, "noise_clip": 10.0}),
    "targets are copies": Case(knobs={"tau": 1.0}),
    "targets are copied at times": Case(knobs={"target_every": 4}),
    "targets are copied between the actor's updates": Case(
        knobs={"target_every": 5, "policy_freq": 3}
    ),
    "targets stand still": Case(knobs={"tau": 1e-6}),
    "blind to the future": Case(knobs={"discount": 0.0}),
    "no discount": Case(knobs={"discount": 1.0}),
    "fast": Case(knobs={"learning_rate": 3e-2}),
}
# The knobs of the networks, and of how they learn. The schedules end within the updates of a test.
CASES |= {
    "networks of two sizes": Case(knobs={"actor_hidden": (5, 17), "critic_hidden": (20,)}),
    "a deeper actor": Case(knobs={"actor_hidden": (6, 5, 4)}),
    "elu": Case(knobs={"activation": "elu"}),
    "tanh": Case(knobs={"activation": "tanh"}),
    "norms in the critic": Case(knobs={"layer_norm": "critic"}),
    "norms in both": Case(knobs={"layer_norm": "both", "hidden": (20, 18, 33)}),
    "norms and elu": Case(rows=37, knobs={"layer_norm": "both", "activation": "elu"}),
    "norms and tanh": Case(knobs={"layer_norm": "critic", "activation": "tanh"}),
    "two rates": Case(knobs={"actor_learning_rate": 1e-4, "critic_learning_rate": 3e-3}),
    "one rate of its own": Case(knobs={"actor_learning_rate": 1e-2}),
    "a linear schedule": Case(
        knobs={"learning_rate_schedule": "linear", "steps": 40, "random_steps": 10}
    ),
    "a cosine schedule": Case(
        knobs={
            **{"learning_rate_schedule": "cosine", "steps": 110, "random_steps": 10},
            **{"learning_rate_final": 0.2, "critic_learning_rate": 2e-3, "updates_per_step": 0.7},
        }
    ),
    "weight decay": Case(knobs={"weight_decay": 0.3}),
    "gradients are clipped": Case(knobs={"gradient_clip": 0.1}),
    "some gradients are clipped": Case(knobs={"gradient_clip": 1.0, "policy_freq": 1}),
    "Huber's loss": Case(knobs={"sampling": "lap", "reward_scale": 3.0}),
    "all of it": Case(
        rows=37,
        knobs={
            **{"actor_hidden": (7, 9), "critic_hidden": (18,), "gradient_clip": 0.05},
            **{"activation": "elu", "layer_norm": "both", "weight_decay": 0.1},
            **{"learning_rate_schedule": "linear", "learning_rate_final": 0.1, "steps": 100},
            **{"random_steps": 0, "actor_learning_rate": 3e-3, "sampling": "lap"},
        },
    ),
}
# Sizes that matter to panels and tiles.
PANEL_CASES = {
    "full panels": Case(rows=32),
    "the paper's batch": Case(rows=100),
    "full tiles": Case(knobs={"hidden": (48, 96)}),
    "many actions": Case(low=(-1.0,) * 17, high=(0.5,) * 17, state_dim=40),
}


@st.composite
def any_case(draw: st.DrawFn, largest: int) -> Case:
    """Any sizes, up to about `largest`, and any knobs of the update."""
    numbers, widths = st.floats(-10, 10, width=32), st.floats(0.125, 20, width=32)
    bounds = draw(st.lists(st.tuples(numbers, widths), min_size=1, max_size=max(3, largest // 4)))
    knobs = {
        "hidden": st.lists(st.integers(1, largest), min_size=1, max_size=4),
        "learning_rate": st.floats(1e-4, 1e-2),
        "discount": st.floats(0, 1),
        "tau": st.floats(1e-3, 1),
        "target_every": st.sampled_from([0, 0, 1, 2, 3]),
        "policy_noise": st.floats(0, 2),
        "noise_clip": st.floats(0, 2),
        "policy_freq": st.integers(1, 3),
        "actor_hidden": st.lists(st.integers(1, largest), max_size=3),
        "critic_hidden": st.lists(st.integers(1, largest), max_size=3),
        "activation": st.sampled_from(["relu", "elu", "tanh"]),
        "layer_norm": st.sampled_from(["none", "critic", "both"]),
        "gradient_clip": st.sampled_from([0.0, 0.01, 1.0]),
        "sampling": st.sampled_from(["uniform", "lap"]),
        "weight_decay": st.sampled_from([0.0, 0.01, 1.0]),
        "learning_rate_schedule": st.sampled_from(["constant", "linear", "cosine"]),
        "steps": st.integers(1, 20),
        "random_steps": st.integers(0, 10),
        "seed": st.integers(0, 2**32 - 1),
    }
    drawn = draw(st.fixed_dictionaries(knobs))
    if min(map(min, Config.from_dict(drawn).hidden_layers.values())) < 4:
        # The gradient of a LayerNorm of one or two units is 0, of which Adam makes a step by the
        # sign of its rounding.
        drawn["layer_norm"] = "none"
    return Case(
        state_dim=draw(st.integers(1, largest)),
        low=tuple(low for low, _ in bounds),
        high=tuple(low + width for low, width in bounds),
        done=draw(st.floats(0, 1)),
        rows=draw(st.integers(1, 2 * largest)),
        knobs=drawn,
    )


def assert_same_state(learner: Learner, expected: Learner, tolerance: float) -> None:
    """Compare all tensors; each may differ by a share of the expected one's norm.

    Those of a sampler do not count: an oracle has none.
    """
    mine, theirs = (
        {k: each for k, each in one.state_dict().items() if not k.startswith("sampler.")}
        for one in (learner, expected)
    )
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        error = (mine[name].double() - value.double()).norm()
        assert error <= tolerance * value.double().norm(), (name, float(error))


def assert_same_measures(
    measures: Mapping[str, SupportsFloat], expected: Mapping[str, SupportsFloat], tolerance: float
) -> None:
    assert measures.keys() == expected.keys()
    for name, value in expected.items():
        # Values of either sign may have a mean near 0; it is as exact as they are.
        near = {"rel_tol": tolerance, "abs_tol": tolerance / 100}
        assert math.isclose(float(measures[name]), float(value), **near), name


def assert_same_training(
    case: Case,
    learners: tuple[Learner, Learner],
    dtype: torch.dtype,
    tolerance: float,
    updates: int,
) -> None:
    """Give two learners the same batches and noise; the second is the one to agree with."""
    learner, expected = learners
    for batch, noise in itertools.islice(case.batches(dtype), updates):
        measures = learner.update(batch, noise), expected.update(batch, noise)
        assert_same_measures(*measures, tolerance)
    assert_same_state(learner, expected, tolerance)
