"""What `import t3d` offers for whole runs: train, resume, load, evaluate."""

import dataclasses
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from t3d.base import files
from t3d.base.errors import T3DError
from t3d.config import Config
from t3d.learn.t3d import T3D
from t3d.play.envs import EnvMaker, EnvSource, GuardedEnv, env_name
from t3d.presets import resolve
from t3d.run import checkpoint, doctor
from t3d.run.agents import evaluate as evaluate
from t3d.run.agents import load as load
from t3d.run.folder import Record, RunFolder, is_locked, versions
from t3d.run.loop import Run, StopSignal
from t3d.run.tensorboard import TensorBoard
from t3d.show.sweep import sweep as sweep
from t3d.show.terminal import PatientConsole, TerminalWatcher, say
from t3d.show.words import COMPILING as _COMPILING
from t3d.show.words import STOPPING

if TYPE_CHECKING:
    from optuna import Study

    from t3d.study.plan import Plan


def train(
    env: EnvSource | None = None,
    *,
    preset: str = "auto",
    run: str | Path | None = None,
    quiet: bool = False,
    **knobs: Any,
) -> T3D:
    """Train an agent and return the best one that was evaluated.

    `env` is a Gymnasium id, module:EnvId, module:callable, or a callable that makes an
    environment; by default Pendulum-v1, or what the preset's file says. `preset` is a name or a
    TOML file. `run` is the folder to write; by default a new one under runs/. `knobs` are fields
    of `Config`, over those of the preset. Ctrl-C saves, then raises KeyboardInterrupt.
    """
    preset, config = resolve(None if env is None else env_name(env), preset)
    config = Config.from_dict(dataclasses.asdict(config) | knobs)
    outcome = start(config, preset, run, PatientConsole(quiet=quiet), source=env)
    if outcome.signal is not None:
        raise KeyboardInterrupt(f"saved; go on with t3d.resume({str(outcome.folder.path)!r})")
    return load(outcome.folder.path)


def resume(
    run: str | Path, *, steps: int | None = None, env: EnvSource | None = None, quiet: bool = False
) -> T3D:
    """Go on with a run from its newest checkpoint, to its end or to another number of steps.

    `env` is needed only if the run was trained on a callable that cannot be imported.
    """
    outcome = go_on(run, steps, PatientConsole(quiet=quiet), source=env)
    if outcome.signal is not None:
        raise KeyboardInterrupt(f"saved; go on with t3d.resume({str(run)!r})")
    return load(run)


def make_env(
    run: str | Path, *, env: EnvSource | None = None, render_mode: str | None = None
) -> GuardedEnv:
    """The environment of a run as its agent sees it: `select_action` takes what it shows."""
    config = RunFolder.open(run).config()
    return EnvMaker(env or config.env, config).make(render_mode=render_mode)


class Outcome(NamedTuple):
    """How training ended."""

    folder: RunFolder
    signal: int | None  # the signal that stopped it; None if it finished


def start(
    config: Config,
    preset: str,
    path: str | Path | None,
    console: Console,
    source: EnvSource | None = None,
) -> Outcome:
    """Train a new run in a folder of its own."""
    folder = RunFolder(path or RunFolder.free_path(config.env, config.seed))
    made = about(preset)
    _tell_of_collectors(config, console)
    run = Run.start(
        EnvMaker(source or config.env, config), folder, made, lambda: say(console, _COMPILING)
    )
    with closing(run):
        why = f" ({run.why_this_engine})" if run.why_this_engine else ""
        head = f"{config.env}, preset {preset}, seed {config.seed}, engine {run.config.engine}{why}"
        say(console, f"{head}: {folder.path}")
        taken = f"the replay memory takes up to {files.size(run.memory_bytes())}"
        where = " in a file" if config.replay_on_disk else ""
        say(console, f"{taken}{where}, checkpoints {files.size(run.disk_bytes())} on the disk")
        for advice in (
            [] if console.quiet else doctor.glance(EnvMaker(source or config.env, config))
        ):
            say(console, f"note: {advice}; t3d doctor {shlex.quote(config.env)} says more")
        if config.steps <= config.random_steps:
            note = f"note: nothing will be learned: all {config.steps:,} steps are random play"
            say(console, f"{note}; lower --random-steps, which is {config.random_steps:,}")
        return _follow(run, console)


