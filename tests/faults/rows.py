"""The rows of the scorecard: each provokes one kind of fault.

A row is a generator of cases, (what was done, what went wrong or ""), and takes their number.
`make faults` runs all of each; the tests run a few.
"""

import contextlib
import errno
import io
import itertools
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import t3d
from faults import rows_folders
from faults.common import LONGER, Case, Row, command, in_session, process, trained
from faults.rows_exact import exact
from faults.rows_fuzz import damaged_caches, engine_configs, odd_environments
from faults.rows_output import stop_signals, unwritable
from faults.rows_surroundings import surroundings
from helpers import broken_envs
from helpers.memories import filled_memory
from helpers.runs import TINY
from t3d.cli.main import main
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint, health
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.manifest import seal
from t3d.run.store import DiskStore

# R1: real processes, killed with a real SIGKILL.

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("Pendulum-v1", {"engine": "fused"}),
    ("InvertedPendulum-v5", {"engine": "fused", "num_envs": 4}),
    ("Pendulum-v1", {"engine": "reference", "num_envs": 4}),
    ("InvertedPendulum-v5", {"engine": "reference"}),
]
TD7: dict[str, Any] = {"agent": "td7", "embedding": 8, "target_every": 20}
TD7_VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("Pendulum-v1", TD7 | {"engine": "fused", "capacity": 150}),
    ("InvertedPendulum-v5", TD7 | {"engine": "reference", "num_envs": 3}),
]
KILLS_PER_RUN = 10


