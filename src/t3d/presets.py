"""Named sets of knobs: what works for which environment, and why. A file can be one, too.

The knobs of a file lie over those of the environment's own preset:

why = "what it is for"
env = "Hopper-v5"      # optional: for commands that name no environment

[knobs]
tau = 0.01
hidden = [400, 300]
"""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t3d.base import files
from t3d.base.arguments import words
from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.base.text import did_you_mean
from t3d.config import Config

_MAXIMUM_FILE = 2**20  # bytes


@dataclass(frozen=True)
class Preset:
    """Some knobs, and the reason for them."""

    why: str
    knobs: Mapping[str, Any]
    env: str | None = None


# For tasks that a small network solves: cheap updates, large steps, a shorter horizon.
_SMALL = {
    "random_steps": 1_000,
    "hidden": (64, 64),
    "batch_size": 128,
    "learning_rate": 1e-3,
    "discount": 0.98,
    "tau": 0.01,
}

# For the clock: steps of simulators like MuJoCo's are cheap, and updates are not.
_QUICK = {"hidden": (128, 128), "batch_size": 128, "updates_per_step": 0.25, "overlap": True}

_LONG_START = "many random steps first, as in the author's later code"

PRESETS: dict[str, Preset] = {
    "default": Preset("T3D's own defaults, for any environment", {}),
    "paper-2018": Preset(
        "the paper's settings for HalfCheetah and Ant; the other tasks had 1,000 random steps",
        {"batch_size": 100, "hidden": (400, 300), "learning_rate": 1e-3},
    ),
    "author-2020": Preset(
        "the settings of the author's later code, which most other libraries use",
        {"random_steps": 25_000},
    ),
    "td7": Preset(
        "TD7 as its authors train it: the most from every step, at six times the work per update",
        {"agent": "td7", "random_steps": 25_000},
    ),
    "td7-slim": Preset(
        "TD7 with half the units: an update takes a quarter of the time",
        {"agent": "td7", "hidden": (128, 128), "embedding": 128},
    ),
    "fast": Preset(
        "TD3 for the clock: small networks, and four steps of play for each update",
        {
            **_QUICK,
            "num_envs": 16,
            "learning_rate": 1e-3,
            "eval_every": 50_000,
            "threads": 1,  # the other core plays meanwhile
        },
    ),
    "td7-fast": Preset(
        "TD7 for the clock: the least time to a score that was measured here",
        {**_QUICK, "agent": "td7", "embedding": 128, "num_envs": 8, "eval_every": 20_000},
    ),
    "Pendulum-v1": Preset(
        "small and quick, with more noise to discover the swing: solved in a minute on a laptop",
        {
            **_SMALL,
            "steps": 10_000,
            "exploration_noise": 0.2,
            "eval_every": 1_000,
            "log_every": 500,
        },
    ),
    "Pendulum-v1-pixels": Preset(
        "small grey images, three to show the speed; no random shifts, as the pivot never moves",
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
        "small and quick; few random steps, as random play falls over and teaches little",
        {**_SMALL, "steps": 30_000, "eval_every": 1_000},
    ),
    "InvertedDoublePendulum-v5": Preset(
        "small and quick: balances within 100,000 steps, about a minute",
        {**_SMALL, "steps": 100_000},
    ),
    "Reacher-v5": Preset(
        "small and quick: -5 or better within 100,000 steps, about a minute",
        {**_SMALL, "steps": 100_000},
    ),
    "BipedalWalker-v3": Preset(
        "more play per update; rewards scaled down, as a fall costs 100; fresh environments",
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
        "more play per update, and more noise, or it learns to hover instead of landing",
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
        "small grey images, three to show the speed; each action lasts four frames",
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
    """The preset's name and its config for an environment.

    "auto" chooses the preset that is named like the environment, or the defaults. A file's knobs
    lie over those. If `env` is None, it is the preset's own environment, or Pendulum-v1.
    """
    if is_file(preset):
        chosen = read(preset)
        env = env or chosen.env or Config().env
        usual = PRESETS[preset_for(env) or "default"].knobs
        return preset, Config(env=env, **{**usual, **chosen.knobs})
    env = env or Config().env
    name = (preset_for(env) or "default") if preset == "auto" else preset_for(preset)
    if name is None:
        names = ["auto", *PRESETS]
        expected = f"; expected one of: {', '.join(names)}, or a file that ends in .toml"
        raise BadInput(f"no preset is called {preset!r}{did_you_mean(preset, names) or expected}")
    return name, Config(env=env, **PRESETS[name].knobs)


def preset_for(name: str) -> str | None:
    """The preset of this name, or of this environment; Pendulum is Pendulum-v1."""
    if name in PRESETS:
        return name
    return next((each for each in PRESETS if re.fullmatch(rf"{re.escape(name)}-v\d+", each)), None)


def train_command(config: Config) -> str:
    """The command that trains with this config: its knobs, where they differ from the preset."""
    usual = vars(resolve(config.env)[1])
    flags = [flag(name, value) for name, value in vars(config).items() if value != usual[name]]
    return " ".join(["t3d train", shlex.quote(config.env), *flags])


def is_file(preset: str) -> bool:
    """Whether this is the path of a preset's file, not a name."""
    return preset not in PRESETS and (preset.endswith(".toml") or Path(preset).name != preset)


def read(path: str) -> Preset:
    """The preset of a file, checked."""
    try:
        table = tomllib.loads(files.read(Path(path), _MAXIMUM_FILE).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"preset {path} is not TOML: {error}") from error
    parts = ("why", "env", "knobs")
    for name in table:
        if name not in parts:
            hint = did_you_mean(name, parts) or "; knobs go below a line [knobs]"
            raise BadInput(f"preset {path} has an unknown part {name!r}{hint}")
    preset = Preset(table.get("why", ""), table.get("knobs", {}), table.get("env"))
    if not isinstance(preset.why, str) or not preset.why:
        raise BadInput(f'preset {path} has no why; expected a line such as why = "for a light arm"')
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
    """A knob's value as TOML. Numbers, strings, booleans and lists are spelled alike in JSON."""
    value = words(value) if isinstance(value, dict) else value  # TOML has no null
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
