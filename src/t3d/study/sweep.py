"""A sweep: every run that its spec asks for, trained in parallel. Started again, it resumes.

runs/NAME/
  sweep.json                    the spec
  lock                          held by the sweep while it trains
  Pendulum-v1-tau-0.01-seed0/   a run like any other
  Pendulum-v1-tau-0.01-seed0.log   its output, if it failed
"""

import dataclasses
import json
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.base.machine import cores, usable_device
from t3d.config import Config
from t3d.learn.engines import agent_class
from t3d.play.envs import EnvMaker
from t3d.remote.cluster import connect
from t3d.run import checkpoint
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock, is_locked
from t3d.run.signals import StopSignal
from t3d.study.spec import Spec, SweepRun, runs_of
from t3d.study.workers import Job, Process, Task, Worker, job

_PATIENCE = 120.0  # seconds for the runs of an earlier, killed sweep to save
_POLL = 0.1  # seconds between looks at the workers
AnyJob = TypeVar("AnyJob", bound=Job)


class Display(Protocol):
    """Shows how the runs of a sweep are doing."""

    def refresh(self) -> None:
        """Called every tenth of a second."""

    def close(self) -> None:
        """Called once, at the end."""


class SweepOutcome(NamedTuple):
    """How a sweep ended."""

    runs: list[SweepRun]
    signal: int | None  # the signal that stopped it; None if every run has ended


def train_sweep(
    spec: Spec,
    out: Path,
    jobs: int | None,
    address: str | None,
    display: Callable[[list[SweepRun], int], Display],
    stopping: Callable[[], None],
) -> SweepOutcome:
    """Train every run that is not finished, `jobs` at a time, here or on the Ray cluster there.

    `display` is called with the runs and the jobs, `stopping` when a signal comes.
    """
    runs = runs_of(spec, out)
    check(runs, spec, elsewhere=address is not None)
    with ExitStack() as last_first:
        ray, available = None, cores()
        if address is not None:
            ray, disconnect = connect(address, available)
            last_first.callback(disconnect)
            available = int(ray.cluster_resources().get("CPU", 0))
        jobs = assign_threads(runs, spec, available, jobs)
        threads = max(run.config.threads for run in runs)
        if ray and threads > available:  # Ray would wait for them for ever
            raise BadInput(f"threads is {threads}; the cluster at {address} has {available} CPUs")
        prepare_folder(out, spec)
        last_first.callback(Lock(RunFolder(out)).release)
        with StopSignal(stopping).caught() as stop:
            shown = display(runs, jobs)
            last_first.callback(shown.close)
            mark_finished(runs, stop)

            def start(run: SweepRun) -> Worker:
                return Task(ray, run) if ray else Process(job(run), run.log, run.config.threads)

            train_runs(runs, jobs, start, stop, shown.refresh)
        return SweepOutcome(runs, stop.number)


def check(runs: list[SweepRun], spec: Spec, elsewhere: bool) -> None:
    """Refuse what cannot work before anything starts. `elsewhere` there are other devices."""
    for run in runs:
        if run.path.exists():
            _check_same(run, RunFolder.open(run.path).config(), spec)
    for run in runs:
        if run.config.single_env:
            raise BadInput("single_env is for one run; train the runs of a sweep one by one")
        if elsewhere and run.config.collectors:
            what = "collectors in a sweep on Ray would wait for each other's CPUs"
            raise BadInput(f"{what}; leave out collectors, or --ray")
        if run.config.seed == spec.seeds[0]:
            env = EnvMaker(run.config.env, run.config).make()
            try:
                agent_class(run.config, env.layout)
            finally:
                env.close()
            if not elsewhere:
                usable_device(run.config.device)


def _check_same(run: SweepRun, existing: Config, spec: Spec) -> None:
    """Refuse a folder of another config. More steps, and what we chose ourselves, may differ."""
    for name, wanted in vars(run.config).items():
        value = getattr(existing, name)
        ours = (name == "threads" and name not in spec.knobs) or (name, wanted) in (
            ("engine", "auto"),
            ("remake_envs", False),
        )
        if value != wanted and not ours and not (name == "steps" and value < wanted):
            what = f"{name} is {value!r} there and {wanted!r} here"
            advice = "choose another folder with --out (of train: --run)"
            raise BadInput(f"{run.path} holds another run: {what}; {advice}")


def assign_threads(runs: list[SweepRun], spec: Spec, available: int, jobs: int | None) -> int:
    """Divide the cores among the runs, unless the spec sets `threads`.

    Returns how many runs to train at a time, by default as many as there are cores for.
    """
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs is {jobs}; expected at least 1")
    per_run = max(run.config.threads for run in runs) if "threads" in spec.knobs else 1
    jobs = min(jobs or max(1, available // max(1, per_run)), len(runs))
    if "threads" not in spec.knobs:
        threads = max(1, available // jobs)
        for run in runs:
            run.config = dataclasses.replace(run.config, threads=threads)
    return jobs


def prepare_folder(out: Path, spec: Spec) -> None:
    """Make a sweep's folder, or use it again, and write the spec into it."""
    if out.is_dir() and not (out / "sweep.json").is_file() and any(out.iterdir()):
        raise BadInput(f"{out} exists and is not the folder of a sweep; choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_write(out, error) from error
    text = json.dumps(dataclasses.asdict(spec), indent=2) + "\n"
    files.save(out / "sweep.json", text.encode())


def mark_finished(runs: list[SweepRun], stop: Callable[[], bool]) -> None:
    """Mark the finished runs, once those that an earlier, killed sweep left have saved."""
    until = time.monotonic() + _PATIENCE
    for run in runs:
        folder = RunFolder(run.path)
        while is_locked(folder) and not stop():
            if time.monotonic() > until:
                raise BadInput(f"{run.path} is in use by another process; stop that one first")
            time.sleep(_POLL)
        with suppress(T3DError):  # a damaged one is trained, and fails with the reason
            if folder.score() and checkpoint.has_finished(folder, run.config.steps):
                run.state = "finished"
                run.log.unlink(missing_ok=True)  # it may have finished after its sweep was killed


def train_runs(
    runs: list[AnyJob],
    jobs: int,
    start: Callable[[AnyJob], Worker],
    stop: Callable[[], bool],
    refresh: Callable[[], None],
) -> None:
    """Train the waiting runs, `jobs` at a time, until all have ended or `stop` returns True."""
    waiting = [run for run in runs if run.state == "waiting"]
    workers: list[tuple[AnyJob, Worker]] = []
    stopping = False
    try:
        while workers or (waiting and not stop()):
            while waiting and len(workers) < jobs and not stop():
                run = waiting.pop(0)
                workers.append((run, start(run)))
                run.state = "training"
            time.sleep(_POLL)
            # Before they are asked: one that heard the signal, too, has not failed.
            if stop() and not stopping:
                stopping = True
                for _, worker in workers:
                    worker.stop()
            for run, worker in workers:
                run.state, run.why = worker.ended() or (run.state, run.why)
            workers = [pair for pair in workers if pair[0].state == "training"]
            refresh()
    finally:
        for _, worker in workers:
            worker.kill()
