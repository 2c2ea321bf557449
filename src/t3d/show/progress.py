"""Training with a terminal: the lines printed before, during and after a run."""

import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import closing

from rich.console import Console

from t3d.base import files
from t3d.config import FREE, Config
from t3d.play.envs import EnvMaker
from t3d.run import doctor, watchers
from t3d.run.build import memory_bytes
from t3d.run.checkpoint import has_finished
from t3d.run.finish import Finished
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.records import Evaluation, Json
from t3d.run.session import Outcome, open_run, train_to_end
from t3d.run.signals import StopSignal
from t3d.run.watchers import Watcher
from t3d.show.terminal import TerminalWatcher, say
from t3d.show.words import COMPILING, STOPPING

SCORING = "scoring the best agent on 10 test episodes ..."


def train(
    maker: EnvMaker,
    folder: RunFolder,
    about: Json,
    console: Console,
    own: Sequence[Watcher] = (),
    changing: Collection[str] = (),
) -> Outcome:
    """Start the run of a folder, or resume it, and train it to its end or until it is stopped.

    `own` are watchers besides the terminal and TensorBoard. `changing` names the knobs that a
    resumed run is to change. A finished run that has no score, since
    its scoring was interrupted, is left as it is: the caller scores what was trained.
    """
    own = watchers.checked(own)  # before anything is written
    resumed = folder.path.exists()
    if resumed and not set(changing) - FREE and _is_unscored(folder, maker.config):
        say(console, f"{maker.config.env} is trained, but has no score yet: {folder}")
        return Outcome(folder, None)
    _announce_collectors(maker.config, console)
    run = open_run(maker, folder, about, lambda: say(console, COMPILING), changing)
    # From here on the run has a folder: a signal saves it.
    with closing(run), StopSignal(stopping(console)).caught() as stop:
        if resumed:
            _introduce_resumed(run, console)
        else:
            _introduce_new(run, maker, about, console)
        trackers, missing = watchers.chosen()
        for line in missing:
            say(console, line)
        terminal = [] if console.quiet else [TerminalWatcher(console)]
        outcome = train_to_end(run, [*trackers, *terminal, *own], stop)
    if outcome.stopped_by and outcome.signal is None:
        say(console, f"saved; resume with: t3d resume {folder}")
    return outcome


def conclude(folder: RunFolder, finished: Finished, console: Console) -> None:
    """Say the score, where the files are, and what could not be written."""
    if finished.score:
        *_, last = folder.records(Evaluation)
        which = f"best agent (of step {last.best_step:,})"
        score = f"{finished.score.mean:,.1f} ± {finished.score.std:,.1f}"
        episodes = len(finished.score.returns)
        say(console, f"Score: {score}, {which}, {episodes} test episodes (seed 0)")
    say(console, f"  run    {folder.path}")
    for name, path in finished.files.items():
        say(console, f"  {name:<6} {path}")
    for name, problem in finished.problems.items():
        say(console, f"  {name:<6} none: {problem}")


def speaker(console: Console) -> Callable[[str], None]:
    """A function that prints a line."""
    return lambda text: say(console, text)


def stopping(console: Console) -> Callable[[], None]:
    """Says that a signal was heard."""
    return lambda: say(console, STOPPING)


def _is_unscored(folder: RunFolder, config: Config) -> bool:
    """Whether all that a run lacks is its score."""
    return folder.score() is None and has_finished(folder, config.steps)


def _announce_collectors(config: Config, console: Console) -> None:
    if config.collectors:
        where = "on this machine" if config.ray == "local" else f"at {config.ray}"
        say(console, f"starting {config.collectors} collectors, with Ray {where} ...")


def _introduce_new(run: Run, maker: EnvMaker, about: Json, console: Console) -> None:
    config = run.config
    why = f" ({run.parts.why_this_engine})" if run.parts.why_this_engine else ""
    head = f"{config.env}, preset {about['preset']}, seed {config.seed}, engine {config.engine}"
    say(console, f"{head}{why}: {run.folder.path}")
    needed = f"the replay memory takes up to {files.size(memory_bytes(run.memory, config))}"
    where = " in a file" if config.replay_on_disk else ""
    disk = files.size(run.parts.disk_bytes())
    say(console, f"{needed}{where}, checkpoints {disk} on the disk")
    for note in run.notes:
        say(console, f"note: {note}")
    for advice in [] if console.quiet else doctor.glance(maker):
        say(console, f"note: {advice}; t3d doctor {shlex.quote(config.env)} says more")
    for part in (config.env, config.agent, config.body):
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


def _introduce_resumed(run: Run, console: Console) -> None:
    where = f"from step {run.collector.steps:,}: {run.folder.path}"
    say(console, f"{run.config.env} resumes {where}")
    for note in run.notes:
        say(console, f"note: {note}")
    if run.config.steps <= run.config.random_steps:
        note = f"note: nothing will be learned before step {run.config.random_steps:,}"
        say(console, f"{note}: until then, play is random; give more --steps")
