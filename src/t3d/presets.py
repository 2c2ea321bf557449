"""Named sets of knobs: what works for which environment, and why. Files of yours are presets too.

why = "what it is for"
env = "Hopper-v5"      # where nobody says which; may be left out

[knobs]
tau = 0.01
hidden = [400, 300]
"""

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.base.text import did_you_mean
from t3d.config import Config

_LARGEST_FILE = 2**20


@dataclass(frozen=True)
class Preset:
    """Some knobs, and the reason for them."""

    why: str
    knobs: Mapping[str, Any]
    env: str | None = None


# For tasks that a small network masters: cheap updates, large steps, a nearer horizon.
_SMALL = {
    "random_steps": 1_000,
    "hidden": (64, 64),
    "batch_size": 128,
    "learning_rate": 1e-3,
    "discount": 0.98,
    "tau": 0.01,
}

_LONG_START = "a long random start, as in the author's later code"

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
        "small and quick: stands within 100,000 steps, a minute or so",
        {**_SMALL, "steps": 100_000},
    ),
    "Reacher-v5": Preset(
        "small and quick: -5 or better within 100,000 steps, a minute or so",
        {**_SMALL, "steps": 100_000},
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
    "Hopper-v5": Preset(_LONG_START, {"random_steps": 25_000}),
    "Walker2d-v5": Preset(_LONG_START, {"random_steps": 25_000}),
}


def resolve(env: str | None, preset: str = "auto") -> tuple[str, Config]:
    """The preset's name and its config for an environment; None is the preset's own, if it has one.

    "auto" takes the preset that is named like the environment, or the defaults.
    """
    if preset == "auto":
        named = env or Config().env
        preset = named if named in PRESETS else "default"
    if is_file(preset):
        found = read(preset)
    elif preset in PRESETS:
        found = PRESETS[preset]
    else:
        known = ", ".join(["auto", *PRESETS])
        advice = did_you_mean(preset, ["auto", *PRESETS]) or f"; expected one of: {known}"
        raise BadInput(f"no preset is called {preset!r}{advice}, or a file that ends in .toml")
    return preset, Config(env=env or found.env or Config().env, **found.knobs)


def train_command(config: Config) -> str:
    """What to type for a run with this config: the knobs that are not its environment's preset."""
    usual = vars(resolve(config.env)[1])
    flags = [flag(name, value) for name, value in vars(config).items() if value != usual[name]]
    return " ".join(["t3d train", shlex.quote(config.env), *flags])


def flag(knob: str, value: Any) -> str:
    """A knob as it is typed."""
    name = knob.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, tuple):
        return " ".join([f"--{name}", *(str(item) for item in value)])
    return f"--{name} {shlex.quote(str(value))}"


def is_file(preset: str) -> bool:
    """Whether this is the path of a preset, and not a name."""
    return preset not in PRESETS and (preset.endswith(".toml") or Path(preset).name != preset)


def read(path: str) -> Preset:
    """The preset of a file, checked."""
    try:
        said = tomllib.loads(files.read(Path(path), _LARGEST_FILE).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"preset {path} is not TOML: {error}") from error
    parts = ("why", "env", "knobs")
    for name in said:
        if name not in parts:
            hint = did_you_mean(name, parts) or "; knobs go below a line [knobs]"
            raise BadInput(f"preset {path} has an unknown part {name!r}{hint}")
    preset = Preset(said.get("why", ""), said.get("knobs", {}), said.get("env"))
    if not isinstance(preset.why, str) or not preset.why:
        raise BadInput(f'preset {path} has no why; expected a line like why = "for a light arm"')
    if not isinstance(preset.knobs, dict):
        raise BadInput(f"preset {path}: knobs is {preset.knobs!r}; expected a table, [knobs]")
    if "env" in preset.knobs:
        raise BadInput(f"preset {path} has env among the knobs; it goes above [knobs]")
    try:
        Config.from_dict({**preset.knobs, **({} if preset.env is None else {"env": preset.env})})
    except T3DError as error:
        raise BadInput(f"preset {path}: {error}") from error
    return preset


def to_toml(preset: Preset) -> str:
    """The text of a file that `read` reads."""
    head = {"why": preset.why} | ({} if preset.env is None else {"env": preset.env})
    lines = [f"{name} = {_toml(value)}" for name, value in head.items()]
    lines += ["", "[knobs]", *(f"{name} = {_toml(value)}" for name, value in preset.knobs.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value of a knob. What JSON has no other word for than TOML is all that they need."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
