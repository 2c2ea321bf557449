"""Commands that train one agent, and what to know before: train, resume, doctor, presets."""

import contextlib
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.cli import say
from t3d.cli.knobs import read_knobs
from t3d.cli.options import Command, Option, parse, whole
from t3d.cli.runs import JSON, RUN, record_video
from t3d.cli.studies import train_sweep
from t3d.config import Config
from t3d.presets import PRESETS, resolve

if TYPE_CHECKING:
    from rich.console import Console

    from t3d.api import Outcome

_VIDEO = Option("video", "record a video of an episode at the end", True)


def train(words: list[str]) -> int:
    """Train an agent on an environment, Pendulum-v1 by default."""
    own = [
        Option("run", "folder to write; by default a new one under runs/", None, "PATH"),
        Option("seeds", "how many seeds to train, in parallel, from --seed on", 1, "N", whole),
        _VIDEO,
    ]
    typed = read_knobs("train", f"{train.__doc__}", own, words)
    if typed.options.seeds != 1:
        return _train_seeds(typed.options.seeds, typed.preset, typed.config, typed.options.run)
    from t3d.api import start

    console = say.console()
    outcome = start(typed.config, typed.preset, typed.options.run, console)
    return end_training(outcome, console, video=typed.options.video)


def resume(words: list[str]) -> int:
    """Resume a run where it stopped, or train it further with --steps."""
    options = [
        Option("steps", "train to this many steps instead", None, "N", whole),
        Option("threads", "CPU threads of an update instead", None, "N", whole),
        Option("ray", "another Ray cluster for its collectors", None, "ADDRESS"),
        _VIDEO,
    ]
    typed = parse(Command("resume", f"{resume.__doc__}", RUN, {"options": options}), words)
    from t3d.api import Outcome, go_on
    from t3d.run.checkpoint import has_finished
    from t3d.run.folder import RunFolder
    from t3d.show import terminal

    console = say.console()
    folder = RunFolder.open(typed.run)
    unscored = typed.steps is None and folder.score() is None
    if unscored and has_finished(folder, folder.config().steps):
        terminal.say(console, f"{folder.config().env} is trained, but has no score yet: {folder}")
        return end_training(Outcome(folder, None), console, video=typed.video)
    outcome = go_on(typed.run, typed.steps, console, ray=typed.ray, threads=typed.threads)
    return end_training(outcome, console, video=typed.video)


def doctor(words: list[str]) -> int:
    """Examine an environment before training: its properties, what to set."""
    about = f"{doctor.__doc__} Takes all knobs of train; with --steps, it estimates the time."
    typed = read_knobs("doctor", about, [JSON], words)
    from t3d.play.envs import EnvMaker
    from t3d.run.doctor import examine

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
        print(f"{name:>{width}}  {first}")
        for line in more:
            print(f"{'':>{width}}  {line}")
    print()
    for advice in diagnosis.advice or ["nothing to change, as far as random play can tell"]:
        print(f"- {advice}")
    print(f"\n  {command}")
    return 0


def presets(words: list[str]) -> int:
    """List the presets: for which environment, with which knobs, and why."""
    parse(Command("presets", f"{presets.__doc__}"), words)
    for name, preset in PRESETS.items():
        print(f"{name}\n    {preset.why}")
        flags = [flag(knob, value) for knob, value in preset.knobs.items()]
        print(f"    {' '.join(flags) or '(the defaults)'}")
    print(
        "\nt3d train ENV uses the preset named ENV, if there is one; --preset takes any, or a file."
    )
    return 0


def _train_seeds(seeds: int, preset: str, config: Config, out: str | None) -> int:
    """Train several seeds as a sweep."""
    from t3d.run.folder import safe_name
    from t3d.study.sweep import Spec

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
    from t3d.run.agents import evaluate as play
    from t3d.run.agents import keep_score
    from t3d.show import terminal

    folder, run, t3d = outcome.folder, outcome.folder.path, say.t3d()

    def tell(text: str) -> None:
        terminal.say(console, text)

    if outcome.signal is not None:
        tell(f"Stopped and saved. Resume with: {t3d} resume {folder}")
        return 128 + outcome.signal
    try:
        score = play(run)
    except KeyboardInterrupt:
        tell(
            "Training is finished and saved; scoring was interrupted."
            f" To score the agent: {t3d} resume {folder}"
        )
        return 130
    *_, last = folder.metrics("evaluation")
    try:
        keep_score(folder, score)
    except T3DError as error:
        tell(f"the score is not saved: {error}")
    which = f"best agent (of step {last['best_step']:,})"
    tell(f"Score: {score.mean:,.1f} ± {score.std:,.1f}, {which}, 10 test episodes (seed 0)")
    tell(f"  run    {run}")
    _write_pictures(run, console, video)
    _say_what_next(outcome, console)
    return 0


def _write_pictures(run: Path, console: "Console", video: bool) -> None:
    """The curve, a video if wanted, and the report; one that fails is named, and no more."""
    from t3d.show import terminal

    def curve() -> Path:
        from t3d.show import plots

        return plots.plot([run], run / "curve")[0]

    def film() -> Path:
        terminal.say(console, "  recording a video; Ctrl-C to skip it ...")
        return record_video(run, run / "episode", 0, "best")[0][0]

    def report() -> Path:
        from t3d.show.report import report

        return report([run], run / "report.html")

    pictures = {"curve": curve} | ({"video": film} if video else {}) | {"report": report}
    for name, write in pictures.items():
        try:
            line = str(write())
        except T3DError as error:
            line = f"none: {error}"
        except KeyboardInterrupt:
            if name != "video":
                raise
            line = "none: stopped"
        terminal.say(console, f"  {name:<6} {line}")


def _say_what_next(outcome: "Outcome", console: "Console") -> None:
    """Commands to try on a finished run."""
    from t3d.run.folder import RunFolder
    from t3d.show import terminal
    from t3d.show.check import known_for

    folder, t3d = outcome.folder, say.t3d()
    config = folder.config()
    commands = {
        f"{t3d} explain {folder}": "one of its updates, step by step, in the browser",
        f"{t3d} eval {folder} --episodes 100": "more episodes, for a more precise score",
        f"{t3d} resume {folder} --steps {2 * config.steps}": "train further",
    }
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
