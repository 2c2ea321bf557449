"""What `import t3d` offers for complete runs: train, resume, inspect, load, evaluate, make_env."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from t3d.base import output
from t3d.config import Config
from t3d.learn.agent import Agent
from t3d.learn.engines import AgentSource, by_name
from t3d.learn.networks import Body
from t3d.play.envs import EnvMaker, EnvSource, GuardedEnv, env_name
from t3d.presets import resolve
from t3d.run import trust as trusting
from t3d.run.agents import evaluate as evaluate
from t3d.run.agents import load as load
from t3d.run.finish import finish
from t3d.run.folder import RunFolder
from t3d.run.inspect import inspect as inspect
from t3d.run.session import Outcome, about
from t3d.run.watchers import Watcher
from t3d.show import progress
from t3d.show.pictures import pictures
from t3d.show.terminal import PatientConsole


@output.guarded(essential=False)
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
    class of yours, and `body` a function. Ctrl-C saves, then raises KeyboardInterrupt.
    """
    preset, config = resolve(None if env is None else env_name(env), preset)
    config = Config.from_dict(dataclasses.asdict(config) | by_name(knobs))
    folder = RunFolder(RunFolder.free_path(config.env, config.seed) if run is None else run)
    folder.require_free()
    maker, console = EnvMaker(env or config.env, config), PatientConsole(quiet=quiet)
    outcome = progress.train(maker, folder, about(preset), console, watchers)
    return _finished(outcome, maker, console, video)


@output.guarded(essential=False)
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
    trust: bool = False,
    **knobs: Any,
) -> Agent:
    """Resume a run from its newest checkpoint, to its end or to another number of steps.

    `env`, `agent` and `body` are needed only if those of the run cannot be imported. Of a run
    that was not trained here, pass them, or `trust=True` if you trust the code that it names.
    `knobs` are fields of `Config` to change from here on, such as `learning_rate`; the run records
    that.
    """
    folder = RunFolder.open(run)
    changes = {"steps": steps, "agent": agent, "body": body}
    changes = knobs | {name: value for name, value in changes.items() if value is not None}
    config = Config.from_dict(vars(folder.config()) | by_name(changes))
    not_from_folder = [*changes, *(["env"] if env is not None else [])]
    trusting.require(run, config, not_from_folder=not_from_folder, trust=trust)
    maker, console = EnvMaker(env or config.env, config), PatientConsole(quiet=quiet)
    outcome = progress.train(maker, folder, {}, console, watchers, changes.keys())
    return _finished(outcome, maker, console, video)


def _finished(outcome: Outcome, maker: EnvMaker, console: Console, video: bool) -> Agent:
    """Score a trained run, draw it, and return its agent."""
    folder = outcome.folder
    notice = progress.speaker(console)
    if outcome.signal is not None:
        how = f"resume with t3d.resume({str(folder.path)!r})"
        notice(f"Stopped and saved; {how}")  # a traceback may hide the error's own text
        raise KeyboardInterrupt(f"saved; {how}")
    notice(progress.SCORING)
    finished = finish(folder, pictures(video, maker.source, notice), maker.source)
    progress.conclude(folder, finished, console)
    return load(folder.path, which="best" if finished.score else "last")


def make_env(
    run: str | Path,
    *,
    env: EnvSource | None = None,
    render_mode: str | None = None,
    trust: bool = False,
) -> GuardedEnv:
    """The environment of a run as its agent sees it: `select_action` takes its observations.

    Of a run that was not trained here, pass it, or `trust=True` if you trust the code behind it.
    """
    config = RunFolder.open(run).config()
    not_from_folder = ["agent", "body", "ray", *(["env"] if env is not None else [])]
    trusting.require(run, config, not_from_folder=not_from_folder, trust=trust)
    return EnvMaker(env or config.env, config).make(render_mode=render_mode)
