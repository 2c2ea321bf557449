"""The complete state of a run at one step: a folder that is never changed once it is there.

checkpoints/step-000000050000/
  manifest.json             the facts, and a SHA-256 of every other file and of itself
  agent.safetensors         networks, targets, Adam, counters, random streams
  best.safetensors          the agent with the best evaluation so far
  collector.safetensors     where each environment stands, and its random streams
  memory-rows-0000000000.safetensors, memory-ends-0000000000.safetensors ...
                            the replay memory in blocks of a few megabytes

A block that has not changed is linked, not written again: from the checkpoint before the last,
so that no two neighbours share a file and one damaged file never takes both.
"""

import copy
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.numbers import Array
from t3d.learn.agent import Agent
from t3d.learn.replay.blocks import Block
from t3d.learn.replay.memory import ReplayBuffer
from t3d.play.collecting import Collecting
from t3d.run import manifest as manifests
from t3d.run.folder import RunFolder, versions
from t3d.run.manifest import Manifest, Part
from t3d.run.manifest import Progress as Progress
from t3d.run.records import Json, Position, Stop

_NAMES = re.compile(r"(agent|best|collector|memory-(rows|ends)-\d{10})\.safetensors")
# The progress that enters a digest: all but the clock, and what was checked on resuming.
_PROGRESS = ("best_mean", "best_step", "evaluated_at", "measured", "not_bit_exact", "warned")
# The numbers of metrics.jsonl that do not: those of a clock, and those of the environment's info,
# which may hold anything, even a clock's, and which earlier versions did not write.
_NO_DIGEST = (
    *("seconds", "steps_per_second", "late_steps", "late_ms"),
    *("info", "success", "success_rate"),
)


class State(NamedTuple):
    """What plays and learns."""

    agent: Agent
    memory: ReplayBuffer
    collector: Collecting


