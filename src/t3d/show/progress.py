"""Training with a terminal: the lines printed before, during and after a run."""

import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from itertools import pairwise

from rich.console import Console

from t3d.base import files
from t3d.base.text import percent
from t3d.config import FREE, Config
from t3d.play.envs import EnvMaker, GuardedEnv, time_limit
from t3d.presets import preset_for
from t3d.run import doctor, tracking, watchers
from t3d.run.agents import step_of
from t3d.run.build import memory_bytes
from t3d.run.checkpoint import has_finished
from t3d.run.finish import Finished
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.ready import Curriculum
from t3d.run.records import Json
from t3d.run.session import Outcome, open_run, train_to_end
from t3d.run.signals import StopSignal
from t3d.run.start import Source
from t3d.run.watchers import Watcher
from t3d.show.terminal import TerminalWatcher, say
from t3d.show.words import COMPILING, STOPPING

_MILLIONS = 10**7  # of weights: their first values alone take seconds
_MANY = 16  # processes: on few cores each takes a good part of a second to start


def train(
    maker: EnvMaker,
    folder: RunFolder,
    about: Json,
    console: Console,
    own: Sequence[Watcher] = (),
    changing: Collection[str] = (),
    source: Source | None = None,
) -> Outcome:
    """Start the run of a folder, or resume it, and train it to its end or until it is stopped.

    `own` are watchers besides the terminal, TensorBoard and the trackers. `changing` names the
    knobs that a resumed run is to change; `source` is what a new one starts from. A finished run
    that has no score, since its scoring was interrupted, is left as it is: the caller scores what
    was trained.
    """
    own = watchers.checked(own)  # before anything is written
    for each in own:
        if isinstance(each, Curriculum):
            each.check(maker)
    trackers, missing = tracking.chosen(maker.config.track)
    resumed = folder.path.exists()
    if resumed and not set(changing) - FREE and _is_unscored(folder, maker.config):
        say(console, f"{maker.config.env} is trained, but has no score yet: {folder}")
        return Outcome(folder, None, watchers=watchers.Watchers([*trackers, *own]))
    _announce_start(maker.config, console)
    run = open_run(maker, folder, about, lambda: say(console, COMPILING), changing, source)
    # From here on the run has a folder: a signal saves it.
    with closing(run), StopSignal(stopping(console)).caught() as stop:
        if resumed:
            _introduce_resumed(run, console)
        else:
            _introduce_new(run, maker, about, console)
        for line in missing:
            say(console, line)
        terminal = [] if console.quiet else [TerminalWatcher(console)]
        outcome = train_to_end(run, [*trackers, *terminal, *own], stop)
    if maker.config.rate:
        _say_lateness(maker, console)
    if outcome.stopped_by and outcome.signal is None:
        say(console, f"saved; resume with: t3d resume {folder.to_resume}")
    return outcome


def conclude(folder: RunFolder, finished: Finished, console: Console) -> None:
    """Say the score, where the files are, and what could not be written."""
    if finished.score:
        agent = folder.scored_agent
        which = f"{agent} agent (of step {step_of(folder, agent):,})"
        score = f"{finished.score.mean:,.1f} ± {finished.score.std:,.1f}"
        episodes = _test_episodes(len(finished.score.returns))
        success = finished.score.success
        share = "" if success is None else f", success {percent(success)}"
        say(console, f"Score: {score}{share}, {which}, {episodes} (seed 0)")
    say(console, f"  run    {folder.path}")
    for name, path in finished.files.items():
        say(console, f"  {name:<6} {path}")
    for name, problem in finished.problems.items():
        say(console, f"  {name:<6} none: {problem}")


def scoring(folder: RunFolder) -> str:
    """What happens after the last step."""
    episodes = _test_episodes(folder.config().test_episodes)
    return f"scoring the {folder.scored_agent} agent on {episodes} ..."


def _test_episodes(count: int) -> str:
    return f"{count:,} test episode{'s' if count > 1 else ''}"


