"""Stable-Baselines3 in the rows of `make faults` that apply to it.

    benchmarks/.venvs/sb3/bin/python benchmarks/sb3_faults.py

(`make bench` creates that environment.) Each case repeats one of tests/faults/rows.py with
the functions of Stable-Baselines3: `save`, `load`, `save_replay_buffer`,
`load_replay_buffer` and `SubprocVecEnv`.
"""

import base64
import io
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import SubprocVecEnv

SMALL: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [16, 16]},
    "learning_starts": 50,
    "batch_size": 16,
    "buffer_size": 2000,
    "device": "cpu",
}


def pendulum() -> Any:
    """An environment."""
    return gymnasium.make("Pendulum-v1")


def model(seed: int = 0, env: Any = None) -> Any:
    """A small agent."""
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    return TD3("MlpPolicy", env or pendulum(), seed=seed, action_noise=noise, **SMALL)


def in_a_fork(work: Callable[[], int], seconds: int = 120) -> int:
    """The exit code of some work in a forked process; 124 if it does not end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            sys.stderr = io.StringIO()
            code = work()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def stopped_runs(folder: Path) -> Iterator[bool]:
    """R1: a run that was saved with its memory and resumed should end like an uninterrupted one."""
    for seed in range(4):
        uninterrupted = model(seed).learn(700)
        half = model(seed).learn(400)
        half.save(folder / "half")
        half.save_replay_buffer(folder / "memory")
        again = TD3.load(folder / "half", env=pendulum())
        again.load_replay_buffer(folder / "memory")
        again.learn(300, reset_num_timesteps=False)
        pairs = zip(uninterrupted.policy.parameters(), again.policy.parameters())
        yield all(torch.equal(one, other) for one, other in pairs)


def dying_saves(folder: Path) -> Iterator[bool]:
    """R2: killed at each write of a save over an older one, a valid file should be left."""
    model(0).save(folder / "agent")
    old = (folder / "agent.zip").read_bytes()

    def save(at: int) -> int:
        count = 0
        real = zipfile.ZipFile.writestr

        def dying(*arguments: Any, **named: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                os._exit(9)
            real(*arguments, **named)

        zipfile.ZipFile.writestr = dying  # type: ignore[method-assign]
        model(1).save(folder / "agent")
        return 0

    at = 1
    while in_a_fork(partial(save, at)) == 9:
        try:
            TD3.load(folder / "agent")
            yield True
        except Exception:  # any error: the agent is lost
            yield False
        (folder / "agent.zip").write_bytes(old)
        at += 1


class Bomb:
    """A pickle that touches a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def hostile(folder: Path) -> Iterator[bool]:
    """R5: loading a file should not execute its content."""
    mark = folder / "executed"
    bomb = pickle.dumps(Bomb(mark))
    model(0).save(folder / "good")
    with zipfile.ZipFile(folder / "good.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    data["lr_schedule"] = {":type:": "x", ":serialized:": base64.b64encode(bomb).decode()}
    stored = io.BytesIO()
    torch.save(Bomb(mark), stored)
    changes = {
        "data": json.dumps(data).encode(),
        "policy.pth": stored.getvalue(),
        "pytorch_variables.pth": stored.getvalue(),
        "critic.optimizer.pth": stored.getvalue(),
    }
    for name, content in changes.items():
        with zipfile.ZipFile(folder / "bad.zip", "w") as archive:
            for member, member_bytes in (members | {name: content}).items():
                archive.writestr(member, member_bytes)
        in_a_fork(lambda: bool(TD3.load(folder / "bad")))
        yield not mark.exists()
        mark.unlink(missing_ok=True)
    (folder / "memory.pkl").write_bytes(bomb)
    in_a_fork(lambda: bool(model(0).load_replay_buffer(folder / "memory.pkl")))
    yield not mark.exists()


def lost_workers(folder: Path) -> Iterator[bool]:
    """R9: training should continue when the process of an environment dies or stops."""

    def train(sent: signal.Signals) -> int:
        envs = SubprocVecEnv([pendulum] * 3, start_method="fork")
        learner = model(0, envs).learn(150)
        os.kill(envs.processes[1].pid, sent)
        learner.learn(150, reset_num_timesteps=False)
        return 0

    for sent in (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP):
        yield in_a_fork(partial(train, sent), 30) == 0


def main() -> None:
    """Run all rows."""
    rows = {"R1": stopped_runs, "R2": dying_saves, "R5": hostile, "R9": lost_workers}
    print("| row | Stable-Baselines3 |\n|---|---|")
    for name, row in rows.items():
        folder = Path(tempfile.mkdtemp())
        cases = list(row(folder))
        print(f"| {name} | {sum(cases)}/{len(cases)} |", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
