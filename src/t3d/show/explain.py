"""`t3d explain`: a page that walks through one real update with its real tensors."""

import copy
import json
import math
from contextlib import closing, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint
from t3d.run.build import memory_for
from t3d.run.folder import RunFolder, versions
from t3d.run.loop import Run
from t3d.run.records import Json
from t3d.run.watchers import Watcher
from t3d.show.html import numbers, write_page
from t3d.show.source import sources
from t3d.show.terminal import TerminalWatcher, say
from t3d.show.trace import trace
from t3d.show.update import Networks, example_row, memory_strip, update_data

# Small enough that every number can be shown, and it still learns to swing up.
TINY = Config(
    env="Pendulum-v1",
    steps=12_000,
    random_steps=1_000,
    hidden=(8,),
    batch_size=8,
    learning_rate=3e-3,
    discount=0.98,
    tau=0.01,
    exploration_noise=(0.2,),
    eval_every=6_000,
    eval_episodes=5,
    engine="reference",
    threads=1,
)
_GRID = 41  # points along each side of a surface
_MAXIMUM_WEIGHTS = 400_000  # numbers of the critics' targets that go into the page
_MAXIMUM_DELAY = 1000  # updates to wait for one that updates the actor
_MAXIMUM_STATE = 1000  # numbers of a state with which the page can compute
_DRAWN = 16  # units of a layer that can be drawn one by one
_KNOBS = (  # that the page mentions
    *("discount", "tau", "policy_noise", "noise_clip", "policy_freq", "batch_size"),
    *("learning_rate", "n_step", "reward_scale", "capacity", "exploration_noise"),
    *("random_steps", "normalize_observations", "num_envs"),
)


def explain(run: str | Path | None, out: Path, console: Console) -> Path:
    """Write the page of a run, or of a tiny agent that is trained for it."""
    if run is None:
        agent, memory, stages = _trained(console)
        about: Json = {"run": None, "command": "t3d explain", "step": TINY.steps}
    else:
        agent, memory, about = _loaded(run)
        stages = {"at the start": T3D(agent.layout, agent.low, agent.high, agent.config)}
        stages["now"] = copy.deepcopy(agent)
    return write_page(out, "explain", page_data(agent, memory, about, stages))


class _Snapshots(Watcher):
    """Copies the agent at some steps."""

    def __init__(self, at: dict[int, str]) -> None:
        self._at = at
        self.taken: dict[str, T3D] = {}

    def on_start(self, run: Run) -> None:
        self._run = run
        self.on_step(0)

    def on_step(self, step: int) -> None:
        if step in self._at:
            self.taken[self._at[step]] = copy.deepcopy(_reference(self._run.agent))


