"""R13: a run that is not bit for bit an uninterrupted one says so."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import t3d
from faults.common import Case
from helpers.runs import TINY, resumed
from t3d.config import FIXED, FREE
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.session import open_run, train_to_end

# Environments with a memory, and whether T3D makes their runs exact or can only say that
# they are not.
REMEMBERING = {
    "BipedalWalker-v3": "exact",
    "helpers.broken_envs:RemembersLate": "not exact",
    "helpers.broken_envs:SharesMemory": "not exact",
    "helpers.broken_envs:RemembersInReward": "exact",
    "helpers.broken_envs:RemembersInEnds": "exact",
    "helpers.broken_envs:Lottery": "not exact",
    "helpers.broken_envs:Calm": "exact",
}
LONG: dict[str, Any] = {"steps": 1000, "max_episode_steps": 0, "eval_every": 200}
LONG |= {"checkpoint_every": 50, "eval_episodes": 2}
# Another value for every knob, as it stands in config.json.
OTHER: dict[str, Any] = {
    **{"env": "MountainCarContinuous-v0", "steps": 80, "seed": 1, "num_envs": 2, "collectors": 1},
    **{"staleness": 0, "ray": "there:1", "collector_cpus": 0.5, "env_backend": "processes"},
    **{"env_deadline": 5.0, "env_restarts": 1, "remake_envs": True, "action_repeat": 2},
    **{"max_episode_steps": 10, "random_steps": 30, "exploration": "ou"},
    **{"exploration_noise": [0.3], "exploration_final": [0.3], "exploration_steps": 30},
    **{"exploration_pull": 0.5, "pixels": True, "grey": True, "image_size": 32},
    **{"frame_stack": 2, "image_shift": 2, "image_channels": 9, "features": 7, "capacity": 500},
    **{"replay_on_disk": True, "agent": "helpers.own_agents:Timid", "body": "layer_norm"},
    **{"normalize_observations": True, "reward_scale": 0.5, "train_after": "episode"},
    **{"updates_per_step": 0.5, "batch_size": 9, "hidden": [8, 9], "learning_rate": 1e-3},
    **{"n_step": 3, "discount": 0.9, "tau": 0.1, "twins": False, "policy_noise": 0.1},
    **{"noise_clip": 0.05, "policy_freq": 3, "eval_every": 20, "eval_episodes": 2},
    **{"log_every": 7, "checkpoint_every": 25, "keep_checkpoints": 3, "engine": "reference"},
    **{"device": "cpu:0", "threads": 2, "overlap": True, "actor_hidden": [8, 9]},
    **{"critic_hidden": [9], "activation": "elu", "layer_norm": "critic", "weight_decay": 0.1},
    **{"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "gradient_clip": 0.1},
    **{
        "learning_rate_schedule": "linear",
        "learning_rate_final": 0.5,
        "sampling": "lap",
        "env_kwargs": {"g": 5},
    },
    **{"wrap": ["helpers.own_wrappers:Scale", "factor=0.5"], "eval_env_kwargs": {"g": 6}},
    **{"eval_env": "helpers.own_wrappers:pendulum", "single_env": True, "rate": 1e4},
    **{"action_history": 2, "log_info": "none", "test_episodes": 3, "track": ["trackio"]},
    **{"embedding": 64, "encoder_hidden": [9], "target_every": 7, "eval_envs": 2},
}


def exact(count: int, folder: Path) -> Iterator[Case]:
    """R13."""
    few = max(1, count // 12)
    yield from memories(few, folder)
    yield from extensions(2 * few, folder)
    yield from edits(count, folder)


def trained(path: Path, env: str = "Pendulum-v1", *watchers: t3d.Watcher, **knobs: Any) -> Path:
    """A tiny run, started as `t3d train` does, without a score."""
    config = t3d.Config.from_dict({"env": env, **TINY, **knobs})
    with closing(open_run(EnvMaker(env, config), RunFolder(path), {})) as run:
        train_to_end(run, watchers)
    return path


class Dies(t3d.Watcher):
    """Kills its own process at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step: int, env: str, path: Path, knobs: dict[str, Any]) -> int:
    """Train in a process of its own, which is killed at a step; returns the signal."""
    child = os.fork()
    if child == 0:
        try:
            trained(path, env, Dies(step), **knobs)
        finally:
            os._exit(99)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def memories(count: int, folder: Path) -> Iterator[Case]:
    """Killed at some steps: the digest of an uninterrupted run, or a word that it is another."""
    knobs = TINY | LONG
    for env, expected in list(REMEMBERING.items())[: 3 * count]:
        name = env.rpartition(":")[2]
        digest = t3d.inspect(trained(folder / name, env, **knobs))["digest"]
        for step in [770, 250, 500, 930, 120][:count]:
            run = folder / f"{name}-{step}"
            sent = killed_at(step, env, run, knobs)
            wrong = "" if sent == signal.SIGKILL else f"it was to be killed, and got {sent}"
            resumed(run)
            facts = t3d.inspect(run)
            if facts["bit_exact"] and facts["digest"] != digest:
                wrong = f"called exact, but another digest; {facts['checked']}"
            elif facts["bit_exact"] != (expected == "exact"):
                wrong = f"expected {expected}; {facts['not_bit_exact']}"
            yield f"{name} killed at {step}", wrong
            shutil.rmtree(run)


