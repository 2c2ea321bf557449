"""What `import t3d` offers for complete runs: train, resume, inspect, load, evaluate, make_env."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from t3d.base.errors import BadInput
from t3d.base.machine import cores
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import AgentSource, by_name
from t3d.learn.networks import Body
from t3d.play.envs import EnvMaker, EnvSource, GuardedEnv, env_name
from t3d.presets import resolve
from t3d.remote.cluster import connect
from t3d.run.agents import evaluate as evaluate
from t3d.run.agents import load as load
from t3d.run.finish import finish
from t3d.run.folder import RunFolder
from t3d.run.inspect import inspect as inspect
from t3d.run.lock import Lock
from t3d.run.session import Outcome as Outcome
from t3d.run.session import about as about
from t3d.run.signals import StopSignal
from t3d.run.watchers import Watcher
from t3d.show import progress
from t3d.show.pictures import pictures
from t3d.show.sweep import SweepWatcher
from t3d.show.terminal import PatientConsole, say
from t3d.study.sweep import (
    Cell,
    Process,
    Spec,
    Task,
    Worker,
    begin_folder,
    cells_of,
    check,
    see_what_is_done,
    share,
)
from t3d.study.sweep import run as run_cells

if TYPE_CHECKING:
    from optuna import Study

    from t3d.study.tune import Plan


def train(
    env: EnvSource | None = None,
    *,
    preset: str = "auto",
    run: str | Path | None = None,
    watchers: Sequence[Watcher] = (),
    video: bool = False,
    quiet: bool = False,
    **knobs: Any,
) -> Agent:
    """Train an agent, score it, and return the best one that was evaluated.

    `env` is a Gymnasium id, module:EnvId, module:callable, or a callable that makes an
    environment; by default Pendulum-v1, or the environment of the preset's file. `preset` is a
    name or a TOML file. `run` is the folder to write; by default a new one under runs/.
    `watchers` follow the run and may stop it. `video` records an episode at the end; `quiet`
    prints nothing. `knobs` are fields of `Config`, over those of the preset; `agent` may be a
    class of your own, and `body` a callable. Ctrl-C saves, then raises KeyboardInterrupt.
    """
    preset, config = resolve(None if env is None else env_name(env), preset)
    config = Config.from_dict(dataclasses.asdict(config) | by_name(knobs))
    folder = RunFolder(run or RunFolder.free_path(config.env, config.seed))
    folder.require_free()
    maker, console = EnvMaker(env or config.env, config), PatientConsole(quiet=quiet)
    outcome = progress.train(maker, folder, about(preset), console, watchers)
    return _finished(outcome, maker, console, video)


def resume(
    run: str | Path,
    *,
    steps: int | None = None,
    env: EnvSource | None = None,
    agent: AgentSource | None = None,
    body: str | Body | None = None,
    watchers: Sequence[Watcher] = (),
    video: bool = False,
    quiet: bool = False,
) -> Agent:
    """Resume a run from its newest checkpoint, to its end or to another number of steps.

    `env`, `agent` and `body` are needed only if those of the run cannot be imported.
    """
    folder = RunFolder.open(run)
    changed = {"steps": steps, "agent": agent, "body": body}
    given = {name: value for name, value in changed.items() if value is not None}
    config = Config.from_dict(vars(folder.config()) | by_name(given))
    maker, console = EnvMaker(env or config.env, config), PatientConsole(quiet=quiet)
    outcome = progress.train(maker, folder, {}, console, watchers)
    return _finished(outcome, maker, console, video)


def _finished(outcome: Outcome, maker: EnvMaker, console: Console, video: bool) -> Agent:
    """Score a trained run, draw it, and return its agent."""
    folder = outcome.folder
    if outcome.signal is not None:
        raise KeyboardInterrupt(f"saved; resume with t3d.resume({str(folder.path)!r})")
    notice = progress.speaker(console)
    finished = finish(folder, pictures(video, maker.source, notice), maker.source)
    progress.conclude(folder, finished, console)
    return load(folder.path, which="best" if finished.score else "last")


def make_env(
    run: str | Path, *, env: EnvSource | None = None, render_mode: str | None = None
) -> GuardedEnv:
    """The environment of a run as its agent sees it: `select_action` takes its observations."""
    config = RunFolder.open(run).config()
    return EnvMaker(env or config.env, config).make(render_mode=render_mode)


def start(
    config: Config,
    preset: str,
    path: str | Path | None,
    console: Console,
    source: EnvSource | None = None,
) -> Outcome:
    """Train a new run in a folder of its own."""
    folder = RunFolder(path or RunFolder.free_path(config.env, config.seed))
    folder.require_free()
    return progress.train(EnvMaker(source or config.env, config), folder, about(preset), console)


def go_on(
    path: str | Path,
    steps: int | None,
    console: Console,
    source: EnvSource | None = None,
    ray: str | None = None,
    threads: int | None = None,
) -> Outcome:
    """Train an existing run further."""
    folder = RunFolder.open(path)
    changed = {"steps": steps, "ray": ray, "threads": threads}
    given = {name: value for name, value in changed.items() if value is not None}
    config = Config.from_dict(vars(folder.config()) | given)
    return progress.train(EnvMaker(source or config.env, config), folder, {}, console)


def tune(plan: "Plan", console: Console) -> tuple["Study", int | None]:
    """Search for knobs; the study, and the signal that stopped it, if one did."""
    from t3d.show.tuning import TuningWatcher
    from t3d.study.tune import open_study, results, search

    study = open_study(plan)
    found = results(study)
    again = f", {len(found)} are there" if found else ""
    head = f"{plan.base.env}, preset {plan.about['preset']}, {plan.base.steps:,} steps a trial"
    say(console, f"{head}, {plan.trials} trials{again}: {plan.out}")
    say(console, f"searched: {', '.join(plan.searched)}")
    watcher = TuningWatcher(console, plan, found)

    with StopSignal(progress.stopping(console)).caught() as stop:
        search(
            plan,
            study,
            stop,
            watcher.watch,
            lambda: watcher.tell(results(study)),
            lambda: say(console, progress.COMPILING),
        )
    return study, stop.number


class Swept(NamedTuple):
    """How a sweep ended."""

    cells: list[Cell]
    signal: int | None  # the signal that stopped it; None if every cell has ended


def sweep(spec: Spec, out: Path, jobs: int | None, address: str | None, console: Console) -> Swept:
    """Train every cell that is not finished, as processes here or on a Ray cluster."""
    cells = cells_of(spec, out)
    check(cells, spec, elsewhere=address is not None)
    with ExitStack() as last_first:
        ray, room = None, cores()
        if address is not None:
            ray, disconnect = connect(address, room)
            last_first.callback(disconnect)
            room = int(ray.cluster_resources().get("CPU", 0))
        jobs = share(cells, spec, room, jobs)
        threads = max(cell.config.threads for cell in cells)
        if ray and threads > room:  # it would wait for them for ever
            raise BadInput(f"threads is {threads}; the cluster at {address} has {room} CPUs")
        begin_folder(out, spec)
        last_first.callback(Lock(RunFolder(out)).release)

        def begin(cell: Cell) -> Worker:
            return Task(ray, cell) if ray else Process(cell)

        def stopping() -> None:
            say(console, "stopping, every cell saves; once more to quit at once")

        with StopSignal(stopping).caught() as stop:
            watcher = SweepWatcher(console, cells, jobs)
            last_first.callback(watcher.close)
            see_what_is_done(cells, stop)
            run_cells(cells, jobs, begin, stop, watcher.look)
        return Swept(cells, stop.number)
