"""Commands that train one agent or prepare for it: train, resume, doctor, presets."""

import contextlib
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.cli import say
from t3d.cli.knobs import knob_values, read_knobs
from t3d.cli.options import Command, Option, parse, whole_number
from t3d.cli.runs import JSON, RUN, TRUST
from t3d.cli.studies import train_sweep
from t3d.config import Config
from t3d.presets import PRESETS, resolve

if TYPE_CHECKING:
    from rich.console import Console

    from t3d.run.folder import RunFolder
    from t3d.run.session import Outcome

_VIDEO = Option("video", "record a video of an episode at the end", True)


def train(words: list[str]) -> int:
    """Train an agent on an environment, Pendulum-v1 by default."""
    own = [
        Option("run", "folder to write; by default a new one under runs/", None, "PATH"),
        Option(
            "seeds", "how many seeds to train, in parallel, from --seed on", 1, "N", whole_number
        ),
        _VIDEO,
    ]
    typed = read_knobs("train", f"{train.__doc__}", own, words)
    if typed.options.seeds != 1:
        return _train_seeds(typed.options.seeds, typed.preset, typed.config, typed.options.run)
    from t3d.play.envs import EnvMaker
    from t3d.run.folder import RunFolder
    from t3d.run.session import about
    from t3d.show import progress

    config = typed.config
    folder = RunFolder(typed.options.run or RunFolder.free_path(config.env, config.seed))
    folder.require_free()
    maker = EnvMaker(config.env, config)
    with say.own_stdout() as stdout:
        console = say.console(stdout)
        outcome = progress.train(maker, folder, about(typed.preset), console)
        return end_training(outcome, console, video=typed.options.video)


def resume(words: list[str]) -> int:
    """Resume a run where it stopped, or train it further with --steps."""
    options = [
        Option("steps", "new total of environment steps", None, "N", whole_number),
        Option("threads", "new number of CPU threads of an update", None, "N", whole_number),
        Option("ray", "new Ray cluster for its collectors", None, "ADDRESS"),
        Option(
            "set",
            "change another knob from here on: learning_rate=1e-4; can be repeated",
            (),
            "KNOB=VALUE",
            repeated=True,
        ),
        _VIDEO,
        TRUST,
    ]
    typed = parse(Command("resume", f"{resume.__doc__}", RUN, {"options": options}), words)
    from t3d.play.envs import EnvMaker
    from t3d.run.folder import RunFolder
    from t3d.show import progress

    folder = RunFolder.open(typed.run)
    own = {name: getattr(typed, name) for name in ("steps", "ray", "threads")}
    changes = dict(knob_values(each) for each in typed.set)
    changes |= {name: value for name, value in own.items() if value is not None}
    config = Config.from_dict(vars(folder.config()) | changes)
    say.require_trust(typed.run, config, trust=typed.trust, not_from_folder=changes)
    with say.own_stdout() as stdout:
        console = say.console(stdout)
        maker = EnvMaker(config.env, config)
        outcome = progress.train(maker, folder, {}, console, changing=changes.keys())
        return end_training(outcome, console, video=typed.video)


def doctor(words: list[str]) -> int:
    """Check an environment before training, and suggest settings."""
    about = f"{doctor.__doc__} Takes all knobs of train; the time is estimated for --steps."
    typed = read_knobs("doctor", about, [JSON], words)
    from t3d.play.envs import EnvMaker
    from t3d.run.doctor import examine

    with say.own_stdout():
        diagnosis = examine(EnvMaker(typed.config.env, typed.config))
    knobs = [word for word in words if word != "--json"] or [typed.config.env]
    flags = [flag(knob, value) for knob, value in diagnosis.flags.items()]
    command = " ".join(["t3d train", *map(shlex.quote, knobs), *flags])
    if typed.options.json:
        facts = {"facts": diagnosis.facts, "advice": diagnosis.advice, "command": command}
        print(json.dumps(facts, indent=2))
        return 0
    width = max(map(len, diagnosis.facts))
    for name, fact in diagnosis.facts.items():
        first, *more = fact if isinstance(fact, list) else [fact]
        say.line(f"{name:>{width}}  {first}")
        for line in more:
            say.line(f"{'':>{width}}  {line}")
    print()
    for advice in diagnosis.advice or ["random play shows nothing that needs changing"]:
        say.line(f"- {advice}")
    print()
    say.line(f"  {command}")
    return 0