def go_on(
    path: str | Path,
    steps: int | None,
    console: Console,
    source: EnvSource | None = None,
    ray: str | None = None,
) -> Outcome:
    """Train an existing run further."""
    folder = RunFolder.open(path)
    config = folder.config()
    changed = {"steps": steps, "ray": ray}
    given = {name: value for name, value in changed.items() if value is not None}
    config = Config.from_dict(vars(config) | given)
    _tell_of_collectors(config, console)
    run = Run.resume(
        EnvMaker(source or config.env, config), folder, lambda: say(console, _COMPILING)
    )
    with closing(run):
        folder.write_config(config)
        folder.score_path.unlink(missing_ok=True)  # of an agent that may not stay the best
        say(console, f"{config.env} goes on from step {run.collector.steps:,}: {folder.path}")
        for note in run.notes:
            say(console, f"note: {note}")
        return _follow(run, console)


def tune(plan: "Plan", console: Console) -> tuple["Study", int | None]:
    """Search for knobs; the study, and the signal that stopped it, if one did."""
    from t3d.show.tuning import tune as search_knobs

    return search_knobs(plan, console)


def _tell_of_collectors(config: Config, console: Console) -> None:
    if config.collectors:
        where = "on this machine" if config.ray == "local" else f"at {config.ray}"
        say(console, f"starting {config.collectors} collectors, with Ray {where} ...")


def _follow(run: Run, console: Console) -> Outcome:
    """Run the loop with its watchers, until the end or until a signal."""
    step = run.collector.steps
    if find_spec("tensorboard"):
        run.watchers.append(TensorBoard(run.folder.tensorboard, step + 1 if step else 0))
    else:
        say(console, "no TensorBoard events: pip install 't3d[tensorboard]' for them")
    if not console.quiet:
        run.watchers.append(TerminalWatcher(console, run.config, step))

    with StopSignal(_stopping(console)).caught() as stop:
        finished = run.loop(stop)
    return Outcome(run.folder, None if finished else stop.number)


def _stopping(console: Console) -> Callable[[], None]:
    return lambda: say(console, STOPPING)


def about(preset: str, command: str | None = None) -> Record:
    """What a run keeps of how it was made; the command is this process's, if not given."""
    return {"preset": preset, "command": command or _command(), "versions": versions()}


def _command() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def inspect(path: str | Path) -> Record:
    """What a run is, where it stands, which checkpoints are whole, and a digest of its state.

    Two runs with the same digest are the same run: same networks, optimisers, memory, random
    streams, environments and metrics, to the last bit.
    """
    folder = RunFolder.open(path)
    config = folder.config()
    found: Record = {
        "run": str(folder.path),
        "env": config.env,
        "preset": folder.about().get("preset"),
        "seed": config.seed,
        "engine": config.engine,
        "steps": config.steps,
        "training": is_locked(folder),
        "checkpoints": {},
    }
    for each in folder.all_checkpoints():
        try:
            manifest = checkpoint.check(each)
            taken = sum(facts["bytes"] for facts in manifest["files"].values())
            found["checkpoints"][each.name] = {"whole": True, "bytes": taken}
        except T3DError as error:
            found["checkpoints"][each.name] = {"whole": False, "why": str(error)}
    anything = any(state["whole"] for state in found["checkpoints"].values())
    whole = checkpoint.newest_whole(folder) if anything else None
    if whole is None:
        return found | {"step": None, "finished": False, "digest": None}
    progress = whole.manifest["progress"]
    return found | {
        "step": whole.manifest["step"],
        "updates": whole.manifest["updates"],
        "finished": checkpoint.is_finished(whole.manifest, config.steps),
        "best_mean": progress["best_mean"],
        "best_step": progress["best_step"],
        "bit_exact": not progress["not_bit_exact"],
        "not_bit_exact": progress["not_bit_exact"],
        "made_by": whole.manifest["made_by"],
        "digest": checkpoint.digest(whole, folder),
    }
