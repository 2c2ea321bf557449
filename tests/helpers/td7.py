"""Cases of training for the parity tests of TD7."""

from typing import Any

from hypothesis import strategies as st

from helpers.training import Case

SMALL = {"embedding": 10, "target_every": 4}


def case(**changes: Any) -> Case:
    """A small case: fields of `Case`, and knobs."""
    own = {name: changes.pop(name) for name in ("rows", "low", "high", "done") if name in changes}
    return Case(knobs=SMALL | changes, **own)


CASES = {
    "plain": case(),
    "never copied": case(target_every=250),
    "copied at once": case(target_every=1),
    "copied between two updates of the actor": case(target_every=3),
    "one row": case(rows=1),
    "one hidden layer": case(hidden=(16,)),
    "four hidden layers": case(hidden=(10, 7, 8, 33)),
    "encoders of their own": case(encoder_hidden=(9, 8, 7), embedding=17),
    "networks of two sizes": case(actor_hidden=(5, 17), critic_hidden=(20,)),
    "far from zero": case(low=(100.0, -3.0), high=(101.0, -2.5)),
    "actor at every update": case(policy_freq=1),
    "actor at every third update": case(policy_freq=3),
    "all rows terminal": case(done=1.0),
    "no row terminal": case(done=0.0),
    "the noise clip bites": case(policy_noise=2.0, noise_clip=0.3),
    "the action range bites": case(policy_noise=5.0, noise_clip=10.0),
    "squared loss": case(sampling="uniform"),
    "large errors": case(discount=1.0, learning_rate=3e-2, done=0.0),
    "two rates": case(actor_learning_rate=1e-4, critic_learning_rate=3e-3),
    "a schedule": case(learning_rate_schedule="linear", steps=40, random_steps=0),
    "gradients are clipped": case(gradient_clip=0.05),
    "weight decay": case(weight_decay=0.1),
}


@st.composite
def any_td7_case(draw: st.DrawFn, largest: int) -> Case:
    """Any sizes, up to about `largest`, and any knobs of the update.

    A single unit divided by its size is its sign: its gradient is rounding, so there are two.
    """
    widths = st.lists(st.integers(2, largest), min_size=1, max_size=3)
    knobs = {
        "hidden": widths,
        "encoder_hidden": widths,
        "embedding": st.integers(2, largest),
        "target_every": st.integers(1, 5),
        "learning_rate": st.floats(1e-4, 1e-2),
        "discount": st.floats(0, 1),
        "policy_noise": st.floats(0, 2),
        "noise_clip": st.floats(0, 2),
        "policy_freq": st.integers(1, 3),
        "gradient_clip": st.sampled_from([0.0, 0.01, 1.0]),
        "sampling": st.sampled_from(["auto", "uniform", "lap"]),
        "seed": st.integers(0, 2**32 - 1),
    }
    return Case(
        state_dim=draw(st.integers(1, largest)),
        done=draw(st.floats(0, 1)),
        rows=draw(st.integers(1, 2 * largest)),
        knobs=draw(st.fixed_dictionaries(knobs)),
    )
