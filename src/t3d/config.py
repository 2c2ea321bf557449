"""Every knob of T3D, once: its name, default, range and one line of help.

The command line, the checks, the run folder and the docs all read this table. To add a knob,
add a field here and use it; `tests/test_knobs.py` then asks for proof that it does something.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from t3d.base.errors import BadInput
from t3d.base.text import did_you_mean


@dataclass(frozen=True)
class Span:
    """Where `t3d tune` looks for a number: from low to high, evenly or evenly in its logarithm."""

    low: float
    high: float
    log: bool = False


def _knob(
    default: Any,
    help: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    search: Span | tuple[Any, ...] | None = None,
) -> Any:
    """A field of `Config` with its range: `least <= value <= most` and `value > above`.

    `search` is where `t3d tune` looks for a better value, a span or some choices.
    """
    bounds = {"least": least, "above": above, "most": most}
    return dataclasses.field(default=default, metadata={"help": help, "search": search, **bounds})


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of one training run. Frozen, and passed whole."""

    env: str = _knob("Pendulum-v1", "Gymnasium id, module:EnvId, or module:callable")
    steps: int = _knob(1_000_000, "environment steps to train for", least=1, most=10**12)
    seed: int = _knob(0, "seed of every random stream of the run", least=0, most=2**32 - 1)

    # How to play.
    num_envs: int = _knob(1, "environments that play at once", least=1, most=4096)
    collectors: int | None = _knob(
        None,
        "Ray collectors that play beside the learner, num_envs each; left out, it plays here",
        least=1,
        most=10_000,
    )
    staleness: int = _knob(
        100,
        "steps that each environment of a collector may be ahead of learning; 0 plays in step",
        least=0,
        most=10**6,
    )
    ray: str = _knob("local", "Ray cluster for them: its address, auto, or local to start one here")
    collector_cpus: float = _knob(
        1.0, "CPUs of the cluster that each of them takes", above=0, most=1024
    )
    env_backend: Literal["inline", "processes", "envpool"] = _knob(
        "inline", "where environments play: here, each in a process, or in EnvPool, if it has them"
    )
    env_deadline: float = _knob(
        60.0, "seconds an environment's process may take to answer; 0 for any", least=0, most=10**9
    )
    env_restarts: int = _knob(
        10, "times the process of each environment is restarted if it dies", least=0, most=10**9
    )
    remake_envs: bool = _knob(
        False, "make environments anew for every episode; for those that remember earlier ones"
    )
    action_repeat: int = _knob(
        1, "times that each action is played, as one step", least=1, most=1000
    )
    max_episode_steps: int = _knob(
        0,
        "cut longer episodes (a truncation); 0 for the environment's own limit",
        least=0,
        most=10**9,
    )
    random_steps: int = _knob(
        10_000, "random steps before the policy plays and learns", least=0, most=10**12
    )
    exploration: Literal["gaussian", "ou"] = _knob(
        "gaussian",
        "noise on played actions: new at each step, or Ornstein-Uhlenbeck's, which drifts",
    )
    exploration_noise: tuple[float, ...] = _knob(
        (0.1,),
        "its std in half-ranges, one for all dimensions or one for each",
        least=0,
        most=10,
        search=Span(0.03, 0.5, log=True),
    )
    exploration_final: tuple[float, ...] = _knob(
        (0.1,), "what that becomes, if exploration_steps is not 0", least=0, most=10
    )
    exploration_steps: int = _knob(
        0, "steps over which it becomes exploration_final; 0 for never", least=0, most=10**12
    )
    exploration_pull: float = _knob(
        0.15, "share of Ornstein-Uhlenbeck's noise that is gone at each step", above=0, most=1
    )

    # What to see.
    pixels: bool = _knob(False, "learn from rendered images instead of the state")
    grey: bool = _knob(False, "images without colour")
    image_size: int = _knob(0, "side of images in pixels; 0 for as they come", least=0, most=4096)
    frame_stack: int = _knob(1, "last images that make one state", least=1, most=32)
    image_shift: int = _knob(
        4, "pixels by which images are shifted at random when learned from", least=0, most=64
    )
    image_channels: int = _knob(
        32, "channels of each convolution that looks at an image", least=1, most=4096
    )
    features: int = _knob(50, "numbers that an image becomes", least=1, most=65_536)

    # The memory.
    capacity: int = _knob(1_000_000, "transitions the replay memory holds", least=1, most=10**9)
    replay_on_disk: bool = _knob(False, "keep its observations in a file instead of in RAM")

    # How to learn.
    agent: str = _knob("t3d", "what learns: t3d, or module:Class, a subclass of t3d.Agent")
    body: str = _knob(
        "mlp", "layers of each network: mlp, layer_norm (LayerNorm inside), or module:callable"
    )
    normalize_observations: bool = _knob(
        False, "bring observations to about -1 to 1, by their mean and deviation so far"
    )
    reward_scale: float = _knob(
        1.0, "what rewards are multiplied by when they are learned from", above=0, most=10**6
    )
    train_after: Literal["step", "episode"] = _knob(
        "step", "learn after every step, or in a burst after every episode"
    )
    updates_per_step: float = _knob(
        1.0,
        "updates per environment step, also below 1",
        least=0,
        most=1000,
        search=(0.25, 0.5, 1.0, 2.0),
    )
    batch_size: int = _knob(
        256, "transitions per update", least=1, most=10**7, search=(64, 128, 256, 512)
    )
    hidden: tuple[int, ...] = _knob(
        (256, 256),
        "units of each hidden layer",
        least=1,
        most=65_536,
        search=((64, 64), (128, 128), (256, 256), (400, 300)),
    )
    learning_rate: float = _knob(
        3e-4,
        "Adam's step size, actor and critic",
        above=0,
        most=1,
        search=Span(3e-5, 3e-3, log=True),
    )
    n_step: int = _knob(
        1,
        "rewards that a target sums before it looks at a value",
        least=1,
        most=1000,
        search=(1, 3, 5),
    )
    discount: float = _knob(
        0.99,
        "weight of the next step's value",
        least=0,
        most=1,
        search=(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
    )
    tau: float = _knob(
        0.005,
        "share of the model in each target update",
        above=0,
        most=1,
        search=Span(0.001, 0.08, log=True),
    )
    twins: bool = _knob(
        True, "two critics that begin unlike; without, they begin and stay alike, as if one"
    )
    policy_noise: float = _knob(
        0.2,
        "std of the noise on target actions, in half-ranges",
        least=0,
        most=10,
        search=Span(0.05, 0.5),
    )
    noise_clip: float = _knob(
        0.5,
        "largest noise on target actions, in half-ranges",
        least=0,
        most=10,
        search=Span(0.1, 1.0),
    )
    policy_freq: int = _knob(
        2, "critic updates per actor and target update", least=1, most=10**6, search=(1, 2, 3, 4)
    )

    # What to measure and keep.
    eval_every: int = _knob(
        5_000, "steps between evaluations; 0 for none before the end", least=0, most=10**12
    )
    eval_episodes: int = _knob(10, "noiseless episodes per evaluation", least=1, most=10**6)
    log_every: int = _knob(1_000, "steps between lines in metrics.jsonl", least=1, most=10**12)
    checkpoint_every: int = _knob(
        50_000, "steps between checkpoints; 0 for none before the end", least=0, most=10**12
    )
    keep_checkpoints: int = _knob(2, "newest checkpoints to keep", least=2, most=10**6)

    # Where to compute.
    engine: Literal["auto", "reference", "fused"] = _knob(
        "auto", "what runs the update: the page to read, or the same fused for the CPU, if it can"
    )
    device: str = _knob("cpu", "any device that PyTorch knows: cpu, cuda, mps, cuda:1 ...")
    threads: int = _knob(
        0, "CPU threads of the update; 0 finds out what is fastest", least=0, most=1024
    )
    overlap: bool = _knob(
        False, "play each step beside the updates of the step before; for slow environments"
    )

    def __post_init__(self) -> None:
        """Check every value, and turn whole floats, lists and such into the field's type."""
        for field in dataclasses.fields(self):
            value = _checked(field, knob_types[field.name], getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """Build a config from plain values; a name that is no knob is refused."""
        for name in values:
            if name not in knob_types:
                raise BadInput(f"unknown knob {name!r}{did_you_mean(name, knob_types)}")
        return cls(**values)

    @property
    def all_envs(self) -> int:
        """Environments that play at once, those of all collectors together."""
        return self.num_envs * (self.collectors or 1)

    def to_json(self) -> str:
        """The config as readable JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


knob_types: dict[str, Any] = get_type_hints(Config)
search_ranges: dict[str, Span | tuple[Any, ...]] = {
    field.name: field.metadata["search"]
    for field in dataclasses.fields(Config)
    if field.metadata["search"]
}


def knob_range(field: "dataclasses.Field[Any]") -> str:
    """The range of a knob in words; empty if anything of its type goes."""
    names = {"above": "above", "least": "at least", "most": "at most"}
    bounds = {word: field.metadata[name] for name, word in names.items()}
    return " and ".join(f"{w} {b:,.15g}" for w, b in bounds.items() if math.isfinite(b))


def _checked(field: "dataclasses.Field[Any]", kind: Any, value: Any) -> Any:
    """The value as the knob's type and in its range, or an error that says which knob and why."""
    name = field.name
    if get_origin(kind) is UnionType:  # a knob that may be left out
        if value is None:
            return None
        kind = get_args(kind)[0]
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy are as good as Python's
        value = value.tolist()
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(get_args(kind))
            hint = did_you_mean(value, get_args(kind)) if isinstance(value, str) else ""
            raise BadInput(f"{name} is {value!r}; expected one of: {choices}{hint}")
        return value
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        value = (value,) if isinstance(value, (int, float)) else value  # one is as good as a list
        if not isinstance(value, (tuple, list)) or not value:
            wanted = "whole numbers" if kind is int else "numbers"
            raise BadInput(f"{name} is {value!r}; expected one or more {wanted}")
        return tuple(_number(field, kind, item) for item in value)
    if kind in (str, bool):
        if not isinstance(value, kind) or value == "":
            raise BadInput(f"{name} is {value!r}; expected a {kind.__name__}")
        return value
    return _number(field, kind, value)


def _number(field: "dataclasses.Field[Any]", kind: Any, value: Any) -> Any:
    wanted = "a whole number" if kind is int else "a number"
    limits = knob_range(field)
    expected = f"{field.name} is {value!r}; expected {wanted}{' ' if limits else ''}{limits}"
    bounds = field.metadata
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(expected)
    if not (bounds["least"] <= value <= bounds["most"] and value > bounds["above"]):
        raise BadInput(expected)
    if math.isinf(value) or (kind is int and value != int(value)):
        raise BadInput(expected)
    return kind(value)
