"""`t3d explain`: a page that walks through one real update with its real tensors."""

import copy
import inspect
import json
import math
import tempfile
from contextlib import closing, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

import t3d.learn.networks as networks
from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.config import Config
from t3d.learn import t3d as steps_page
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint
from t3d.run.build import memory_for
from t3d.run.folder import Record, RunFolder, versions
from t3d.run.loop import Run
from t3d.run.watchers import Watcher
from t3d.show.html import numbers, packed, write_page
from t3d.show.terminal import TerminalWatcher, say
from t3d.show.trace import Change, Traced, step_lines, trace

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
ROWS = 8  # of a batch that are shown
_WIDE = 16  # rows and columns of a weight matrix that are shown
_STRIP = 12  # transitions of the film strip
_GRID = 41  # points along each side of a surface
_MOST_WEIGHTS = 400_000  # numbers of the critics' targets that go into the page
_MOST_DELAY = 1000  # updates to wait for the actor's turn
_MOST_STATE = 1000  # numbers of a state that go into the page whole
_DRAWN = 16  # units of a layer that can be drawn one by one


def explain(run: str | Path | None, out: Path, console: Console) -> Path:
    """Write the page of a run, or of a tiny agent that is trained for it."""
    if run is None:
        agent, memory, stages = _trained(console)
        about: Record = {"run": None, "command": "t3d explain", "step": TINY.steps}
    else:
        agent, memory, about = _loaded(run)
        stages = {"at the start": T3D(agent.layout, agent.low, agent.high, agent.config)}
        stages["now"] = copy.deepcopy(agent)
    return write_page(out, "explain", page_data(agent, memory, about, stages))


class _Snapshots(Watcher):
    """Keeps the agent as it was at some steps."""

    def __init__(self, at: dict[int, str]) -> None:
        self._at = at
        self.taken: dict[str, T3D] = {}

    def on_start(self, run: Run) -> None:
        self._run = run
        self.on_step(0)

    def on_step(self, step: int) -> None:
        if step in self._at:
            agent = self._run.agent
            assert isinstance(agent, T3D)
            self.taken[self._at[step]] = copy.deepcopy(agent)


def _trained(console: Console) -> tuple[T3D, ReplayBuffer, dict[str, T3D]]:
    """A tiny agent, its memory, and the agent at 0, 10 and 100 % of training."""
    say(console, "training an agent so small that every number can be shown: half a minute ...")
    with tempfile.TemporaryDirectory() as folder:
        run = Run.start(EnvMaker(TINY.env, TINY), RunFolder(Path(folder) / "run"), {})
        with closing(run):
            at = {
                share
                * TINY.steps
                // 100: f"{share} % of training, step {share * TINY.steps // 100:,}"
                for share in (0, 10, 100)
            }
            snapshots = _Snapshots(at)
            run.watchers.append(snapshots)
            if not console.quiet:
                run.watchers.append(TerminalWatcher(console))
            run.loop()
            agent = run.agent
            assert isinstance(agent, T3D)
            return agent, run.memory, snapshots.taken


def _loaded(path: str | Path) -> tuple[T3D, ReplayBuffer, Record]:
    """The agent and the memory of a run's newest checkpoint."""
    folder = RunFolder.open(path)
    config = folder.config()
    if config.policy_freq > _MOST_DELAY:
        raise BadInput(f"policy_freq is {config.policy_freq}; explain takes up to {_MOST_DELAY}")
    if (config.agent, config.body) != ("t3d", "mlp"):
        what = f"{path} has the agent {config.agent} with the body {config.body}"
        raise BadInput(f"{what}; explain shows t3d with mlp")
    while True:
        whole = checkpoint.newest_valid(folder)
        if whole is None:
            raise BadInput(f"{path} has no checkpoint yet; let it train to its first")
        try:
            agent = T3D.load(whole.path / "agent.safetensors", device="cpu")
            with files.scratch(folder.path) if config.replay_on_disk else nullcontext() as file:
                memory = memory_for(agent.layout, agent.action_dim, config, file)
            checkpoint.load_learned(whole, agent, memory)
            break
        except T3DError:
            if whole.path.exists():  # else the run went on meanwhile, and has newer ones
                raise
    if not memory.size:
        raise BadInput(f"{path} has played no step yet; let it train")
    about = folder.about()
    facts = {"run": str(folder.path), "step": whole.manifest["step"]}
    return agent, memory, facts | {"command": about.get("command", "")}


