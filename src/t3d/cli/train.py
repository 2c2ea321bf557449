"""Commands that train one agent or prepare for it: train, resume, doctor, presets."""

import contextlib
import json
import shlex
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.cli import say
from t3d.cli.knobs import knob_values, read_knobs
from t3d.cli.options import Command, Option, number, parse, whole_number
from t3d.cli.runs import JSON, RUN, TRUST
from t3d.cli.studies import train_sweep
from t3d.config import Config
from t3d.presets import PRESETS, resolve

if TYPE_CHECKING:
    from rich.console import Console

    from t3d.play.envs import EnvMaker
    from t3d.run.folder import RunFolder
    from t3d.run.session import Outcome
    from t3d.run.start import Start
    from t3d.run.watchers import Watcher

_EXPLAINED = "one of its updates, step by step, in the browser"
_VIDEO = Option("video", "record a video of an episode at the end", True)
_MINUTES = Option(
    "minutes", "stop training after this many minutes, then save and score", None, "N", number
)

_WATCHER = Option(
    "watcher",
    "watchers that follow the run, each followed by its arguments: t3d:StopAtReturn goal=-200",
    (),
    "NAME",
    many=True,
    repeated=True,
)


def train(words: list[str]) -> int:
    """Train an agent on an environment, Pendulum-v1 by default."""
    own = [
        Option("run", "folder to write; by default a new one under runs/", None, "PATH"),
        Option(
            "seeds",
            "train N seeds in parallel, --seed, --seed + 1 ..., without videos",
            1,
            "N",
            whole_number,
        ),
        _MINUTES,
        _WATCHER,
        Option(
            "from",
            "start with trained networks: of this run's folder, or of this agent's file",
            None,
            "RUN",
        ),
        Option("from_last", "with --from: its last agent instead of its best", False),
        Option("from_optimizers", "with --from: take the state of its optimisers, too", False),
        Option("from_memory", "with --from: take its replay memory, too", False),
        _VIDEO,
    ]
    typed = read_knobs("train", f"{train.__doc__}", own, words)
    config, start = typed.config, _start(vars(typed.options))
    say.first(f"{config.env}, {config.steps:,} steps: loading PyTorch ...")
    if typed.options.seeds != 1:
        if typed.options.minutes is not None or typed.options.watcher:
            raise BadInput("--minutes and --watcher follow one run; train without --seeds")
        if start:
            raise BadInput("--from starts one run; train without --seeds, one --seed after another")
        return _train_seeds(typed.options.seeds, typed.preset, typed.config, typed.options.run)
    from t3d.play.envs import EnvMaker
    from t3d.play.single import lending, require_consent
    from t3d.run.folder import RunFolder
    from t3d.run.session import about
    from t3d.run.start import Source
    from t3d.show import progress

    folder = RunFolder(typed.options.run or RunFolder.free_path(config.env, config.seed))
    folder.require_free()
    folder.watchers = tuple(typed.options.watcher)
    source = None
    if start:
        named = {knob: getattr(config, knob) for knob in typed.knobs}
        source = Source(start, named)
        config = source.config(config, named)
    require_consent(config, typed.knobs, say.ask)
    with say.own_stdout() as stdout, lending(EnvMaker(config.env, config)) as maker:
        console, attached = say.console(stdout), _watchers(typed.options)
        outcome = progress.train(
            maker, folder, about(typed.preset), console, attached, source=source
        )
        return end_training(outcome, maker, console, video=typed.options.video)


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
        _MINUTES,
        _WATCHER,
        _VIDEO,
        TRUST,
    ]
    typed = parse(Command("resume", f"{resume.__doc__}", RUN, {"options": options}), words)
    say.first(f"{typed.run}: loading PyTorch ...")
    from t3d.play.envs import EnvMaker
    from t3d.play.single import lending
    from t3d.run.folder import RunFolder
    from t3d.show import progress

    folder = RunFolder.open(typed.run)
    folder.watchers = tuple(typed.watcher)
    own = {name: getattr(typed, name) for name in ("steps", "ray", "threads")}
    changes = dict(knob_values(each) for each in typed.set)
    changes |= {name: value for name, value in own.items() if value is not None}
    config = Config.from_dict(vars(folder.config()) | changes)
    say.require_trust(typed.run, config, trust=typed.trust, not_from_folder=changes)
    with say.own_stdout() as stdout, lending(EnvMaker(config.env, config)) as maker:
        console = say.console(stdout)
        outcome = progress.train(maker, folder, {}, console, _watchers(typed), changes.keys())
        return end_training(outcome, maker, console, video=typed.video)


