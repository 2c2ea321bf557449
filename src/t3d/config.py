"""Every knob of T3D, once: its scope, default, help and range.

The command line, the checks, the run folder, plots and searches all read this table. To add a
knob, add a field here and use it; `tests/test_knobs.py` fails until a test proves its effect.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_type_hints

from t3d.base.arguments import Arguments, calls
from t3d.base.errors import BadInput
from t3d.base.knobs import Span as Span
from t3d.base.knobs import checked, flag, knob
from t3d.base.other_names import OTHER_WAYS, own_name
from t3d.base.text import did_you_mean

# What a knob changes: the headings of the help, and how plots and searches choose knobs.
SCOPES = {
    "task": "task",
    "playing": "playing and exploring",
    "images": "observations: images and histories",
    "memory": "replay memory",
    "learning": "learning",
    "records": "evaluating and saving",
    "machine": "machine and speed",
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of one training run. Frozen; passed around as one object."""

    env: str = knob("task", "Pendulum-v1", "a Gymnasium id, module:EnvId or module:callable")
    env_kwargs: Mapping[str, Any] = knob(
        "task", Arguments(), "arguments of the environment, such as g=5 for Pendulum-v1"
    )
    wrap: tuple[str, ...] = knob(
        "task",
        (),
        "wrappers of the environment, the innermost first, each followed by its arguments:"
        " my_mod:Scale factor=2 my_mod:Clip",
    )
    eval_env: str | None = knob(
        "task", None, "another environment with the same spaces, to evaluate and score agents in"
    )
    eval_env_kwargs: Mapping[str, Any] = knob(
        "task",
        Arguments(),
        "arguments of the environment in evaluations; without --eval-env, on top of --env-kwargs",
    )
    steps: int = knob(
        "task",
        1_000_000,
        "environment steps to train for, all environments together",
        minimum=1,
        maximum=10**12,
    )
    seed: int = knob("task", 0, "random seed of the run", minimum=0, maximum=2**32 - 1)

    num_envs: int = knob(
        "playing",
        1,
        "number of environments; each step plays one step in all of them",
        minimum=1,
        maximum=4096,
    )
    collectors: int | None = knob(
        "playing",
        None,
        "collect with this many Ray actors, each with --num-envs environments",
        minimum=1,
        maximum=10_000,
    )
    staleness: int = knob(
        "playing",
        100,
        "how many steps each environment of a collector may run ahead of the learner;"
        " 0 = lock-step",
        minimum=0,
        maximum=10**6,
    )
    ray: str = knob(
        "machine",
        "local",
        "Ray cluster for --collectors: its address, auto, or local to start one here",
    )
    collector_cpus: float = knob(
        "machine",
        1.0,
        "CPUs that each collector reserves on the Ray cluster",
        above=0,
        maximum=1024,
    )
    env_backend: Literal["inline", "processes", "envpool", "batched"] = knob(
        "machine",
        "inline",
        "where environments run: inline (in this process), processes (one each), envpool, or"
        " batched (one object plays all, such as a gymnasium.vector.VectorEnv)",
    )
    env_deadline: float = knob(
        "machine",
        60.0,
        "seconds to wait for an environment process or a collector before it counts as hung;"
        " 0 = no limit",
        minimum=0,
        maximum=10**9,
    )
    env_restarts: int = knob(
        "machine",
        10,
        "how often each environment process or collector may be restarted after it dies or hangs",
        minimum=0,
        maximum=10**9,
    )
    eval_envs: int | None = knob(
        "machine",
        None,
        "evaluation episodes that are played at the same time, each in a process of its own;"
        " default: one after the other, or one more than cores with --env-backend processes",
        minimum=1,
        maximum=10**4,
    )
    single_env: bool = knob(
        "playing",
        False,
        "train and evaluate in one environment, in turn, and never make another: for hardware",
    )
    rate: float = knob(
        "playing",
        0.0,
        "calls of the environment's step() per second, for real time; 0 = as fast as possible",
        minimum=0,
        maximum=10_000,
    )
    remake_envs: bool = knob(
        "playing",
        False,
        "make a new environment for every episode, if one carries state over to the next",
    )
    action_repeat: int = knob(
        "task",
        1,
        "play each action this many times; the repeats count as one step",
        minimum=1,
        maximum=1000,
    )
    max_episode_steps: int = knob(
        "task",
        0,
        "truncate episodes after this many steps, if the environment does not earlier; 0 = off",
        minimum=0,
        maximum=10**9,
    )
    random_steps: int = knob(
        "playing",
        10_000,
        "steps with random actions before learning starts",
        minimum=0,
        maximum=10**12,
    )
    exploration: Literal["gaussian", "ou"] = knob(
        "playing",
        "gaussian",
        "exploration noise: gaussian (independent at each step) or ou"
        " (Ornstein-Uhlenbeck, correlated: its std is that of what each step adds)",
    )
    exploration_noise: tuple[float, ...] = knob(
        "playing",
        (0.1,),
        "std of the exploration noise; 1 = half the action range; one value, or one per dimension",
        minimum=0,
        maximum=10,
        search=Span(0.03, 0.5, log=True),
    )
    exploration_final: tuple[float, ...] = knob(
        "playing",
        (0.1,),
        "std of the exploration noise after --exploration-steps",
        minimum=0,
        maximum=10,
    )
    exploration_steps: int = knob(
        "playing",
        0,
        "steps after --random-steps in which the std changes linearly to --exploration-final;"
        " 0 = constant std",
        minimum=0,
        maximum=10**12,
    )
    exploration_pull: float = knob(
        "playing",
        0.15,
        "mean reversion of ou noise (theta): the fraction that each step removes",
        above=0,
        maximum=1,
    )

    pixels: bool = knob(
        "task", False, "observe rendered images instead of the environment's observations"
    )
    grey: bool = knob("images", False, "convert images to greyscale")
    image_size: int = knob(
        "images",
        0,
        "resize images to this many pixels per side; 0 = keep their size",
        minimum=0,
        maximum=4096,
    )
    frame_stack: int = knob(
        "images",
        1,
        "how many of the last images form one observation; without images, of the last"
        " observations",
        minimum=1,
        maximum=32,
    )
    action_history: int = knob(
        "images", 0, "recent actions appended to the observation", minimum=0, maximum=100
    )
    image_shift: int = knob(
        "images",
        4,
        "shift images at random by up to this many pixels when learning, as in DrQ; 0 = off",
        minimum=0,
        maximum=64,
    )
    image_channels: int = knob(
        "images", 32, "channels of each layer of the image encoder", minimum=1, maximum=4096
    )
    features: int = knob(
        "images", 50, "size of the image encoder's output", minimum=1, maximum=65_536
    )

    capacity: int = knob(
        "memory",
        1_000_000,
        "maximum number of transitions in the replay memory",
        minimum=1,
        maximum=10**9,
    )
    sampling: Literal["auto", "uniform", "lap"] = knob(
        "memory",
        "auto",
        "which transitions to learn from: uniform, lap (those with large errors more often),"
        " or auto (lap for td7, else uniform)",
    )
    replay_on_disk: bool = knob(
        "machine", False, "keep the observations of the replay memory in a file instead of RAM"
    )

    agent: str = knob(
        "learning",
        "t3d",
        "the algorithm (or --algorithm): t3d (TD3), td7, or module:Class for your own subclass"
        " of t3d.Agent",
    )
    body: str = knob(
        "learning",
        "mlp",
        "layers of each network: mlp, layer_norm, or module:callable for your own",
    )
    normalize_observations: bool = knob(
        "learning", False, "normalise observations by their running mean and std"
    )
    reward_scale: float = knob(
        "learning",
        1.0,
        "multiply rewards by this when learning; reported returns are unscaled",
        above=0,
        maximum=10**6,
    )
    train_after: Literal["step", "episode"] = knob(
        "learning",
        "step",
        "learn after each step, or after each episode (all its updates at once)",
    )
    updates_per_step: float = knob(
        "learning",
        1.0,
        "updates per environment step; may be below 1",
        minimum=0,
        maximum=1000,
        search=(0.25, 0.5, 1.0, 2.0),
    )
    batch_size: int = knob(
        "learning",
        256,
        "transitions per update",
        minimum=1,
        maximum=10**7,
        search=(64, 128, 256, 512),
    )
    hidden: tuple[int, ...] = knob(
        "learning",
        (256, 256),
        "units of each hidden layer",
        minimum=1,
        maximum=65_536,
        search=((64, 64), (128, 128), (256, 256), (400, 300)),
    )
    actor_hidden: tuple[int, ...] = knob(
        "learning",
        (),
        "units of each hidden layer of the actor; by default those of --hidden",
        minimum=1,
        maximum=65_536,
    )
    critic_hidden: tuple[int, ...] = knob(
        "learning",
        (),
        "units of each hidden layer of each critic; by default those of --hidden",
        minimum=1,
        maximum=65_536,
    )
    embedding: int = knob(
        "learning",
        256,
        "td7: size of the embeddings of states, and of states with actions",
        minimum=1,
        maximum=65_536,
    )
    encoder_hidden: tuple[int, ...] = knob(
        "learning",
        (),
        "td7: units of each hidden layer of the encoders; by default those of --hidden",
        minimum=1,
        maximum=65_536,
    )
    activation: Literal["relu", "elu", "tanh"] = knob(
        "learning", "relu", "activation function of the hidden layers: relu, elu or tanh"
    )
    layer_norm: Literal["none", "critic", "both"] = knob(
        "learning",
        "none",
        "networks with a LayerNorm before each activation: none, critic or both (actor, too)",
    )
    learning_rate: float = knob(
        "learning",
        3e-4,
        "Adam's learning rate, for actor and critics",
        above=0,
        maximum=1,
        search=Span(3e-5, 3e-3, log=True),
    )
    actor_learning_rate: float = knob(
        "learning",
        0.0,
        "the actor's learning rate; 0 = that of --learning-rate",
        minimum=0,
        maximum=1,
    )
    critic_learning_rate: float = knob(
        "learning",
        0.0,
        "the critics' learning rate; 0 = that of --learning-rate",
        minimum=0,
        maximum=1,
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = knob(
        "learning",
        "constant",
        "how the learning rates fall over the run's updates: constant (not at all), linear"
        " or cosine",
    )
    learning_rate_final: float = knob(
        "learning",
        0.0,
        "what a schedule falls to, as a fraction of the learning rates",
        minimum=0,
        maximum=1,
    )
    gradient_clip: float = knob(
        "learning",
        0.0,
        "limit of the norm of the actor's gradient, and of both critics' together; 0 = none",
        minimum=0,
        maximum=10**9,
    )
    weight_decay: float = knob(
        "learning",
        0.0,
        "decoupled weight decay, as in AdamW; 0 = none",
        minimum=0,
        maximum=1000,
    )
    n_step: int = knob(
        "learning", 1, "length of n-step returns", minimum=1, maximum=1000, search=(1, 3, 5)
    )
    discount: float = knob(
        "learning",
        0.99,
        "discount factor (gamma)",
        minimum=0,
        maximum=1,
        search=(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
    )
    tau: float = knob(
        "learning",
        0.005,
        "step size of the target networks (Polyak averaging); 1 = copy the networks",
        above=0,
        maximum=1,
        search=Span(0.001, 0.08, log=True),
    )
    target_every: int = knob(
        "learning",
        0,
        "copy the networks to their targets once in this many updates; 0 = follow them by --tau"
        " (td7: every 250)",
        minimum=0,
        maximum=10**9,
    )
    twins: bool = knob("learning", True, "use two critics (--no-twins: one, for ablations)")
    policy_noise: float = knob(
        "learning",
        0.2,
        "std of the noise on target actions; 1 = half the action range",
        minimum=0,
        maximum=10,
        search=Span(0.05, 0.5),
    )
    noise_clip: float = knob(
        "learning",
        0.5,
        "limit of the noise on target actions; 1 = half the action range",
        minimum=0,
        maximum=10,
        search=Span(0.1, 1.0),
    )
    policy_freq: int = knob(
        "learning",
        2,
        "update the actor and the targets once in this many updates of the critics",
        minimum=1,
        maximum=10**6,
        search=(1, 2, 3, 4),
    )

    eval_every: int = knob(
        "records",
        5_000,
        "evaluate at the start, every N steps and at the end; 0 = only at the end",
        minimum=0,
        maximum=10**12,
    )
    eval_episodes: int = knob(
        "records", 10, "episodes per evaluation, played without noise", minimum=1, maximum=10**5
    )
    test_episodes: int = knob(
        "records",
        10,
        "episodes that the best agent plays at the end, for the score",
        minimum=1,
        maximum=10**5,
    )
    log_every: int = knob(
        "records",
        1_000,
        "steps between training records in metrics.jsonl",
        minimum=1,
        maximum=10**12,
    )
    log_info: str = knob(
        "records",
        "all",
        "numbers of the environment's info to record: all, none, or names separated by commas",
    )
    checkpoint_every: int = knob(
        "records",
        50_000,
        "steps between checkpoints; 0 = only at the end",
        minimum=0,
        maximum=10**12,
    )
    keep_checkpoints: int = knob(
        "records",
        2,
        "keep this many of the newest checkpoints; at least 2",
        minimum=2,
        maximum=10**6,
    )
    track: tuple[Literal["wandb", "trackio", "mlflow"], ...] = knob(
        "records", (), "log the run to experiment trackers: wandb, trackio, mlflow, or several"
    )

    engine: Literal["auto", "reference", "fused"] = knob(
        "machine",
        "auto",
        "reference (readable PyTorch), fused (compiled for the CPU, faster)"
        " or auto (fused where it can run)",
    )
    device: str = knob("machine", "cpu", "PyTorch device: cpu, cuda, cuda:1, mps ...")
    threads: int = knob(
        "machine",
        0,
        "CPU threads of an update; 0 = choose (the fused engine measures which is fastest)",
        minimum=0,
        maximum=1024,
    )
    overlap: bool = knob(
        "machine", False, "play the next step while the updates run; for slow environments"
    )

    def __new__(cls, /, *values: Any, **knobs: Any) -> Self:
        """Refuse a name that is no knob."""
        for name in knobs:
            if name not in knob_types:
                raise unknown_knob(name)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check every value, and convert whole floats, lists and arrays to the field's type."""
        for field in dataclasses.fields(self):
            value = checked(field, knob_types[field.name], getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        calls("wrap", self.wrap)
        self._require_no_collectors()
        self._require_one_env()

    def _require_no_collectors(self) -> None:
        """Refuse collectors where evaluations or a batch are played in this process."""
        if self.collectors and self.eval_envs:
            advice = "leave out --eval-envs"
            raise BadInput(f"with --collectors, these play the evaluation episodes; {advice}")
        if self.collectors and self.env_backend == "batched":
            advice = "leave out --collectors"
            raise BadInput(f"a batch of environments is played in this process; {advice}")

    def _require_one_env(self) -> None:
        """Refuse what does not go with one environment, or with one that keeps to a rate."""
        fitting = {"num_envs": 1, "collectors": None, "env_backend": "inline", "eval_envs": None}
        if self.single_env:
            fitting["remake_envs"] = False
            if self.eval_env or self.eval_env_kwargs:
                advice = "leave out --eval-env and --eval-env-kwargs"
                raise BadInput(f"--single-env evaluates in the same environment; {advice}")
        elif not self.rate:
            return
        for name, needed in fitting.items():
            value = getattr(self, name)
            if value != needed:
                what = "--single-env" if self.single_env else flag("rate", self.rate)
                advice = (
                    f"leave out --{name.replace('_', '-')}"
                    if needed is None
                    else f"use {flag(name, needed)}"
                )
                raise BadInput(f"{what} does not go with {flag(name, value)}; {advice}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """Build a config from plain values."""
        return cls(**values)

    @property
    def all_envs(self) -> int:
        """Environments that play in parallel, those of all collectors together."""
        return self.num_envs * (self.collectors or 1)

    @property
    def hidden_layers(self) -> dict[str, tuple[int, ...]]:
        """The units of each hidden layer of the actor, and of each critic."""
        own = {"actor": self.actor_hidden, "critic": self.critic_hidden}
        return {network: hidden or self.hidden for network, hidden in own.items()}

    @property
    def encoder_layers(self) -> tuple[int, ...]:
        """The units of each hidden layer of both of td7's encoders."""
        return self.encoder_hidden or self.hidden

    def updates_by(self, step: int) -> int:
        """How many updates are due after so many steps: none for those of random play."""
        learned_from = max(0, step - self.random_steps)
        # The tiny term keeps 10 steps at 0.1 from counting as 0.9999 updates.
        return int(learned_from * self.updates_per_step + 1e-9)

    def to_json(self) -> str:
        """The config as readable JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


knob_types: dict[str, Any] = get_type_hints(Config)
search_ranges: dict[str, Span | tuple[Any, ...]] = {
    field.name: field.metadata["search"]
    for field in dataclasses.fields(Config)
    if field.metadata["search"]
}

# What a resumed run may change freely: no number that it computes or records depends on it, or
# (engine, device, threads) the checkpoint itself says on what. What depends on `steps` is recorded
# where it does (run/changes.py).
FREE = frozenset(
    {
        *("steps", "checkpoint_every", "keep_checkpoints", "track", "engine", "device", "threads"),
        *("ray", "collector_cpus", "env_deadline", "env_restarts", "replay_on_disk"),
        *("test_episodes", "eval_envs"),
    }
)
# What a run keeps to its end: its task, the shapes of its state, and the knobs by which its steps
# and updates are counted. All others may change if that is recorded.
FIXED = frozenset(
    {
        *("env", "env_kwargs", "wrap", "single_env", "seed", "num_envs", "collectors"),
        *("staleness", "capacity", "sampling"),
        *("action_repeat", "max_episode_steps", "random_steps", "updates_per_step"),
        *("pixels", "grey", "image_size", "frame_stack", "action_history"),
        *("image_channels", "features"),
        *("agent", "body", "hidden", "twins", "normalize_observations"),
        *("actor_hidden", "critic_hidden", "activation", "layer_norm"),
        *("embedding", "encoder_hidden"),
    }
)


def knobs_of(*scopes: str) -> frozenset[str]:
    """The names of the knobs of some scopes."""
    fields = dataclasses.fields(Config)
    return frozenset(field.name for field in fields if field.metadata["scope"] in scopes)


# What makes networks fit their inputs, and critics their rewards: a run that starts from another
# takes these from there, unless they are typed.
NETWORK_KNOBS = (FIXED & knobs_of("learning", "images") - {"updates_per_step"}) | {
    *("pixels", "reward_scale"),
}


def unknown_knob(name: str) -> BadInput:
    """The error for a name that is no knob."""
    way = OTHER_WAYS.get(name.lower())
    advice = f"; {way}" if way else did_you_mean(own_name(name), knob_types)
    return BadInput(f"unknown knob {name!r}{advice}")