def speaker(console: Console) -> Callable[[str], None]:
    """A function that prints a line."""
    return lambda text: say(console, text)


def stopping(console: Console) -> Callable[[], None]:
    """Says that a signal was heard."""
    return lambda: say(console, STOPPING)


def _is_unscored(folder: RunFolder, config: Config) -> bool:
    """Whether all that a run lacks is its score."""
    return folder.score() is None and has_finished(folder, config.steps)


def _announce_start(config: Config, console: Console) -> None:
    """Say what takes long to start."""
    if config.collectors:
        where = "on this machine" if config.ray == "local" else f"at {config.ray}"
        say(console, f"starting {config.collectors} collectors, with Ray {where} ...")
    elif config.env_backend == "processes" and config.num_envs >= _MANY:
        say(console, f"starting {config.num_envs:,} processes of environments ...")
    weights = sum(one * other for one, other in pairwise(config.hidden))
    if weights >= _MILLIONS:
        say(console, f"making networks of {weights:,} weights and more ...")


def _introduce_new(run: Run, maker: EnvMaker, about: Json, console: Console) -> None:
    config = run.config
    why = f" ({run.parts.why_this_engine})" if run.parts.why_this_engine else ""
    preset = f"preset {about['preset']}"
    if about["preset"] == "default" and not preset_for(config.env):
        preset = "no preset (the defaults)"
    where = f"seed {config.seed}, engine {config.engine}{why}: {run.folder.path}"
    say(console, f"{doctor.describe_environment(maker)}, {preset}, {where}")
    variant = maker.for_evaluation()
    if variant is not maker:
        say(console, f"evaluated in {doctor.describe_environment(variant)}")
    needed = f"the replay memory takes up to {files.size(memory_bytes(run.memory, config))}"
    where = " in a file" if config.replay_on_disk else ""
    disk = files.size(run.parts.disk_bytes())
    say(console, f"{needed}{where}, checkpoints {disk} on the disk")
    for note in run.notes:
        say(console, f"note: {note}")
    unasked = console.quiet or config.single_env  # it would play in an environment of its own
    for advice in [] if unasked else doctor.glance(maker):
        say(console, f"note: {advice}; t3d doctor {shlex.quote(config.env)} says more")
    if config.single_env and not (config.max_episode_steps or _time_limit(run)):
        what = "the environment declares no time limit, and evaluations wait for the end of an"
        say(console, f"note: {what} episode; if it may have none, use --max-episode-steps")
    parts = (config.env, config.eval_env or config.env, config.agent, config.body)
    for part in dict.fromkeys(parts):
        name = part.removeprefix("__main__:")
        if name != part or "<" in part:
            what = "a local function" if "<" in part else "defined in the script that runs"
            advice = "t3d resume and eval cannot import it; move it to a module"
            say(console, f"note: {name} is {what}: {advice}")
    if config.steps <= config.random_steps:
        note = f"note: nothing will be learned: all {config.steps:,} steps are random play"
        say(console, f"{note}; lower --random-steps, which is {config.random_steps:,}")
        if about["preset"] == "default":
            say(console, "note: for a small task, try --preset Pendulum-v1 with your own --steps")


def _time_limit(run: Run) -> int | None:
    env = run.parts.evaluation_env
    return time_limit(env) if isinstance(env, GuardedEnv) else env.time_limit


def _say_lateness(maker: EnvMaker, console: Console) -> None:
    late, config = maker.lateness.late, maker.config
    advice = "; --train-after episode learns between episodes"
    say(console, f"{maker.lateness}{advice if late and config.train_after == 'step' else ''}")


def _introduce_resumed(run: Run, console: Console) -> None:
    where = f"from step {run.collector.steps:,}: {run.folder.path}"
    say(console, f"{run.config.env} resumes {where}")
    for note in run.notes:
        say(console, f"note: {note}")
    if run.config.steps <= run.config.random_steps:
        note = f"note: nothing will be learned before step {run.config.random_steps:,}"
        say(console, f"{note}: until then, play is random; give more --steps")
