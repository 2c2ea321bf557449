"""Runs small enough to make many of them, and how two are compared."""

import json
import os
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

from t3d import Agent, Config
from t3d.play.envs import EnvMaker, EnvSource, env_name
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.records import Record
from t3d.run.session import about, open_run, train_to_end
from t3d.run.watchers import Watcher

CLOCKED = ("seconds", "steps_per_second", "late_steps", "late_ms")
TESTS = Path(__file__).parents[1]

# EnvPool is an extra of half a gigabyte, and not for every platform.
needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="the extra envpool")

# A run of a second or two that still plays, learns, evaluates, logs and checkpoints.
TINY: dict[str, Any] = {
    "steps": 60,
    "random_steps": 20,
    "max_episode_steps": 15,
    "hidden": (8, 8),
    "batch_size": 8,
    "capacity": 1000,
    "eval_every": 30,
    "eval_episodes": 1,
    "log_every": 10,
    "checkpoint_every": 20,
    "threads": 1,
}


class Recorder(Watcher):
    """Keeps the records of a run, less what depends on the clock."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def on_record(self, record: Record) -> None:
        line = record.to_json()
        self.lines.append({k: v for k, v in line.items() if k not in CLOCKED})

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Those of one kind."""
        return [line for line in self.lines if line["kind"] == kind]


class Trained(NamedTuple):
    """A run that was trained in memory, without a folder: in milliseconds."""

    records: Recorder
    state: dict[str, bytes]  # every array of agent, memory and collector
    agent: Agent


def in_memory(env: EnvSource = "Pendulum-v1", **knobs: Any) -> Trained:
    """Train a tiny run without a folder, to its end."""
    config = Config.from_dict({"env": env_name(env), **TINY, **knobs})
    recorder = Recorder()
    with closing(Run.start(EnvMaker(env, config))) as run:
        run.watchers.append(recorder)
        assert run.loop()
        arrays: dict[str, Any] = {k: t.cpu().numpy() for k, t in run.agent.state_dict().items()}
        arrays |= {f"collector.{k}": array for k, array in run.collector.state_dict().items()}
        for block in run.memory.blocks():
            pieces = run.memory.read(block).items()
            arrays |= {f"memory.{block.table}.{block.low}.{k}": array for k, array in pieces}
        state = {k: f"{a.dtype}{a.shape}".encode() + a.tobytes() for k, a in arrays.items()}
        return Trained(recorder, state, run.agent)


def trained(path: Path, env: EnvSource = "Pendulum-v1", **knobs: Any) -> Path:
    """Train a tiny run in a new folder to its end, without a score or pictures."""
    config = Config.from_dict({"env": env_name(env), **TINY, **knobs})
    with closing(Run.start(EnvMaker(env, config), RunFolder(path), about("default"))) as run:
        train_to_end(run)
    return path


def resumed(path: Path, env: EnvSource | None = None, **changed: Any) -> list[str]:
    """Resume a run and train it to its end, with some knobs changed; returns its notes."""
    folder = RunFolder.open(path)
    config = Config.from_dict(vars(folder.config()) | changed)
    maker = EnvMaker(env or config.env, config)
    with closing(open_run(maker, folder, {}, changing=changed.keys())) as run:
        train_to_end(run)
        return run.notes


def saved_arrays(run: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every array of a run's newest checkpoint."""
    newest = RunFolder.open(run).newest_checkpoint()
    assert newest is not None
    state: dict[str, np.ndarray[Any, Any]] = {}
    for file in newest.glob("*.safetensors"):
        arrays = load_file(file)
        state |= {f"{file.stem}.{name}": array for name, array in arrays.items()}
    return state


def metrics_without_time(run: str | Path) -> list[dict[str, Any]]:
    """The records of a run, less what depends on the clock."""
    records = RunFolder.open(run).metrics()
    return [{k: v for k, v in record.items() if k not in CLOCKED} for record in records]


def same_bits(one: str | Path, other: str | Path) -> bool:
    """Whether two runs ended in the same state, bit for bit."""
    mine, theirs = saved_arrays(one), saved_arrays(other)
    bits = [
        {name: (array.dtype, array.shape, array.tobytes()) for name, array in state.items()}
        for state in (mine, theirs)
    ]
    return bits[0] == bits[1]


def same_bits_and_records(one: str | Path, other: str | Path) -> bool:
    """Whether two runs ended in the same state, and wrote the same records."""
    return same_bits(one, other) and metrics_without_time(one) == metrics_without_time(other)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def t3d_process(
    *words: str, cwd: Path, stderr: int | IO[str] = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """The command in a process of its own, which finds the environments of the tests."""
    code = "import sys; from t3d.cli.main import main; sys.exit(main())"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def write_run(
    path: Path, records: list[dict[str, Any]], about: dict[str, Any] | None = None, **knobs: Any
) -> Path:
    """A run folder with these records, as if it had been trained."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(Config.from_dict(knobs).to_json())
    (path / "run.json").write_text(json.dumps(about or {}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