def _start(options: dict[str, Any]) -> "Start | None":
    """What the options of `train` ask to start from."""
    run, more = options["from"], ("from_last", "from_optimizers", "from_memory")
    if run is None:
        for name in more:
            if options[name]:
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(f"{flag} says what to take from a run; name it with --from RUN")
        return None
    from t3d.run.start import Start

    last, optimizers, memory = (options[name] for name in more)
    return Start(run, "last" if last else "best", optimizers, memory)


def _watchers(typed: Namespace) -> "list[Watcher]":
    """The watchers that options ask for."""
    from t3d.run.ready import StopAfter
    from t3d.run.watchers import by_name

    stops = [] if typed.minutes is None else [StopAfter(typed.minutes)]
    return [*stops, *by_name(typed.watcher)]


def doctor(words: list[str]) -> int:
    """Check an environment before training, and suggest settings."""
    about = f"{doctor.__doc__} Takes all knobs of train; the time is estimated for --steps."
    typed = read_knobs("doctor", about, [JSON], words)
    if typed.config.single_env:
        advice = "without --single-env, it plays random actions in environments of its own"
        raise BadInput(f"t3d doctor makes more than one environment; {advice}")
    say.first(f"{typed.config.env}: loading PyTorch ...", sys.stderr)
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


def end_training(outcome: "Outcome", maker: "EnvMaker", console: "Console", video: bool) -> int:
    """Score the agent, write the run's pictures, and say what to type next."""
    from t3d.run.finish import finish
    from t3d.run.signals import exit_code
    from t3d.show import progress
    from t3d.show.pictures import pictures

    folder, tell = outcome.folder, progress.speaker(console)
    resume = f"{say.t3d()} resume {folder.to_resume}"
    if outcome.signal is not None:
        tell(f"Stopped and saved. Resume with: {resume}")
        return 128 + outcome.signal
    tell(progress.scoring(folder))
    try:
        drawn = pictures(video, maker.source, tell)
        finished = finish(folder, drawn, maker.source, outcome.watchers, tell)
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
    from t3d.show.explain import unexplained
    from t3d.study.known import known_for

    t3d, config = say.t3d(), folder.config()
    last = " --agent last" if folder.scored_agent == "last" else ""
    commands = {} if unexplained(config) else {f"{t3d} explain {folder}": _EXPLAINED}
    commands |= {
        f"{t3d} eval {folder} --episodes 100{last}": "more episodes, for a more precise score",
        f"{t3d} resume {folder} --steps {2 * config.steps}": "train further",
    }
    if config.steps <= config.random_steps:  # it has learned nothing yet
        more = 2 * config.random_steps
        commands = {f"{t3d} resume {folder} --steps {more}": "train further, beyond random play"}
    with contextlib.suppress(T3DError):  # no known runs to compare with
        known = known_for(config)
        if known.config.agent == config.agent:
            purpose = f"is it normal? compared with {len(known.returns)} known runs"
            commands[f"{t3d} check {folder}"] = purpose
    if find_spec("tensorboard"):
        tensorboard = "tensorboard" if " -m " in t3d else f"{t3d.removesuffix('t3d')}tensorboard"
        logs = RunFolder(folder.path.parent)
        commands[f"{tensorboard} --logdir {logs}"] = "all runs, in the browser"
    terminal.say(console, "Next:")
    width = max(len(command) for command in commands)
    for command, purpose in commands.items():
        terminal.say(console, f"  {command:<{width}}   {purpose}")