def _trained(console: Console) -> tuple[T3D, ReplayBuffer, dict[str, T3D]]:
    """A tiny agent, its memory, and the agent at 0, 10 and 100 % of training."""
    say(console, "training an agent small enough to show every number: half a minute ...")
    steps = {percent: percent * TINY.steps // 100 for percent in (0, 10, 100)}
    at = {step: f"{each} % of training, step {step:,}" for each, step in steps.items()}
    snapshots = _Snapshots(at)
    with closing(Run.start(EnvMaker(TINY.env, TINY))) as run:
        run.watchers.append(snapshots)
        if not console.quiet:
            run.watchers.append(TerminalWatcher(console))
        run.loop()
        return _reference(run.agent), run.memory, snapshots.taken


def _reference(agent: Agent) -> T3D:
    assert isinstance(agent, T3D)
    return agent


def unexplained(config: Config) -> str:
    """What a run with this config has that explain does not show; empty if nothing."""
    if config.policy_freq > _MAXIMUM_DELAY:
        return f"policy_freq {config.policy_freq}; explain takes up to {_MAXIMUM_DELAY}"
    if (config.agent, config.body) != ("t3d", "mlp"):
        what = f"the agent {config.agent} with the body {config.body}"
        return f"{what}; explain shows t3d with mlp"
    if (config.activation, config.layer_norm) != ("relu", "none"):
        what = f"the activation {config.activation} and layer_norm {config.layer_norm}"
        return f"{what}; explain shows networks with relu and without LayerNorm"
    if config.sampling == "lap":
        return f"sampling {config.sampling}; explain shows TD3's own, uniform"
    if config.target_every:
        return f"target_every {config.target_every}; explain shows targets that follow by tau"
    return ""


def _loaded(path: str | Path) -> tuple[T3D, ReplayBuffer, Json]:
    """The agent and the memory of a run's newest checkpoint."""
    folder = RunFolder.open(path)
    config = folder.config()
    if problem := unexplained(config):
        raise BadInput(f"{path} has {problem}")
    while True:
        newest = checkpoint.newest_valid(folder)
        if newest is None:
            raise BadInput(f"{path} has no checkpoint yet; let it train to its first")
        try:
            agent = T3D.load(newest.path / "agent.safetensors", device="cpu")
            with files.scratch(folder.path) if config.replay_on_disk else nullcontext() as file:
                memory = memory_for(agent.layout, agent.action_dim, config, file)
            checkpoint.load_learned(newest, agent, memory)
            break
        except T3DError:
            if newest.path.exists():  # else the run trained on, and has newer ones
                raise
    if not agent.updates:
        what = f"{path} has made no update yet: its first {config.random_steps:,} steps are random"
        further = config.random_steps + max(1000, config.log_every)
        raise BadInput(f"{what}; train it further: t3d resume {folder} --steps {further}")
    facts = {"run": str(folder.path), "step": newest.manifest.step}
    return agent, memory, facts | {"command": folder.about()["command"]}


def page_data(
    agent: T3D, memory: ReplayBuffer, about: Json, stages: dict[str, T3D]
) -> dict[str, Any]:
    """All that the page shows; two more updates are done for it."""
    config = agent.config
    pendulum = config.env == "Pendulum-v1" and agent.layout.vector == 3 and not agent.layout.images
    experiments = (resources.files("t3d.show") / "pages/experiments.json").read_text()
    return _two_updates(agent, memory) | {
        "title": f"TD3, one update on {config.env}",
        "env": config.env,
        "pendulum": pendulum,
        "about": about | {"versions": versions(), "seed": config.seed},
        "knobs": {name: getattr(config, name) for name in _KNOBS}
        | {"learning_rate": agent.rate_of("critic")},
        "hidden": {name: list(units) for name, units in config.hidden_layers.items()},
        "state_dim": agent.state_dim,
        "low": numbers(agent.low),
        "high": numbers(agent.high),
        "parameters": {
            name: sum(p.numel() for p in getattr(agent, name).parameters())
            for name in ("actor", "critic")
        },
        "source": sources(),
        "stages": _surfaces(stages) if pendulum else [],
        "experiments": json.loads(experiments),
    }


def _two_updates(agent: T3D, memory: ReplayBuffer) -> dict[str, Any]:
    """Two updates, of which the second updates the actor, too; and the networks behind them."""
    config = agent.config
    while (agent.updates + 2) % config.policy_freq:
        agent.train(memory, 1)
    updates, traces, critic_targets, actors = [], [], Networks(), Networks()
    weights = sum(p.numel() for p in agent.critic_target.parameters())
    computable = 2 * weights <= _MAXIMUM_WEIGHTS and agent.state_dim <= _MAXIMUM_STATE
    drawable = max(agent.state_dim, *config.hidden_layers["actor"], agent.action_dim) <= _DRAWN
    for _ in range(2):
        before = copy.deepcopy(agent)
        traced = trace(agent, memory)
        traces.append(traced)
        data = update_data(before, traced)
        twins = before.critic_target.twin1, before.critic_target.twin2
        data["critic_targets"] = critic_targets.add(*twins) if computable else None
        data["actor_network"] = actors.add(before.actor.layers) if drawable else None
        updates.append(data)
    example = example_row(updates[1])
    for data, traced in zip(updates, traces):
        data["memory"] = memory_strip(memory, traced, agent, example)
    return {
        "updates": updates,
        "rows": len(updates[1]["Q1"]),
        "row": example,
        "critic_targets": critic_targets.distinct,
        "actors": actors.distinct,
    }


@torch.no_grad()
def _surfaces(stages: dict[str, T3D]) -> list[dict[str, Any]]:
    """Value and action over the pendulum's angle and speed, at each stage of training."""
    angle = np.linspace(-math.pi, math.pi, _GRID)
    speed = np.linspace(-8, 8, _GRID)
    across, up = np.meshgrid(angle, speed)
    states: NDArray[Any] = np.stack([np.cos(across), np.sin(across), up], axis=2)
    surfaces = []
    for name, agent in stages.items():
        rows = torch.from_numpy(states.reshape(-1, 3).astype(np.float32))
        seen = agent.perception.encode(rows, agent.critic)
        action = agent.actor(seen)
        value = agent.critic.Q1(seen, action) / agent.config.reward_scale
        shape = (_GRID, _GRID)
        maps = {
            key: [[float(f"{v:.3g}") for v in row] for row in part.reshape(shape).tolist()]
            for key, part in (("value", value), ("action", action[:, 0]))
        }
        surfaces.append({"name": name, **maps})
    return surfaces
