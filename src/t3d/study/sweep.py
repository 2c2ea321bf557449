"""Many runs: environments x variants x knobs x seeds, each cell a run folder of its own.

runs/NAME/
  sweep.json                    what was asked for
  lock                          held by the sweep that goes on
  Pendulum-v1-tau-0.01-seed0/   a cell
  Pendulum-v1-tau-0.01-seed0.log   what it printed, if it failed
"""

import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_origin

from t3d.base import files
from t3d.base.errors import BadInput, CannotWrite, T3DError
from t3d.base.machine import usable_device
from t3d.base.text import did_you_mean
from t3d.config import Config, knob_types
from t3d.learn.engines import agent_class
from t3d.play.envs import EnvMaker
from t3d.presets import resolve, train_command
from t3d.remote.cluster import last_line
from t3d.run import checkpoint
from t3d.run.folder import Record, RunFolder, safe_name
from t3d.run.lock import is_locked
from t3d.study.cell import STOPPED, attempt

_MOST_CELLS = 10_000
_LARGEST_SPEC = 2**20
_PATIENCE = 120.0  # seconds that what an earlier sweep left may take to save
_BLINK = 0.1  # seconds between looks at what goes on


@dataclass(frozen=True)
class Spec:
    """What a sweep is made of. A knob with a list (of lists, if it takes lists) is an axis.

    A variant is a name for some knobs that differ together, as those of an ablation do.
    """

    env: list[str]
    seeds: list[int]
    preset: str
    knobs: Record
    variants: dict[str, Record] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Record) -> "Spec":
        """Check the words of sweep.toml or sweep.json. What knobs may be, `Config` checks."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                advice = did_you_mean(name, names) or f"; expected one of: {', '.join(names)}"
                if name in knob_types and name != "seed":
                    advice = "; knobs go under [knobs]"
                raise BadInput(f"a sweep has no {name!r}{advice}")
        env = values.get("env")
        env = [env] if isinstance(env, str) else env
        if not isinstance(env, list) or not env or not all(isinstance(e, str) for e in env):
            raise BadInput(f"env is {env!r}; expected the name of an environment, or a list")
        preset, knobs = values.get("preset", "auto"), values.get("knobs", {})
        if not isinstance(preset, str):
            raise BadInput(f"preset is {preset!r}; expected a name that `t3d presets` lists")
        _check_knobs("knobs", knobs)
        variants = values.get("variants", {})
        if not isinstance(variants, dict):
            raise BadInput(f"variants is {variants!r}; expected tables, [variants.NAME]")
        spec = cls(env, _seeds(values.get("seeds", 1)), preset, knobs, variants)
        for variant, its in variants.items():
            _check_knobs(f"variants.{variant}", its)
            for name in its:
                if name in spec.axes() or name == "threads":
                    what = "an axis" if name in spec.axes() else "shared out to all cells alike"
                    raise BadInput(f"{name} is {what}; take it out of [variants.{variant}]")
        return spec

    def axes(self) -> dict[str, list[Any]]:
        """The knobs with several values to try, in the order of `Config`: it names folders."""
        found = {}
        for name in knob_types:
            value = self.knobs.get(name)
            if isinstance(value, list):
                takes_lists = get_origin(knob_types[name]) is tuple
                if not takes_lists or any(isinstance(item, list) for item in value):
                    found[name] = value
        return found


def _check_knobs(table: str, knobs: Any) -> None:
    if not isinstance(knobs, dict):
        raise BadInput(f"{table} is {knobs!r}; expected a table, [{table}]")
    for name, value in knobs.items():
        if name in ("env", "seed"):
            instead = "seeds" if name == "seed" else name
            raise BadInput(f"{name} is no knob of a sweep; say {instead}, above [{table}]")
        if name not in knob_types:
            raise BadInput(f"unknown knob {name!r}{did_you_mean(name, knob_types)}")
        if value == []:
            raise BadInput(f"{name} is an empty list; expected at least one value")


def _seeds(seeds: Any) -> list[int]:
    several = seeds if isinstance(seeds, list) else [seeds]
    if not several or not all(type(seed) is int and seed >= 0 for seed in several) or seeds == 0:
        raise BadInput(f"seeds is {seeds!r}; expected how many, at least 1, or a list of seeds")
    if len(set(several)) < len(several):
        raise BadInput(f"seeds is {seeds!r}: one is there twice")
    if not isinstance(seeds, list):
        several = list(range(min(seeds, _MOST_CELLS + 1)))
    return several


def read_spec(path: Path) -> Spec:
    """The spec of a TOML file, or of the folder of a sweep that began."""
    if path.is_dir():
        if not (path / "sweep.json").is_file():
            raise BadInput(f"{path} is not the folder of a sweep: it has no sweep.json")
        return Spec.from_dict(files.read_json(path / "sweep.json"))
    try:
        return Spec.from_dict(tomllib.loads(files.read(path, _LARGEST_SPEC).decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error


@dataclass
class Cell:
    """One run of a sweep, and how it is doing."""

    path: Path
    setting: str  # the values of the axes, in words
    preset: str
    config: Config
    state: str = "waiting"  # then training, and then finished, stopped or failed
    why: str = ""  # it failed

    @property
    def log(self) -> Path:
        """What its process prints goes here, and stays if it fails."""
        return self.path.with_name(f"{self.path.name}.log")


def cells_of(spec: Spec, out: Path) -> list[Cell]:
    """Every cell of a sweep, with its config checked."""
    axes, variants = spec.axes(), spec.variants or {"": {}}
    count = len(spec.env) * len(variants) * len(spec.seeds) * math.prod(map(len, axes.values()))
    if count > _MOST_CELLS:
        raise BadInput(f"the sweep has {count:,} cells or more; expected at most {_MOST_CELLS:,}")
    cells: dict[str, Cell] = {}
    for env in spec.env:
        preset, base = resolve(env, spec.preset)
        for variant, *values in itertools.product(variants, *axes.values()):
            knobs = dataclasses.asdict(base) | spec.knobs | variants[variant]
            knobs |= dict(zip(axes, values))
            for seed in spec.seeds:
                config = Config.from_dict(knobs | {"env": env, "seed": seed})
                words = [f"{axis} {_word(getattr(config, axis))}" for axis in axes]
                words = [variant, *words] if variant else words
                name = safe_name("-".join([env, *words, f"seed{seed}"]))
                if name in cells:
                    what = "a value of an axis, or a variant, is there twice"
                    raise BadInput(f"two cells would be {name}: {what}")
                cells[name] = Cell(out / name, ", ".join(words), preset, config)
    return list(cells.values())


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def check(cells: list[Cell], spec: Spec, elsewhere: bool) -> None:
    """Refuse what cannot work before anything starts; what is `elsewhere` has other devices."""
    for cell in cells:
        if cell.path.exists():
            _check_same(cell, RunFolder.open(cell.path).config(), spec)
    for cell in cells:
        if elsewhere and cell.config.collectors:
            what = "collectors in a sweep on Ray would wait for each other's CPUs"
            raise BadInput(f"{what}; leave out collectors, or --ray")
        if cell.config.seed == spec.seeds[0]:
            env = EnvMaker(cell.config.env, cell.config).make()
            try:
                agent_class(cell.config, env.layout)
            finally:
                env.close()
            if not elsewhere:
                usable_device(cell.config.device)


def _check_same(cell: Cell, there: Config, spec: Spec) -> None:
    """Refuse a folder of another config. More steps go further; what we chose ourselves may be."""
    for name, asked in vars(cell.config).items():
        had = getattr(there, name)
        ours = (name == "threads" and name not in spec.knobs) or (name, asked) == ("engine", "auto")
        if had != asked and not ours and not (name == "steps" and had < asked):
            what = f"{name} is {had!r} there and {asked!r} here"
            advice = "take another folder (--out; of train, --run)"
            raise BadInput(f"{cell.path} holds another run: {what}; {advice}")


def begin_folder(out: Path, spec: Spec) -> None:
    """Make a sweep's folder, or take it up again, and keep the spec in it."""
    if out.is_dir() and not (out / "sweep.json").is_file() and any(out.iterdir()):
        raise BadInput(f"{out} is there and is not the folder of a sweep; take another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(spec), indent=2) + "\n"
        files.replace(out / "sweep.json", text.encode())
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written: {error.strerror or error}") from error


def see_what_is_done(cells: list[Cell], stop: Callable[[], bool]) -> None:
    """Mark the finished cells, once those that an earlier, killed sweep left have saved."""
    until = time.monotonic() + _PATIENCE
    for cell in cells:
        folder = RunFolder(cell.path)
        while is_locked(folder) and not stop():
            if time.monotonic() > until:
                raise BadInput(f"{cell.path} is in use by another process; stop that one first")
            time.sleep(_BLINK)
        with suppress(T3DError):  # of a damaged one, the cell itself says what is wrong
            if folder.score() and checkpoint.has_finished(folder, cell.config.steps):
                cell.state = "finished"
                cell.log.unlink(missing_ok=True)  # it may have come to its end alone


class Worker(Protocol):
    """Someone who trains one cell."""

    def ended(self) -> tuple[str, str] | None:
        """The state in which the cell ended, and why if it failed; None while it goes on."""

    def stop(self) -> None:
        """Have it save and end."""

    def kill(self) -> None:
        """End it at once."""


def run(
    cells: list[Cell],
    jobs: int,
    begin: Callable[[Cell], Worker],
    stop: Callable[[], bool],
    watch: Callable[[], None],
) -> None:
    """Have the cells that wait trained, `jobs` at a time, until all have ended or `stop` says so.

    `watch` is called every while, to show how they are doing.
    """
    waiting = [cell for cell in cells if cell.state == "waiting"]
    workers: list[tuple[Cell, Worker]] = []
    told = False
    try:
        while workers or (waiting and not stop()):
            while waiting and len(workers) < jobs and not stop():
                cell = waiting.pop(0)
                workers.append((cell, begin(cell)))
                cell.state = "training"
            if stop() and not told:
                told = True
                for _, worker in workers:
                    worker.stop()
            time.sleep(_BLINK)
            for cell, worker in workers:
                cell.state, cell.why = worker.ended() or (cell.state, cell.why)
            workers = [pair for pair in workers if pair[0].state == "training"]
            watch()
    finally:
        for _, worker in workers:
            worker.kill()


class Process:
    """A cell in a process of its own, which ends with this one, however this one ends."""

    def __init__(self, cell: Cell) -> None:
        threads = str(cell.config.threads or "")
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        own = {name: threads for name in names if threads}  # if nobody chose them
        self._stopping = False
        self._log = cell.log
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "t3d.study.cell"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=own | os.environ,
                process_group=0,  # the terminal's Ctrl-C is for the sweep, which tells the cells
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once, which shows
            self._process.stdin.write(job(cell).encode() + b"\n")
            self._process.stdin.flush()

    def ended(self) -> tuple[str, str] | None:
        """See `Worker`."""
        code = self._process.poll()
        if code is None:
            return None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if code == 0 or (self._stopping and code in (STOPPED, -signal.SIGTERM)):
            self._log.unlink(missing_ok=True)
            return ("finished" if code == 0 else "stopped"), ""
        if code < 0 or code == STOPPED:
            return "failed", f"ended by {signal.Signals(-code if code < 0 else code - 128).name}"
        printed = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        return "failed", printed[-1].strip() if printed else f"exit code {code}"

    def stop(self) -> None:
        """See `Worker`."""
        self._stopping = True
        self._process.terminate()

    def kill(self) -> None:
        """See `Worker`."""
        self._process.kill()
        self._process.communicate()


class Task:
    """A cell as a task of Ray, wherever that finds room for it."""

    def __init__(self, ray: Any, cell: Cell) -> None:
        self._ray = ray
        needs = {"num_cpus": cell.config.threads or 1}
        needs["num_gpus"] = int(cell.config.device.startswith("cuda"))
        task = ray.remote(**needs, max_retries=0)(_attempt)
        self._answer = task.remote(job(cell))

    def ended(self) -> tuple[str, str] | None:
        """See `Worker`."""
        done, _ = self._ray.wait([self._answer], timeout=0)
        if not done:
            return None
        try:
            state, why = self._ray.get(self._answer)
            return state, why
        except self._ray.exceptions.TaskCancelledError:  # before it began to play
            return "stopped", ""
        except self._ray.exceptions.RayError as error:
            return "failed", last_line(error)

    def stop(self) -> None:
        """See `Worker`. Ray raises SIGINT in the task, which saves."""
        self._ray.cancel(self._answer, force=False)

    def kill(self) -> None:
        """See `Worker`."""
        self._ray.cancel(self._answer, force=True)


def _attempt(job: str) -> tuple[str, str]:
    return attempt(json.loads(job))


def job(cell: Cell) -> str:
    """What whoever trains a cell must know, as a line of JSON."""
    about = {"preset": cell.preset, "command": train_command(cell.config)}
    config = dataclasses.asdict(cell.config)
    return json.dumps({"run": str(cell.path.absolute()), "config": config, "about": about})


def share(cells: list[Cell], spec: Spec, cores: int, jobs: int | None) -> int:
    """How many cells to train at once, by default as many as there are cores, which they share."""
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs is {jobs}; expected at least 1")
    asked = max(cell.config.threads for cell in cells) if "threads" in spec.knobs else 1
    jobs = min(jobs or max(1, cores // max(1, asked)), len(cells))
    if "threads" not in spec.knobs:
        threads = max(1, cores // jobs)
        for cell in cells:
            cell.config = dataclasses.replace(cell.config, threads=threads)
    return jobs
