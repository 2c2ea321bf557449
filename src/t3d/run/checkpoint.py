"""The whole state of a run in a folder of plain files: safetensors and JSON, never pickle."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from t3d.errors import T3DError
from t3d.learn.replay import ReplayBuffer
from t3d.learn.t3d import T3D
from t3d.play.collect import Collector
from t3d.run.folder import RunFolder


class Progress(NamedTuple):
    """Where the loop itself stands."""

    best_mean: float | None
    best_step: int
    evaluated_at: int
    measured: dict[str, float]
    seconds: float
    metrics_bytes: int


def save(
    folder: RunFolder,
    agent: T3D,
    memory: ReplayBuffer,
    collector: Collector,
    progress: Progress,
    keep: int,
) -> Path:
    """Write a checkpoint beside the others, whole or not at all, and drop those over `keep`."""
    final = folder.checkpoints / f"step-{collector.steps:012d}"
    aside = folder.checkpoints / f".writing-{final.name}"
    if final.exists():  # the same step of the same run has the same bits
        return final
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        agent.save(aside / "agent.safetensors")
        memory.save(aside / "memory.safetensors")
        arrays = {k: np.asarray(v, order="C") for k, v in collector.state_dict().items()}
        save_file(arrays, aside / "collector.safetensors")
        (aside / "progress.json").write_text(json.dumps(progress._asdict()) + "\n")
        for file in aside.iterdir():
            _flush(file)
        aside.rename(final)
        _flush(folder.checkpoints)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, (OSError, SafetensorError, T3DError)):
            raise T3DError(f"checkpoint {final} cannot be written: {error}") from error
        raise
    for old in sorted(folder.checkpoints.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
    return final


def load(path: Path, agent: T3D, memory: ReplayBuffer, collector: Collector) -> Progress:
    """Put agent, memory and collector where the checkpoint was taken; returns the progress."""
    try:
        saved = T3D.load(path / "agent.safetensors", device=agent.config.device)
        arrays: dict[str, NDArray[Any]] = load_file(path / "collector.safetensors")
        progress = Progress(**json.loads((path / "progress.json").read_text()))
        agent.load_state_dict(saved.state_dict())
        memory.load(path / "memory.safetensors")
        collector.load_state_dict(arrays)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        if isinstance(error, T3DError):
            raise
        raise T3DError(f"checkpoint {path} cannot be read: {error}") from error
    return progress


def _flush(path: Path) -> None:
    """Wait until the disk has it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