def page_data(
    agent: T3D, memory: ReplayBuffer, about: Record, stages: dict[str, T3D]
) -> dict[str, Any]:
    """All that the page shows; two more updates are done for it."""
    knobs = agent.config
    while (agent.updates + 2) % knobs.policy_freq:  # the second is to be one with the actor
        agent.train(memory, 1)
    updates, watched, judges, players = [], [], _Distinct(), _Distinct()
    weights = sum(p.numel() for p in agent.critic_target.parameters())
    drawn = max(agent.state_dim, *knobs.hidden, agent.action_dim) <= _DRAWN
    shipped = 2 * weights <= _MOST_WEIGHTS and agent.state_dim <= _MOST_STATE
    for _ in range(2):
        before = copy.deepcopy(agent)
        traced = trace(agent, memory)
        watched.append(traced)
        target = before.critic_target
        judge = [_layers(twin) for twin in (target.twin1, target.twin2)]
        updates.append(
            _update(before, traced)
            | {
                "judges": judges.place(judge) if shipped else None,
                "player": players.place(_layers(before.actor.layers)) if drawn else None,
            }
        )
    last, example = traced.value(4, "batch"), _example(updates[1])
    for update, traced in zip(updates, watched):
        update["memory"] = _strip(memory, traced, agent, example)
    pendulum = knobs.env == "Pendulum-v1" and agent.layout.vector == 3 and not agent.layout.images
    named = ["discount", "tau", "policy_noise", "noise_clip", "policy_freq", "batch_size"]
    named += ["learning_rate", "n_step", "reward_scale", "capacity"]
    named += ["exploration_noise", "random_steps", "normalize_observations", "num_envs"]
    return {
        "title": f"TD3, one update on {knobs.env}",
        "env": knobs.env,
        "pendulum": pendulum,
        "about": about | {"versions": versions(), "seed": knobs.seed},
        "knobs": {name: getattr(knobs, name) for name in named},
        "hidden": list(knobs.hidden),
        "state_dim": agent.state_dim,
        "low": numbers(agent.low),
        "high": numbers(agent.high),
        "updates": updates,
        "rows": min(ROWS, len(last.reward)),
        "row": example,
        "judges": judges.found,
        "players": players.found,
        "parameters": {
            name: sum(p.numel() for p in getattr(agent, name).parameters())
            for name in ("actor", "critic")
        },
        "source": _sources(),
        "stages": _surfaces(stages) if pendulum else [],
        "experiments": json.loads(
            (resources.files("t3d.show") / "pages/experiments.json").read_text()
        ),
    }