def kills(
    count: int,
    folder: Path,
    part: int = 0,
    variants: list[tuple[str, dict[str, Any]]] = VARIANTS,
) -> Iterator[Case]:
    """R1, and with other variants R21."""
    chance = random.Random(1 + part)
    expected: dict[int, str] = {}
    per_run = min(KILLS_PER_RUN, count)
    for number in range(count // per_run):
        which = number % len(variants)
        env, knobs = variants[which]
        knobs = TINY | LONGER | knobs
        if which not in expected:
            uninterrupted = trained(folder / f"uninterrupted-{which}", env, **knobs)
            expected[which] = t3d.inspect(uninterrupted)["digest"]
        run = folder / f"killed-{number}"
        killed = 0
        while True:
            begun = (run / "config.json").is_file()
            words = ["resume", str(run), "--no-video"] if begun else command(env, knobs)
            trainer = process(words if begun else [*words, "--run", str(run)], folder)
            if killed == per_run:
                _, errors = trainer.communicate(timeout=600)
                break
            kill_at_some_moment(trainer, run, chance)
            killed += 1
            if trainer.returncode != -signal.SIGKILL:  # it was done already
                errors = ""
                break
        digest = t3d.inspect(run)["digest"]
        wrong = "" if digest == expected[which] else f"another digest than uninterrupted; {errors}"
        for kill in range(killed):
            yield f"{env} {knobs['engine']} run {number}, kill {kill}", wrong
        shutil.rmtree(run)


def kill_at_some_moment(trainer: "subprocess.Popen[str]", run: Path, chance: random.Random) -> None:
    """While it starts, now and then; else within a second after it has written something."""
    metrics = run / "metrics.jsonl"

    def written() -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            status = metrics.stat()
            return status.st_size, status.st_mtime_ns
        return None

    before = written()
    if chance.random() < 0.9:
        while trainer.poll() is None and written() == before:
            time.sleep(0.005)
    else:
        time.sleep(chance.uniform(0, 3))
    time.sleep(chance.uniform(0, 0.6))
    trainer.kill()
    trainer.communicate()


# R2 and R3: a save is broken off at every single call to the system.

CALLS = ("write", "fsync", "rename", "replace", "link", "mkdir", "unlink", "rmdir")


def opened(path: Path) -> Run:
    """A run at step 60 that has checkpoints of steps 20 and 40 and has not saved since."""
    knobs = TINY | {"env": "Pendulum-v1", "engine": "reference", "steps": 90}
    knobs |= {"checkpoint_every": 20}
    run = Run.start(EnvMaker("Pendulum-v1", t3d.Config.from_dict(knobs)), RunFolder(path), about={})
    while run.collector.steps < 60:
        run.step()
        if run.collector.steps in (20, 40):
            run.checkpoint()
    return run


def break_off(at: int, how: Callable[[], None], half: bool) -> Callable[[], int]:
    """Do `how` at a certain system call; returns the function that counts the calls."""
    count = 0

    def spoil(name: str) -> None:
        real: Any = getattr(os, name)

        def spoiled(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at + 1:
                if name == "write" and half:
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                elif half:
                    real(*arguments, **named)
                how()
            return real(*arguments, **named)

        setattr(os, name, spoiled)

    for name in CALLS:
        spoil(name)
    return lambda: count


def in_a_fork(work: Callable[[], int]) -> int:
    """The exit code of some work in a forked process."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save_in(run: Run, path: Path, spoil: Callable[[], Any]) -> int:
    """Save into another folder, with something spoiled."""
    assert isinstance(run.store, DiskStore)
    run.store.folder = RunFolder(path)
    counted = spoil()
    try:
        run.checkpoint()
    except t3d.T3DError as error:
        return 3 if "No space left on device" in str(error) else 4
    return int(counted()) if callable(counted) else 0


def calls_of_a_save(run: Run, folder: Path) -> int:
    """How many calls to the system a save makes."""
    copy = shutil.copytree(run.folder.path, folder / "dry")
    total = in_a_fork(lambda: save_in(run, copy, lambda: break_off(10**9, lambda: None, False)))
    assert 10 < total < 90, total
    return total


def state_after(path: Path) -> str:
    """What is wrong with the checkpoints that a broken save has left."""
    newest = checkpoint.newest_valid(RunFolder(path))
    if newest is None or newest.manifest.step not in (40, 60):
        return "no valid checkpoint of step 40 or 60"
    if newest.damaged:
        return f"a half of a checkpoint is in the way: {newest.damaged}"
    return ""


def dying_saves(count: int, folder: Path) -> Iterator[Case]:
    """R2."""
    run = opened(folder / "run")
    total = calls_of_a_save(run, folder)
    for at, half in itertools.islice(
        itertools.product(range(0, total, max(1, 2 * total // count)), (False, True)), count
    ):
        copy = shutil.copytree(run.folder.path, folder / f"{at}-{half}")
        die = partial(break_off, at, partial(os._exit, 9), half)
        code = in_a_fork(partial(save_in, run, copy, die))
        wrong = "" if code == 9 else f"it was to die, and ended with {code}"
        wrong = wrong or state_after(copy)
        if not wrong:  # and the next save is not disturbed by what was left
            in_a_fork(partial(save_in, run, copy, lambda: None))
            after = checkpoint.newest_valid(RunFolder(copy))
            if after is None or after.manifest.step != 60:
                wrong = "the next save did not work"
        yield f"died {'in' if half else 'before'} call {at} of {total}", wrong
        shutil.rmtree(copy)
    run.close()


def full_disks(count: int, folder: Path) -> Iterator[Case]:
    """R3."""
    run = opened(folder / "run")
    total = calls_of_a_save(run, folder)

    def no_space() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # What removes old checkpoints, after the new one is there, needs no space.
    for at in range(0, total - 12, max(1, total // count)):
        copy = shutil.copytree(run.folder.path, folder / f"{at}")
        code = in_a_fork(partial(save_in, run, copy, partial(break_off, at, no_space, False)))
        wrong = "" if code == 3 else f"expected a clear error, got {code}"
        yield f"no space at call {at} of {total}", wrong or state_after(copy)
        shutil.rmtree(copy)
    full = full_tmpfs(run, folder)
    if full is not None:
        yield "a tmpfs that is full", full
    run.close()


def full_tmpfs(run: Run, folder: Path) -> str | None:
    """A real file system without space; None if this machine does not let us make one."""
    place = folder / "small"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode != 0:
        return None
    try:
        copy = shutil.copytree(run.folder.path, place / "run")
        (place / "filler").write_bytes(bytes(shutil.disk_usage(place).free - 4096))
        code = in_a_fork(lambda: save_in(run, copy, lambda: None))
        wrong = "" if code in (3, 4) else f"expected an error, got {code}"
        return wrong or state_after(copy)
    finally:
        subprocess.run(["umount", str(place)], check=True)


# R4: files that have changed.


def damages(count: int, folder: Path) -> Iterator[Case]:
    """R4."""
    run = trained(folder / "run")
    newest = RunFolder(run).newest_checkpoint()
    assert newest is not None
    chance = random.Random(4)
    names = sorted(os.listdir(newest))
    for number in range(count):
        name = names[number % len(names)]
        content = bytearray((newest / name).read_bytes())
        if number % 6 == 5:
            changed = bytes(content[: chance.randrange(len(content))])
            what = f"{name} cut to {len(changed)} bytes"
        else:
            bit = chance.randrange(8 * len(content))
            what = f"bit {bit} of {name}"
            content[bit // 8] ^= 1 << bit % 8
            changed = bytes(content)
        yield what, damaged(run, newest, name, changed)
    for name in names:
        yield f"{name} missing", damaged(run, newest, name, None)
    for name in ("memory-rows-0000000007.safetensors", "notes.txt", ".hidden"):
        yield f"{name} too many", damaged(run, newest, name, b"")


def damaged(run: Path, newest: Path, name: str, content: bytes | None) -> str:
    """What is wrong when a file of the newest checkpoint has this content."""
    file = newest / name
    before = file.read_bytes() if file.exists() else None
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    try:
        valid = checkpoint.newest_valid(RunFolder(run))
        if valid is None or valid.manifest.step != 40:
            return "not detected"
        return "" if name in valid.damaged[newest] else f"not named: {valid.damaged[newest]}"
    finally:
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)


# R5: files made to do harm.


class Bomb:
    """A pickle that touches a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def tensors(header: Any, content: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + content


def hostile_files(mark: Path, agent: bytes) -> dict[str, tuple[str, Any]]:
    """What is wrong, where it goes, and its content (or what makes it)."""
    bomb = pickle.dumps(Bomb(mark))
    stored = io.BytesIO()
    torch.save({"actor": Bomb(mark)}, stored)
    length = int.from_bytes(agent[:8], "little")
    header = json.loads(agent[8 : 8 + length])
    about = json.loads(header["__metadata__"]["t3d"])

    def lying(**changes: Any) -> bytes:
        metadata = {"t3d": json.dumps(about | changes)}
        return tensors(header | {"__metadata__": metadata}, agent[8 + length :])

    wide = about["config"] | {"hidden": [65_536] * 8}
    huge = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    negative = {"a": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}
    twice = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},' * 2
    newest = "checkpoints/step-000000000060"
    files: dict[str, tuple[str, Any]] = {}
    for name in ("agent", "best", "collector", "memory-rows-0000000000"):
        files[f"a pickle as {name}"] = (f"{newest}/{name}.safetensors", bomb)
    files |= {
        "a pickle as the best agent": ("best.safetensors", bomb),
        "a pickle as the manifest": (f"{newest}/manifest.json", bomb),
        "a pickle as the config": ("config.json", bomb),
        "a pickle as the metrics": ("metrics.jsonl", bomb),
        "torch.save as the best agent": ("best.safetensors", stored.getvalue()),
        "a header of 2**62 bytes": ("best.safetensors", tensors({}, length=2**62)),
        "a header of 90 MB": ("best.safetensors", tensors(b" " * 90_000_000)),
        "a shape of 4 TB": ("best.safetensors", tensors(huge)),
        "a negative shape": ("best.safetensors", tensors(negative, bytes(16))),
        "a header that never ends": ("best.safetensors", tensors(b'{"a":' * 100_000)),
        "a header with a name twice": ("best.safetensors", tensors(twice, b"0")),
        "networks of 137 GB": ("best.safetensors", lying(config=wide)),
        "a state of 10**12": ("best.safetensors", lying(state_dim=10**12)),
        "a million actions": ("best.safetensors", lying(low=[0] * 10**5, high=[1] * 10**5)),
        "an action range of text": ("best.safetensors", lying(low="a", high="b")),
        "a config of 100 MB": ("config.json", b'{"env": "' + b"x" * 10**8 + b'"}'),
        "a config that never ends": ("config.json", b"[" * 10**6),
        "a manifest that leads outside": (f"{newest}/manifest.json", outside),
        "a link to a file outside": (f"{newest}/agent.safetensors", link),
        "a pipe that never speaks": (f"{newest}/agent.safetensors", os.mkfifo),
        "a best agent that never speaks": ("best.safetensors", os.mkfifo),
        "a folder as the best agent": ("best.safetensors", os.mkdir),
    }
    return files


def outside(path: Path) -> None:
    """A manifest, well sealed, that names a file above its folder."""
    manifest = json.loads((path.parent / "good" / "manifest.json").read_text())
    secret = path.parents[3] / "secret.safetensors"
    secret.write_bytes(b"secret")
    manifest["files"]["../../../secret.safetensors"] = manifest["files"]["agent.safetensors"]
    del manifest["sha256"]
    path.write_bytes(seal(manifest))


def link(path: Path) -> None:
    """A link to a file elsewhere with the right content."""
    elsewhere = path.parents[3] / "elsewhere.safetensors"
    shutil.copy(path.parent / "good" / path.name, elsewhere)
    path.symlink_to(elsewhere)


def hostile(count: int, folder: Path) -> Iterator[Case]:
    """R5."""
    run, mark = trained(folder / "run"), folder / "executed"
    agent = (run / "best.safetensors").read_bytes()
    cases = hostile_files(mark, agent)
    chosen = list(cases.items())[:: max(1, len(cases) // count)]
    for number, (what, (name, content)) in enumerate(chosen):
        copy = shutil.copytree(run, folder / f"{number}" / "run")
        file = copy / name
        if name.startswith("checkpoints"):
            good = shutil.copytree(file.parent, folder / f"{number}" / "good")
            if content in (outside, link):
                shutil.copytree(good, file.parent / "good")
        file.unlink()
        if callable(content):
            content(file)
        else:
            file.write_bytes(content)
        shutil.rmtree(file.parent / "good", ignore_errors=True)
        listing = sorted(os.listdir(folder))
        code = in_a_fork(partial(look_at_all, copy))
        wrong = {0: "", 5: "took more than 100 MB"}.get(code, f"ended with {code}")
        if mark.exists():
            wrong = "it was executed"
        if sorted(os.listdir(folder)) != listing:
            wrong = "something was written outside"
        yield what, wrong
        shutil.rmtree(folder / f"{number}")


def look_at_all(run: Path) -> int:
    """Load all that can be loaded of a run: 0 if what is bad was refused in one line each."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(60)
    for look in (
        lambda: t3d.load(run),
        lambda: t3d.load(run, which="last"),
        lambda: t3d.inspect(run),
        lambda: t3d.resume(run, steps=61, quiet=True),
    ):
        try:
            look()
        except t3d.T3DError as error:
            if "\n" in str(error):
                return 7
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 5 if after - before > 100 * 1024 else 0


# R6: configs that make no sense.

NONSENSE: list[Any] = [None, "x", "", -1, 1.5, 10**30, [], [0], {}, [[1]], True, "1e3", "nan", -1e9]


def bad_configs(count: int, folder: Path) -> Iterator[Case]:
    """R6."""
    run = trained(folder / "run")
    file = run / "config.json"
    good = json.loads(file.read_text())
    texts = ["", "{", "[]", "null", "1", '{"env": 1}', "\x00", '{"env": "x",}', '{"typo": 1}']
    for knob, value in itertools.product(good, NONSENSE):
        changed = good | {knob: value}
        with contextlib.suppress(t3d.T3DError):
            t3d.Config.from_dict(changed)
            continue  # makes sense after all
        texts.append(json.dumps(changed))
    texts = texts[:: max(1, 2 * len(texts) // count)]
    for text in texts + drawn_configs(good, count - len(texts)):
        file.write_text(text)
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            code = main(["resume", str(run), "--steps", "90"])
        lines = stderr.getvalue().splitlines()
        right = code == 2 and len(lines) == 1 and "Traceback" not in lines[0]
        yield f"config {text[-60:]!r}", "" if right else f"exit {code}: {stderr.getvalue()}"


def drawn_configs(good: dict[str, Any], count: int) -> list[str]:
    """Some configs that Hypothesis breaks: any JSON for any knob, and unknown knobs."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    knobs = st.sampled_from(sorted(good)) | st.text()
    refused: list[str] = []

    @settings(max_examples=3 * count, database=None, derandomize=True, deadline=None)
    @given(st.dictionaries(knobs, values, min_size=1))
    def draw(changes: dict[str, Any]) -> None:
        try:
            t3d.Config.from_dict(good | changes)
        except t3d.T3DError:
            refused.append(json.dumps(good | changes))

    draw()
    return refused[:count]


# R7: environments that break the rules.


def broken_environments(count: int, folder: Path) -> Iterator[Case]:
    """R7."""
    kinds: list[Any] = [
        kind
        for kind in vars(broken_envs).values()
        if isinstance(kind, type) and issubclass(kind, broken_envs.Calm)
    ]
    kinds = [kind for kind in kinds if kind not in broken_envs.WELL_BEHAVED]
    for number, kind in enumerate(kinds[:: max(1, len(kinds) // count)]):
        run = folder / f"{number}"
        wrong = "it was let through"
        try:
            trained(run, kind, log_every=1)
        except t3d.T3DError as error:
            named = kind.__name__ in str(error) and "\n" not in str(error)
            wrong = "" if named else f"not named, or not in one line: {error}"
        newest = checkpoint.newest_valid(RunFolder(run)) if run.exists() else None
        for file in newest.path.glob("memory-*") if newest else ():
            if not all(np.isfinite(array).all() for array in load_file(file).values()):
                wrong = "something that is not finite was stored"
        yield kind.__name__, wrong
    yield from odd_environments(count, folder / "odd")


# R8: numbers that break.


def broken_numbers(count: int, folder: Path) -> Iterator[Case]:
    """R8."""
    kinds = itertools.product(
        ("a gradient of the critic", "a weight of the critic", "a weight of the actor", "a batch"),
        ("fused", "reference"),
        (float("nan"), float("inf")),
    )
    for number, (what, engine, value) in enumerate(itertools.islice(kinds, count)):
        yield (
            f"{value} into {what}, {engine}",
            broken_number(folder / f"{number}", what, engine, value),
        )


def broken_number(path: Path, what: str, engine: str, value: float) -> str:
    """What is wrong when a number of an agent becomes nan or infinite in the middle of a run."""
    knobs = TINY | {"env": "Pendulum-v1", "engine": engine, "steps": 90}
    run = Run.start(EnvMaker("Pendulum-v1", t3d.Config.from_dict(knobs)), RunFolder(path), about={})
    try:
        while run.collector.steps < 50:
            run.step()
            if run.collector.steps == 40:
                run.checkpoint()
        updates = run.agent.updates
        if what == "a batch":
            run.memory.reward[:50] = value
        else:
            network = run.agent.actor if "actor" in what else run.agent.critic
            weight = next(network.parameters())
            if "gradient" in what:  # what Adam makes of it
                adam: Any = run.agent.optimizers["critic"]
                adam.state[weight]["exp_avg"].data.view(-1)[0] = value
            else:
                weight.data.view(-1)[0] = value
        try:
            run.loop()
        except t3d.T3DError as error:
            if "diverged" not in str(error):
                return f"unclear: {error}"
        else:
            return "not noticed"
        if run.agent.updates > updates + 2:
            return f"noticed only after {run.agent.updates - updates} updates"
        bundles = list(path.glob("broken-step-*"))
        if len(bundles) != 1 or not health.broken(health.reproduce(bundles[0])):
            return "the bundle does not reproduce it"
        newest = checkpoint.newest_valid(RunFolder(path))
        return "" if newest and newest.manifest.step == 40 else "no good checkpoint is left"
    finally:
        run.close()


# R9: environments in processes that die or hang.


def lost_workers(count: int, folder: Path) -> Iterator[Case]:
    """R9: every sixth is stopped, the others are killed."""
    knobs = TINY | {
        "num_envs": 3,
        "env_backend": "processes",
        "env_restarts": count,
        "steps": 10**6,
    }
    knobs |= {"eval_every": 0, "checkpoint_every": 0, "env_deadline": 2.0, "capacity": 10**5}
    config = t3d.Config.from_dict(knobs | {"env": "helpers.broken_envs:Numbered"})
    run = Run.start(
        EnvMaker("helpers.broken_envs:Numbered", config), RunFolder(folder / "run"), about={}
    )
    chance = random.Random(9)
    assert isinstance(run.collector, Collector)
    workers: Any = run.collector.environments.vector
    try:
        for number in range(count):
            for _ in range(chance.randrange(1, 20)):
                run.step()
            victim = workers.processes[chance.randrange(3)]
            sent = signal.SIGSTOP if number % 6 == 5 else signal.SIGKILL
            os.kill(victim.pid, sent)
            before = len(run.progress.not_bit_exact)
            run.step()
            run.step()
            wrong = "" if len(run.progress.not_bit_exact) == before + 1 else "no restart was noted"
            yield f"{sent.name} {number}", wrong or out_of_order(run)
    finally:
        run.close()
    left = [process for process in workers.processes if process.is_alive()]
    yield "nothing is left running", f"{left}" if left else ""


def out_of_order(run: Run) -> str:
    """What the numbers that the environments put into their observations say."""
    memory, steps = run.memory, run.collector.steps
    if memory.size != steps:
        return f"{memory.size} rows of {steps} steps"
    seen: dict[float, int] = {}
    for state, after in zip(memory.state[:steps], memory.next_state[:steps]):
        episode, count = float(state[0]), int(state[1])
        if count != seen.get(episode, 0) or after[0] != state[0] or after[1] != count + 1:
            return f"step {count} of episode {episode} is lost or doubled"
        seen[episode] = count + 1
    return ""


# R10: nothing grows.


def long_runs(count: int, folder: Path) -> Iterator[Case]:
    """R10: `count` thousand updates."""
    config = t3d.Config(hidden=(8,), batch_size=32, threads=2)
    agent, memory = t3d.FusedT3D(3, [-1], [1], config), filled_memory(100)
    agent.train(memory, 5_000)
    before = footprint()
    for _ in range(count):
        agent.train(memory, 1_000)
    after = footprint()
    yield "resident memory", "" if after[0] - before[0] < 5_000 else f"{before[0]} to {after[0]} kB"
    yield "descriptors", "" if after[1] == before[1] else f"{before[1]} to {after[1]}"
    yield "threads", "" if after[2] == before[2] else f"{before[2]} to {after[2]}"


def footprint() -> tuple[int, int, int]:
    """Resident kilobytes, open descriptors and threads of this process."""
    status = Path("/proc/self/status").read_text()
    resident = next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))
    return resident, len(os.listdir("/proc/self/fd")), threading.active_count()


# R11: real signals.


def signals(count: int, folder: Path) -> Iterator[Case]:
    """R11."""
    chance = random.Random(11)
    for number in range(count):
        sent = (signal.SIGINT, signal.SIGTERM)[number % 2]
        more = {"num_envs": 2, "env_backend": "processes"} if number % 4 < 2 else {}
        run = folder / f"{number}"
        knobs = TINY | LONGER | {"steps": 1_000_000} | more
        shared = set(os.listdir("/dev/shm"))
        trainer = process([*command("Pendulum-v1", knobs), "--run", str(run)], folder)
        while trainer.poll() is None and not (run / "metrics.jsonl").exists():
            time.sleep(0.01)
        time.sleep(chance.uniform(0.5, 1.5))
        # Every second time to all of its processes, as a terminal or a batch system does.
        everyone = [int(line.split()[0]) for line in in_session(trainer.pid)]
        for each in everyone if number % 4 in (0, 1) else [trainer.pid]:
            with contextlib.suppress(ProcessLookupError):  # one that was just made to compile, say
                os.kill(each, sent)
        out, err = trainer.communicate(timeout=300)
        wrong = ""
        if trainer.returncode != 128 + sent or err:
            wrong = f"exit {trainer.returncode}: {err}"
        elif "Stopped and saved. Resume with:" not in out or t3d.inspect(run)["step"] is None:
            wrong = "not saved"
        elif not t3d.inspect(run)["bit_exact"]:
            wrong = "an environment was restarted"
        elif in_session(trainer.pid):
            wrong = f"left running: {in_session(trainer.pid)}"
        elif set(os.listdir("/dev/shm")) - shared:
            wrong = "left shared memory"
        yield f"{sent.name} to run {number}", wrong


# R12: one trainer at a time.


def two_trainers(count: int, folder: Path) -> Iterator[Case]:
    """R12."""
    run = folder / "run"
    knobs = TINY | LONGER | {"steps": 1_000_000}
    first = process([*command("Pendulum-v1", knobs), "--run", str(run)], folder)
    while first.poll() is None and not list(run.glob("checkpoints/step-*")):
        time.sleep(0.01)
    for number in range(count):
        second = process(["resume", str(run)], folder)
        _, errors = second.communicate(timeout=300)
        right = second.returncode == 2 and f"in use by process {first.pid}" in errors
        yield f"second trainer {number}", "" if right else f"exit {second.returncode}: {errors}"
    first.terminate()
    first.communicate(timeout=300)
    yield "the first continues", "" if first.returncode == 143 else f"exit {first.returncode}"


ROWS = {
    "R1": Row(
        "SIGKILL at any moment, resume: the digest of an uninterrupted run", 200, 2, kills, 5
    ),
    "R2": Row("death at every call to the system of a save", 120, 16, dying_saves),
    "R3": Row("no space left, at every call of a save and on a full disk", 60, 8, full_disks),
    "R4": Row("bits flipped, files cut, missing, too many", 1200, 60, damages),
    "R5": Row("files made to do harm", 26, 26, hostile),
    "R6": Row("configs that make no sense", 200, 40, bad_configs),
    "R7": Row("environments that break the rules", 500, 40, broken_environments),
    "R8": Row("nan and infinity into gradient, weight and batch", 16, 8, broken_numbers),
    "R9": Row("SIGKILL and SIGSTOP to processes of environments", 120, 6, lost_workers),
    "R10": Row("a million fused updates: memory, descriptors, threads", 1000, 10, long_runs),
    "R11": Row("Ctrl-C and SIGTERM", 50, 2, signals),
    "R12": Row("two trainers, one folder", 5, 1, two_trainers),
    "R13": Row("memories, extensions, edited configs: exact, or said not to be", 60, 6, exact),
    "R14": Row("environments that crash, hang, fork, print or change things", 90, 15, surroundings),
    "R15": Row("every signal that asks to end, at every moment", 48, 2, stop_signals),
    "R16": Row("outputs that cannot be written", 119, 2, unwritable),
    **rows_folders.ROWS,
    "R19": Row("both engines on random configs: the same numbers", 200, 4, engine_configs, 20),
    "R20": Row("caches of compiled code, damaged or of others", 24, 1, damaged_caches),
    "R21": Row("SIGKILL of TD7 with priorities", 40, 1, partial(kills, variants=TD7_VARIANTS)),
}