def extensions(count: int, folder: Path) -> Iterator[Case]:
    """Extended runs: the digest of one that was long from the start, or a word."""
    digest = t3d.inspect(trained(folder / "long", steps=90))["digest"]
    for steps in [45, 60, 50, 61, 31, 30, 89, 9][:count]:
        run = trained(folder / f"to-{steps}", steps=steps)
        resumed(run, steps=90)
        facts = t3d.inspect(run)
        wrong = ""
        if facts["bit_exact"] != (steps % 30 == 0):
            wrong = f"bit_exact is {facts['bit_exact']}: {facts['not_bit_exact']}"
        elif facts["bit_exact"] and facts["digest"] != digest:
            wrong = "called exact, but another digest"
        yield f"extended from {steps} to 90 steps", wrong
        shutil.rmtree(run)


def edits(count: int, folder: Path) -> Iterator[Case]:
    """Each knob of config.json edited: refused by its name, or free and the same digest."""
    stopped = trained(folder / "stopped", steps=30)
    config = json.loads((stopped / "config.json").read_text()) | {"steps": 60}
    digest = t3d.inspect(trained(folder / "sixty"))["digest"]
    assert OTHER.keys() == config.keys()
    fixed = [name for name in OTHER if name in FIXED]
    recorded = [name for name in OTHER if name not in FIXED | FREE]
    for name in [*fixed, *recorded, *sorted(FREE)][:: max(1, len(OTHER) // count)]:
        run = shutil.copytree(stopped, folder / f"edited-{name}")
        (run / "config.json").write_text(json.dumps(config | {name: OTHER[name]}))
        yield f"{name} edited", edited(run, name, digest)
        if name in recorded:
            (run / "config.json").write_text(json.dumps(config))
            yield f"{name} changed on purpose", on_purpose(run, name)
        shutil.rmtree(run)


def edited(run: Path, name: str, digest: str) -> str:
    """What is wrong with a run that goes on after a knob was edited."""
    try:
        resumed(run)
    except t3d.BadInput as error:
        right = f"{name} was" in str(error) and "\n" not in str(error)
        return "" if right and name not in FREE else f"{error}"
    facts = t3d.inspect(run)
    if name not in FREE:
        return f"taken, and bit_exact is {facts['bit_exact']}"
    elsewhere = name in ("steps", "engine", "device")  # another end, or another machine
    same = elsewhere or facts["digest"] == digest
    return "" if same else "another digest than with the knob as it was"


def on_purpose(run: Path, name: str) -> str:
    """What is wrong with a run that changes a knob with `resume`, and ends at once."""
    folder = RunFolder(run)
    config = t3d.Config.from_dict(vars(folder.config()) | {name: OTHER[name]})
    open_run(EnvMaker(config.env, config), folder, {}, changing=[name]).close()
    resumed(run)
    facts = t3d.inspect(run)
    if not facts["finished"] or facts["bit_exact"]:
        return f"bit_exact is {facts['bit_exact']}"
    value = json.loads((run / "config.json").read_text())[name]
    why = " ".join(facts["not_bit_exact"])
    right = value == OTHER[name] and f"at step 30 {name} was" in why
    return "" if right else f"config.json has {value}; {why}"