def presets(words: list[str]) -> int:
    """List the presets: for which environment, with which knobs, and why."""
    parse(Command("presets", f"{presets.__doc__}"), words)
    for name, preset in PRESETS.items():
        say.line(name)
        say.line(f"    {preset.why}")
        flags = [flag(knob, value) for knob, value in preset.knobs.items()]
        say.line(f"    {' '.join(flags) or '(the defaults)'}")
    print("\nt3d train ENV uses the preset named ENV, if there is one; --preset NAME uses another.")
    print("For a small task of your own, try --preset Pendulum-v1 with your own --steps.")
    return 0


def _train_seeds(seeds: int, preset: str, config: Config, out: str | None) -> int:
    """Train several seeds as a sweep."""
    from t3d.run.folder import safe_name
    from t3d.study.spec import Spec

    if seeds < 1:
        raise BadInput(f"seeds is {seeds}; expected at least 1")
    usual = resolve(config.env, preset)[1]
    knobs = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(config).items()
        if name not in ("env", "seed") and value != getattr(usual, name)
    }
    spec = Spec([config.env], list(range(config.seed, config.seed + seeds)), preset, knobs)
    return train_sweep(spec, Path(out or Path("runs") / safe_name(config.env)), None, None)


def end_training(outcome: "Outcome", console: "Console", video: bool) -> int:
    """Score the best agent, write the run's pictures, and say what to type next."""
    from t3d.run.finish import finish
    from t3d.run.signals import exit_code
    from t3d.show import progress
    from t3d.show.pictures import pictures

    folder, tell = outcome.folder, progress.speaker(console)
    resume = f"{say.t3d()} resume {folder}"
    if outcome.signal is not None:
        tell(f"Stopped and saved. Resume with: {resume}")
        return 128 + outcome.signal
    tell(progress.SCORING)
    try:
        finished = finish(folder, pictures(video, notice=tell))
    except KeyboardInterrupt as interrupt:
        if folder.score() is None:
            what = "Training is finished and saved; scoring was interrupted."
            tell(f"{what} To score the agent: {resume}")
        return exit_code(interrupt)
    progress.conclude(folder, finished, console)
    _say_what_next(folder, console)
    return 0


def _say_what_next(folder: "RunFolder", console: "Console") -> None:
    """Commands to try on a finished run."""
    from t3d.run.folder import RunFolder
    from t3d.show import terminal
    from t3d.study.known import known_for

    t3d, config = say.t3d(), folder.config()
    commands = {
        f"{t3d} explain {folder}": "one of its updates, step by step, in the browser",
        f"{t3d} eval {folder} --episodes 100": "more episodes, for a more precise score",
        f"{t3d} resume {folder} --steps {2 * config.steps}": "train further",
    }
    if config.steps <= config.random_steps:  # it has learned nothing yet
        more = 2 * config.random_steps
        commands = {f"{t3d} resume {folder} --steps {more}": "train further, beyond random play"}
    with contextlib.suppress(T3DError):  # no known runs to compare with
        count = len(known_for(config).returns)
        commands[f"{t3d} check {folder}"] = f"is it normal? compared with {count} known runs"
    if find_spec("tensorboard"):
        tensorboard = "tensorboard" if " -m " in t3d else f"{t3d.removesuffix('t3d')}tensorboard"
        logs = RunFolder(folder.path.parent)
        commands[f"{tensorboard} --logdir {logs}"] = "all runs, in the browser"
    terminal.say(console, "Next:")
    width = max(len(command) for command in commands)
    for command, purpose in commands.items():
        terminal.say(console, f"  {command:<{width}}   {purpose}")