def _update(before: T3D, traced: Traced) -> dict[str, Any]:
    """One update: what each step gave."""
    see = traced.value(4, "batch")
    rows = slice(ROWS)

    def first(values: Tensor) -> Any:
        few = values.detach()[rows]
        wide = few.ndim == 2 and few.shape[1] > _MOST_STATE
        return numbers(few[:, :24] if wide else few)

    def value(step: int, name: str) -> Any:
        return first(traced.value(step, name))

    critic, actor = traced.change("critic"), traced.change("actor")
    assert critic is not None
    found: dict[str, Any] = {
        "number": traced.number,
        "batch": {name: first(getattr(see, name)) for name in see._fields},
        # As they were stored, for pictures, if the networks see them otherwise.
        "stored": None,
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
    if before.config.normalize_observations and not before.layout.images:
        stored = traced.value(4, "stored")
        found["stored"] = {name: first(getattr(stored, name)) for name in ("state", "next_state")}
    if actor is not None:
        found |= {
            "actor_loss": float(traced.value(13, "actor_loss")),
            "actor": _change(actor),
            "climb": _climb(before, critic, actor, see.state[rows].detach()),
            "follow": {
                name: _follow(traced.change(f"{name}_target"), traced.change(name))
                for name in ("actor", "critic")
            },
        }
    return found


def _change(change: Change) -> list[dict[str, Any]]:
    """What became of each parameter, a corner of it where it is large."""
    found = []
    for name, before in change.before.items():
        corner = tuple(slice(_WIDE) for _ in before.shape[:2])
        parts = before, change.gradient[name], change.after[name]
        # Of a convolution, one pixel of the kernel.
        cut = [part[corner].reshape(*part[corner].shape[:2], -1)[..., 0] for part in parts]
        flat = [part if before.ndim > 1 else part.reshape(1, -1) for part in cut]
        keys = "before", "gradient", "after"
        shown = {key: numbers(part) for key, part in zip(keys, flat)}
        found.append({"name": name, "shape": list(before.shape), **shown})
    return found


def _follow(target: Change | None, model: Change | None) -> list[dict[str, Any]]:
    """The first few numbers of each parameter of a target, and of the model that it follows."""
    assert target is not None
    assert model is not None
    found = []
    for name, before in target.before.items():
        parts = before, target.after[name], model.after[name]
        few = [numbers(part.reshape(-1)[:12]) for part in parts]
        found.append({"name": name, **dict(zip(("before", "after", "model"), few))})
    return found


@torch.no_grad()
def _climb(before: T3D, critic: Change, actor: Change, state: Tensor) -> dict[str, Any]:
    """The first critic over the first dimension of the action, and where the actor stands."""
    judge, player = copy.deepcopy(before.critic), copy.deepcopy(before.actor)
    judge.load_state_dict(critic.after)  # step 12 is done by then
    chosen = player(state)
    player.load_state_dict(actor.after)
    grid = torch.linspace(float(before.low[0]), float(before.high[0]), 61, dtype=before.dtype)
    curves = []
    for row, action in zip(state, chosen):
        actions = action.repeat(len(grid), 1)
        actions[:, 0] = grid
        curves.append(numbers(judge.Q1(row.repeat(len(grid), 1), actions)))
    then = player(state)
    return {
        "grid": numbers(grid),
        "curves": curves,
        "before": numbers(chosen),
        "after": numbers(then),
        "value_before": numbers(judge.Q1(state, chosen)),
        "value_after": numbers(judge.Q1(state, then)),
    }


def _example(update: dict[str, Any]) -> int:
    """The row to follow: one in which each step can be seen to do something."""
    apart = np.abs(np.subtract(update["target_Q1"], update["target_Q2"]))
    noise = np.abs([row[0] for row in update["clipped"]])
    low, high = (end(update["climb"]["grid"]) for end in (min, max))
    near_an_end = np.array(
        [
            max(abs((2 * row[0] - low - high) / (high - low)) for row in rows)
            for rows in zip(update["smoothed"], update["climb"]["before"])
        ]
    )
    seen = apart / (apart.max() or 1) + noise / (noise.max() or 1)
    return int(np.argmax(seen - 4 * np.maximum(near_an_end - 0.8, 0)))


def _strip(memory: ReplayBuffer, traced: Traced, agent: T3D, example: int) -> dict[str, Any]:
    """Some transitions of one environment as they follow each other, around one that was drawn."""
    assert traced.rows is not None
    oldest, every = memory.added - memory.size, memory.num_envs  # side by side, they take turns
    ages = (traced.rows[:ROWS] - oldest) % memory.room  # from the oldest on
    before, turn = divmod(int(ages[example]), every)
    lived = 1 + (memory.size - 1 - turn) // every
    count = min(_STRIP, lived)
    start = max(0, min(before - _STRIP // 2, lived - count))
    shown = turn + every * np.arange(start, start + count)
    batch = memory.batch((oldest + shown) % memory.room)
    state = batch.state.numpy()
    if agent.layout.images:
        state = np.zeros((count, 0), np.float32)
    return {
        "size": memory.size,
        "drawn": [int(age) for age in ages],
        "shown": [int(age) for age in shown],
        "state": numbers(state[:, :12]),
        "action": numbers(batch.action),
        "reward": numbers(batch.reward),
    }


class _Distinct:
    """Keeps what is the same for both updates once."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def place(self, thing: Any) -> int:
        """Where it is kept."""
        if thing not in self.found:
            self.found.append(thing)
        return self.found.index(thing)


def _layers(network: torch.nn.Module) -> list[dict[str, Any]]:
    """The linear layers of a network, for the page to compute with."""
    return [
        {"weight": packed(layer.weight.detach()), "bias": packed(layer.bias.detach())}
        for layer in network.modules()
        if isinstance(layer, torch.nn.Linear)
    ]


def _sources() -> dict[str, Any]:
    """The lines that do each step."""
    found: dict[str, Any] = {}
    whole: dict[int, tuple[str, Any]] = {
        1: ("learn/replay.py", ReplayBuffer.sample),
        2: ("learn/networks.py", networks.Actor.forward),
        3: ("learn/networks.py", networks.Critic.forward),
    }
    for step, (file, function) in whole.items():
        lines, start = inspect.getsourcelines(function)
        found[str(step)] = {"file": file, "first": start, "lines": _unindented(lines)}
    text = inspect.getsource(steps_page).splitlines()
    by_step: dict[int, list[int]] = {}
    for line, step in step_lines().items():
        by_step.setdefault(step, []).append(line)
    for step, numbers_ in by_step.items():
        # From the comment to the first line that is empty or less indented.
        first = min(numbers_)
        indent = len(text[first - 1]) - len(text[first - 1].lstrip())
        last = first
        for line in range(first, max(numbers_) + 1):
            said = text[line - 1]
            if not said.strip() or len(said) - len(said.lstrip()) < indent:
                break
            last = line
        lines = text[first - 1 : last]
        found[str(step)] = {"file": "learn/t3d.py", "first": first, "lines": _unindented(lines)}
    return found


def _unindented(lines: list[str]) -> list[str]:
    rest = [line.rstrip("\n") for line in lines]
    indent = min(len(line) - len(line.lstrip()) for line in rest if line.strip())
    return [line[indent:] for line in rest]


@torch.no_grad()
def _surfaces(stages: dict[str, T3D]) -> list[dict[str, Any]]:
    """Value and action over the pendulum's angle and speed, as training went on."""
    angle = np.linspace(-math.pi, math.pi, _GRID)
    speed = np.linspace(-8, 8, _GRID)
    across, up = np.meshgrid(angle, speed)
    states: NDArray[Any] = np.stack([np.cos(across), np.sin(across), up], axis=2)
    found = []
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
        found.append({"name": name, **maps})
    return found