def save(folder: RunFolder, state: State, progress: Progress, metrics: Position, keep: int) -> Path:
    """Write a checkpoint completely or not at all, and delete the oldest beyond `keep`."""
    final = folder.checkpoints / f"step-{state.collector.steps:012d}"
    if final.exists() and _says_the_same(final, progress, metrics):
        return final
    draft = folder.checkpoints / f".writing-{final.name}"
    try:
        _clean(folder)
        os.mkdir(draft)
        listed = _write_parts(draft, folder, state)
        manifest = Manifest(
            step=state.collector.steps,
            updates=state.agent.updates,
            made_by=made_by(state.agent),
            progress=progress,
            metrics=metrics,
            memory=state.memory.facts(),
            files=listed,
        )
        files.write(draft / "manifest.json", manifest.sealed())
        files.flush_folder(draft)
        if final.exists():  # of the same step, before its evaluation
            os.rename(final, folder.checkpoints / f".pruned-{final.name}")
        os.rename(draft, final)
        files.flush_folder(folder.checkpoints)
    except (OSError, SafetensorError, T3DError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        reason = files.reason(error) if isinstance(error, OSError) else error
        raise CannotWrite(f"checkpoint {final} cannot be written: {reason}") from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    for old in folder.all_checkpoints()[:-keep]:
        pruned = old.with_name(f".pruned-{old.name}")
        os.rename(old, pruned)
        shutil.rmtree(pruned)
    return final


def _says_the_same(path: Path, progress: Progress, metrics: Position) -> bool:
    """Whether a checkpoint of this step is there already, with nothing done since."""
    try:
        manifest = manifest_of(path)
    except T3DError:
        return False
    then, now = (replace(each, seconds=0) for each in (manifest.progress, progress))
    return manifest.metrics == metrics and then == now


def is_finished(manifest: Manifest, steps: int) -> bool:
    """Whether a run of so many steps has nothing left to do, its last evaluation included."""
    return manifest.step >= steps and manifest.progress.evaluated_at >= steps


def has_finished(folder: RunFolder, steps: int) -> bool:
    """Whether that is so of a run's newest valid checkpoint."""
    valid = newest_valid(folder)
    return valid is not None and is_finished(valid.manifest, steps)


def _clean(folder: RunFolder) -> None:
    """Remove what a killed process left half written or half removed."""
    for left in (*folder.checkpoints.glob(".writing-*"), *folder.checkpoints.glob(".pruned-*")):
        shutil.rmtree(left)


def _write_parts(draft: Path, folder: RunFolder, state: State) -> dict[str, Part]:
    """All files but the manifest, and its entries for them."""
    agent, memory, collector = state
    arrays = {name: np.asarray(a, order="C") for name, a in collector.state_dict().items()}
    contents = {"agent": agent.to_bytes(), "collector": to_bytes(arrays)}
    if folder.best_agent.is_file():
        contents["best"] = folder.best_agent.read_bytes()
    before = _before_last(folder)
    blocks = _named_blocks(memory)
    unchanged = {} if before is None else _unchanged_blocks(blocks, before[1])
    fresh = [memory.read(block) for name, block in blocks.items() if name not in unchanged]
    numbers = sum(array.nbytes for arrays in fresh for array in arrays.values())
    files.need_room(draft, numbers + sum(map(len, contents.values())), "this checkpoint")

    listed: dict[str, Part] = {}
    for name, content in contents.items():
        listed[f"{name}.safetensors"] = _write_part(draft / f"{name}.safetensors", content)
    for name, block in blocks.items():
        if before is not None and name in unchanged:
            # Not every disk has links, and a damaged block is not passed on: it is written again.
            with suppress(OSError, T3DError):
                if files.hash_of(before[0] / name) == unchanged[name].sha256:
                    os.link(before[0] / name, draft / name)
                    listed[name] = unchanged[name]
                    continue
        part = _write_part(draft / name, to_bytes(memory.read(block)))
        listed[name] = replace(part, block=list(block))
    return listed


def _write_part(path: Path, content: bytes) -> Part:
    files.write(path, content)
    return Part(len(content), hashlib.sha256(content).hexdigest())


def _named_blocks(memory: ReplayBuffer) -> dict[str, Block]:
    """The blocks of a memory by the names of their files."""
    return {f"memory-{b.table}-{b.low:010d}.safetensors": b for b in memory.blocks()}


def _before_last(folder: RunFolder) -> tuple[Path, Manifest] | None:
    """The checkpoint before the last and its manifest, if it can be read."""
    checkpoints = folder.all_checkpoints()
    if len(checkpoints) < 2:
        return None
    try:
        return checkpoints[-2], manifest_of(checkpoints[-2])
    except T3DError:
        return None


def _unchanged_blocks(blocks: dict[str, Block], manifest: Manifest) -> dict[str, Part]:
    """The entries, in an earlier manifest, of the blocks that have not changed since."""
    then = manifest.files
    return {
        name: then[name]
        for name, block in blocks.items()
        if name in then and then[name].block == list(block)
    }


def manifest_of(path: Path) -> Manifest:
    """The manifest of a checkpoint, if nothing has changed it."""
    return manifests.read(path / "manifest.json")


def check(path: Path) -> Manifest:
    """The manifest of a valid checkpoint; an error names the damaged file."""
    try:
        return _check(path)
    except OSError as error:
        raise BadInput(f"{error.filename or path} cannot be read: {error.strerror}") from error


def _check(path: Path) -> Manifest:
    manifest = manifest_of(path)
    there = set(os.listdir(path)) - {"manifest.json"}
    for name in sorted(there ^ manifest.files.keys()):
        which = "missing" if name in manifest.files else "not in the manifest"
        raise BadInput(f"{path / name} is {which}")
    for name, part in manifest.files.items():
        if not _NAMES.fullmatch(name):
            raise BadInput(f"{path / name} is no file of a checkpoint")
        if files.regular_size(path / name) != part.bytes:
            raise BadInput(f"{path / name} is damaged: it has another size than the manifest says")
        if files.hash_of(path / name) != part.sha256:
            raise BadInput(f"{path / name} is damaged: it does not fit its SHA-256")
    return manifest


class Valid(NamedTuple):
    """The newest valid checkpoint."""

    path: Path
    manifest: Manifest
    damaged: dict[Path, str]  # newer ones, and what is wrong with each


def newest_valid(folder: RunFolder) -> Valid | None:
    """The checkpoint to resume from; None if the run stopped before its first."""
    damaged: dict[Path, str] = {}
    for path in reversed(folder.all_checkpoints()):
        try:
            return Valid(path, check(path), damaged)
        except T3DError as error:
            damaged[path] = str(error)
    if damaged:
        raise BadInput(f"no checkpoint of {folder.path} is valid: {'; '.join(damaged.values())}")
    return None


def quarantine(damaged: Path) -> None:
    """Rename a damaged checkpoint, so that it is not in the way of those to come."""
    shutil.rmtree(damaged.with_name(f".damaged-{damaged.name}"), ignore_errors=True)
    os.rename(damaged, damaged.with_name(f".damaged-{damaged.name}"))


def load(valid: Valid, folder: RunFolder, state: State) -> Progress:
    """Put agent, memory and collector where the checkpoint was taken; returns the progress."""
    path, manifest = valid.path, valid.manifest
    load_learned(valid, state.agent, state.memory)
    with reading(path):
        state.collector.load_state_dict(_arrays(path / "collector.safetensors"))
        for env in state.collector.lost:
            state.memory.end(env)
        if state.collector.steps != manifest.step:
            steps = f"the collector is at step {state.collector.steps}, the manifest at"
            raise ValueError(f"{steps} {manifest.step}")
        if "best.safetensors" in manifest.files:
            files.replace(folder.best_agent, (path / "best.safetensors").read_bytes())
        else:
            folder.best_agent.unlink(missing_ok=True)
        return copy.deepcopy(manifest.progress)


def load_learned(valid: Valid, agent: Agent, memory: ReplayBuffer) -> None:
    """Put agent and memory, which are all that learning needs, where the checkpoint was taken."""
    path, manifest = valid.path, valid.manifest
    with reading(path):
        agent.restore(path / "agent.safetensors")
        if agent.updates != manifest.updates:
            updates = f"the agent has done {agent.updates} updates, the manifest says"
            raise ValueError(f"{updates} {manifest.updates}")
        memory.restore(manifest.memory, blocks_of(valid))


def blocks_of(valid: Valid) -> Callable[[Block], dict[str, Array]]:
    """The function that reads the arrays of a block of a checkpoint's memory."""
    stored = {tuple(p.block): name for name, p in valid.manifest.files.items() if p.block}
    return lambda block: _arrays(valid.path / stored[block])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of a damaged or hostile checkpoint into one line."""
    try:
        yield
    except T3DError:
        raise
    except (
        *(OSError, ValueError, TypeError, KeyError, IndexError, SafetensorError),
        *(AttributeError, ArithmeticError),
    ) as error:
        raise BadInput(f"checkpoint {path} cannot be read: {error}") from error


def _arrays(path: Path) -> dict[str, Array]:
    files.header(path)
    try:
        arrays: dict[str, Array] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    return arrays


def made_by(agent: Agent) -> Json:
    """What the bits of a run depend on besides its config."""
    facts: Json = versions()
    facts["processor"] = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    facts["engine"] = type(agent).__name__
    facts["device"] = str(agent.device)
    if agent.depends_on_threads:  # PyTorch's sums depend on how many threads share them
        facts["threads"] = torch.get_num_threads()
    return facts


def differences(manifest: Manifest, agent: Agent) -> list[str]:
    """The differences to the machine of a checkpoint: from here on, bits may differ."""
    then, now = manifest.made_by, made_by(agent)
    changed = [name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)]
    return [f"{name} was {then.get(name, 'none')}, is {now.get(name, 'none')}" for name in changed]


def digest(valid: Valid, folder: RunFolder) -> str:
    """A SHA-256 of all state and of the metrics, less what depends on when the run stopped.

    That is what a clock measured, what was checked on resuming, and what is there to be checked.
    What the environment's info came to is left out too.
    """
    total = hashlib.sha256()
    manifest = valid.manifest
    for name in sorted(manifest.files):
        for key, array in sorted(_arrays(valid.path / name).items()):
            if key.startswith("environments.proof."):
                continue
            total.update(f"{name} {key} {array.dtype} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
    progress = {k: v for k, v in asdict(manifest.progress).items() if k in _PROGRESS}
    about = {"step": manifest.step, "updates": manifest.updates, "memory": manifest.memory}
    total.update(json.dumps([about, progress], sort_keys=True).encode())
    for line in folder.metrics(until=manifest.metrics.bytes):
        if line["kind"] != Stop.kind:
            timeless = {k: v for k, v in line.items() if k not in _NO_DIGEST}
            total.update(json.dumps(timeless, sort_keys=True).encode())
    return total.hexdigest()
