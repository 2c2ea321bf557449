"""Named sets of knobs: what works for which environment, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t3d.config import Config, did_you_mean
from t3d.errors import T3DError


@dataclass(frozen=True)
class Preset:
    """Some knobs, and the reason for them."""

    why: str
    knobs: Mapping[str, Any]


# For tasks that a small network masters: cheap updates, large steps, a nearer horizon.
_SMALL = {
    "random_steps": 1_000,
    "hidden": (64, 64),
    "batch_size": 128,
    "learning_rate": 1e-3,
    "discount": 0.98,
    "tau": 0.01,
}

PRESETS: dict[str, Preset] = {
    "default": Preset("T3D's own defaults, for any environment", {}),
    "paper-2018": Preset(
        "the paper's settings for HalfCheetah and Ant; for the rest it had 1,000 random steps",
        {"batch_size": 100, "hidden": (400, 300), "learning_rate": 1e-3},
    ),
    "author-2020": Preset(
        "the settings of the author's later code, for comparisons with most peers",
        {"random_steps": 25_000},
    ),
    "Pendulum-v1": Preset(
        "small and quick, with more noise to find the swing: learns within a minute on a laptop",
        {
            **_SMALL,
            "steps": 10_000,
            "exploration_noise": 0.2,
            "eval_every": 1_000,
            "log_every": 500,
        },
    ),
    "Pendulum-v1-pixels": Preset(
        "from small grey images, three of them to see the speed; unmoved, as the pivot never moves",
        {
            **_SMALL,
            "pixels": True,
            "grey": True,
            "image_size": 32,
            "frame_stack": 3,
            "image_shift": 0,
            "action_repeat": 2,
            "steps": 20_000,
            "hidden": (128, 128),
            "batch_size": 64,
            "tau": 0.02,
            "reward_scale": 0.1,
            "exploration_noise": 0.3,
            "capacity": 100_000,
            "eval_every": 1_000,
            "log_every": 500,
        },
    ),
    "InvertedPendulum-v5": Preset(
        "small and quick; a short random start, as random play falls over and teaches little",
        {**_SMALL, "steps": 30_000, "eval_every": 1_000},
    ),
    "InvertedDoublePendulum-v5": Preset(
        "a short random start, as in the paper",
        {"steps": 100_000, "random_steps": 1_000},
    ),
    "Reacher-v5": Preset(
        "a short random start, as in the paper",
        {"steps": 100_000, "random_steps": 1_000},
    ),
    "BipedalWalker-v3": Preset(
        "many tries for each update; small rewards, as a fall costs 100; environments made anew",
        {
            "steps": 400_000,
            "num_envs": 8,
            "updates_per_step": 0.25,
            "random_steps": 20_000,
            "n_step": 3,
            "reward_scale": 0.1,
            "exploration_noise": 0.2,
            "remake_envs": True,
            "eval_every": 20_000,
        },
    ),
    "LunarLanderContinuous-v3": Preset(
        "many tries for each update, and more noise, or it learns to hover instead of to land",
        {
            **_SMALL,
            "steps": 300_000,
            "num_envs": 8,
            "updates_per_step": 0.25,
            "random_steps": 20_000,
            "hidden": (128, 128),
            "n_step": 3,
            "discount": 0.99,
            "tau": 0.005,
            "exploration_noise": 0.2,
            "eval_every": 20_000,
        },
    ),
    "CarRacing-v3": Preset(
        "small grey images, three of them to see the speed; each action for four frames",
        {
            "steps": 25_000,
            "random_steps": 1_000,
            "grey": True,
            "image_size": 48,
            "frame_stack": 3,
            "image_shift": 2,
            "action_repeat": 4,
            "batch_size": 64,
            "learning_rate": 5e-4,
            "n_step": 3,
            "discount": 0.98,
            "tau": 0.01,
            "reward_scale": 0.1,
            "exploration_noise": 0.3,
            "exploration_final": 0.1,
            "exploration_steps": 15_000,
            "capacity": 100_000,
            "eval_every": 2_500,
            "eval_episodes": 5,
        },
    ),
    "Hopper-v5": Preset("a short random start, as in the paper", {"random_steps": 1_000}),
    "Walker2d-v5": Preset("a short random start, as in the paper", {"random_steps": 1_000}),
}


def resolve(env: str, preset: str = "auto") -> tuple[str, Config]:
    """The preset's name and its config for an environment.

    "auto" takes the preset that is named like the environment, or the defaults.
    """
    if preset == "auto":
        preset = env if env in PRESETS else "default"
    if preset not in PRESETS:
        known = ", ".join(["auto", *PRESETS])
        advice = did_you_mean(preset, ["auto", *PRESETS]) or f"; expected one of: {known}"
        raise T3DError(f"no preset is called {preset!r}{advice}")
    return preset, Config(env=env, **PRESETS[preset].knobs)
