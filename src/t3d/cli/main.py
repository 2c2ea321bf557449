"""The command line: t3d train and the commands beside it.

Nothing heavy is imported before a command needs it, so that help answers at once.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from t3d import __version__
from t3d.base.errors import BadInput, T3DError
from t3d.base.text import did_you_mean
from t3d.config import Config, knob_range, knob_types, search_ranges
from t3d.presets import PRESETS, flag, is_file, resolve, train_command

if TYPE_CHECKING:
    from optuna import Study
    from rich.console import Console

    from t3d.api import Outcome
    from t3d.study.sweep import Spec
    from t3d.study.tune import Plan

Options = TypeVar("Options")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 2 for bad input, 128 + n for signal n."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _dispatch(words)
    except T3DError as error:
        print(f"t3d: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stdout = None
        return 0


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("--version", "-V"):
        print(f"t3d {__version__}")
        return 0
    if words[0] not in _COMMANDS:
        commands = ", ".join(_COMMANDS)
        advice = did_you_mean(words[0], _COMMANDS) or f"; expected one of: {commands}"
        raise BadInput(f"no command is called {words[0]!r}{advice}")
    return _COMMANDS[words[0]](words[1:])


def _help() -> str:
    lines = ["usage: t3d COMMAND ...", "", "Train and use TD3 agents for continuous control.", ""]
    for name, command in _COMMANDS.items():
        summary = (command.__doc__ or "").splitlines()[0]
        lines.append(f"  {name:<9}{summary}")
    lines += ["", "t3d COMMAND --help lists the options of a command.  t3d --version"]
    lines += ["Start with: t3d train"]
    return "\n".join(lines)


def train(words: list[str]) -> int:
    """Train an agent on an environment, Pendulum-v1 by default."""
    asked, preset, config = _parse_knobs(words, "train", f"{train.__doc__}")
    if asked.seeds != 1:
        return _sweep_seeds(asked.seeds, preset, config, asked.run)

    from t3d.api import start

    console = _console()
    outcome = start(config, preset, asked.run, console)
    return _end(outcome, console, video=asked.video)


def sweep(words: list[str]) -> int:
    """Train on environments x seeds x knobs, side by side; once more goes on with it."""
    from tyro.conf import Positional, UseAppendAction, arg

    @dataclass(frozen=True)
    class SweepOptions:
        spec: Annotated[
            tuple[str, ...],
            arg(metavar="SPEC", help="a TOML file, a sweep's folder, or environments"),
            Positional,
        ]
        seeds: Annotated[
            str | None, arg(metavar="SEEDS", help="how many, from 0 on, or which: 0,5,7 or [5]")
        ] = None
        preset: Annotated[
            str | None,
            arg(metavar="NAME", help="a name that `t3d presets` lists, a TOML file, or auto"),
        ] = None
        set: UseAppendAction[
            Annotated[
                tuple[str, ...],
                arg(metavar="KNOB=VALUES", help="one value, or several to try: tau=0.005,0.01"),
            ]
        ] = ()
        out: Annotated[
            str | None, arg(metavar="PATH", help="its folder; by default under runs/")
        ] = None
        jobs: Annotated[
            int | None, arg(metavar="INT", help="cells at a time; by default one per core")
        ] = None
        ray: Annotated[
            str | None,
            arg(
                metavar="ADDRESS",
                help="train on a Ray cluster: auto, host:port, ray://host:port, or local, which"
                " starts one; the folder must be on a disk that all its machines share",
            ),
        ] = None

    asked = _parse(SweepOptions, words, "sweep", sweep.__doc__)
    if not asked.spec:
        raise BadInput("sweep needs a TOML file, a sweep's folder or environments: t3d sweep SPEC")
    from t3d.run.folder import safe_name
    from t3d.study.sweep import Spec, read_spec

    given = Path(asked.spec[0])
    written = given.suffix == ".toml" or given.exists()
    if written and (len(asked.spec) > 1 or asked.seeds or asked.preset or asked.set):
        raise BadInput(f"{given} says what to sweep; leave out --seeds, --preset, --set and more")
    if written:
        spec, name = read_spec(given), given.stem
    else:
        values = {"env": list(asked.spec), "knobs": dict(_knob_values(each) for each in asked.set)}
        values |= {"seeds": _values(asked.seeds or "1"), "preset": asked.preset or "auto"}
        spec, name = Spec.from_dict(values), "-".join(asked.spec)
    out = given if given.is_dir() else Path("runs") / safe_name(name)
    flags = [flag("jobs", asked.jobs)] if asked.jobs else []
    flags += [flag("ray", asked.ray)] if asked.ray else []
    return _sweep(spec, Path(asked.out or out), asked.jobs, asked.ray, flags)


def doctor(words: list[str]) -> int:
    """Look at an environment before training on it: what it is like, and what to set."""
    about = f"{doctor.__doc__} It takes all knobs of train; with --steps, it says how long that is."
    asked, _, config = _parse_knobs(words, "doctor", about)

    from t3d.play.envs import EnvMaker
    from t3d.run.doctor import examine

    found = examine(EnvMaker(config.env, config))
    typed = [word for word in words if word != "--json"] or [config.env]
    flags = [flag(knob, value) for knob, value in found.flags.items()]
    command = " ".join(["t3d train", *map(shlex.quote, typed), *flags])
    if asked.json:
        told = {"facts": found.facts, "advice": found.advice, "command": command}
        print(json.dumps(told, indent=2))
        return 0
    width = max(map(len, found.facts))
    for name, fact in found.facts.items():
        first, *more = fact if isinstance(fact, list) else [fact]
        print(f"{name:>{width}}  {first}")
        for line in more:
            print(f"{'':>{width}}  {line}")
    print()
    for advice in found.advice or ["nothing to change, as far as random play can tell"]:
        print(f"- {advice}")
    print(f"\n  {command}")
    return 0


def tune(words: list[str]) -> int:
    """Search for better knobs, by many runs; Ctrl-C saves, and the same command goes on."""
    about = f"{tune.__doc__} It takes all knobs of train; one that is typed is not searched."
    asked, preset, config = _parse_knobs(words, "tune", about)
    from t3d import api
    from t3d.run.folder import safe_name
    from t3d.study import tune as tuning

    said = {word.partition("=")[0] for word in words if word.startswith("--")}
    typed = {word[2:].removeprefix("no-").replace("-", "_") for word in said} & knob_types.keys()
    searched = tuning.choose(config, typed, [name.replace("-", "_") for name in asked.search])
    out = Path(asked.out or Path("runs") / f"tune-{safe_name(config.env)}")
    if asked.storage:
        hidden = tuning.hide_password(asked.storage)
        words = [word.replace(asked.storage, hidden) for word in words]
    made = api.about(preset, shlex.join(["t3d", "tune", *words]))
    plan = tuning.Plan(config, searched, asked.trials, out, asked.storage, made)
    console = _console()
    study, signal = api.tune(plan, console)
    if signal is not None:
        from t3d.show.terminal import say

        say(console, f"Stopped and saved. Go on with: {_as_typed()} tune {shlex.join(words)}")
        return 128 + signal
    return _end_tuning(plan, study, console)


def resume(words: list[str]) -> int:
    """Go on with a run from where it stopped."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class ResumeOptions:
        run: Annotated[str, arg(metavar="RUN", help="a run folder"), Positional]
        steps: Annotated[
            int | None, arg(metavar="INT", help="train to this many steps instead")
        ] = None
        ray: Annotated[
            str | None, arg(metavar="ADDRESS", help="another Ray cluster for its collectors")
        ] = None
        video: Annotated[bool, arg(help="film an episode at the end")] = True

    asked = _parse(ResumeOptions, words, "resume", resume.__doc__)
    from t3d.api import Outcome, go_on
    from t3d.run.checkpoint import has_finished
    from t3d.run.folder import RunFolder
    from t3d.show.terminal import say

    console = _console()
    folder = RunFolder.open(asked.run)
    unscored = asked.steps is None and folder.score() is None
    if unscored and has_finished(folder, folder.config().steps):
        say(console, f"{folder.config().env} is trained; what is left is its score: {folder}")
        return _end(Outcome(folder, None), console, video=asked.video)
    return _end(go_on(asked.run, asked.steps, console, ray=asked.ray), console, video=asked.video)


def inspect(words: list[str]) -> int:
    """Say what a run is, where it stands, and whether its files are whole."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class InspectOptions:
        run: Annotated[str, arg(metavar="RUN", help="a run folder"), Positional]
        json: Annotated[bool, arg(help="print one JSON object")] = False

    asked = _parse(InspectOptions, words, "inspect", inspect.__doc__)
    from t3d.api import inspect as look
    from t3d.base.files import size
    from t3d.run.folder import RunFolder

    found = look(asked.run)
    if asked.json:
        print(json.dumps(found))
        return 0
    print(f"{found['run']}: {found['env']}, seed {found['seed']}, engine {found['engine']}")
    done = found["step"]
    if done is None:
        print("no valid checkpoint yet")
    else:
        state = "being trained" if found["training"] else "finished" if found["finished"] else ""
        where = f"step {done:,} of {found['steps']:,}, {found['updates']:,} updates"
        print(f"{where}{f', {state}' if state else ''}")
        if found["best_mean"] is not None:
            print(f"best evaluation {found['best_mean']:,.2f}, at step {found['best_step']:,}")
        why = "; ".join(found["not_bit_exact"])
        print("bit-exact" if found["bit_exact"] else f"not bit-exact: {why}")
        print(f"digest {found['digest']}")
    for name, facts in found["checkpoints"].items():
        print(f"  {name}  {'valid, ' + size(facts['bytes']) if facts['valid'] else facts['why']}")
    if done is not None and not found["training"] and not found["finished"]:
        print(f"go on with: {_as_typed()} resume {RunFolder(asked.run)}")
    return 0


def evaluate(words: list[str]) -> int:
    """Play noiseless episodes with a run's agent: mean, std, each return."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class EvalOptions:
        run: Annotated[str, arg(metavar="RUN", help="a run folder"), Positional]
        episodes: Annotated[int, arg(help="episodes to play")] = 10
        seed: Annotated[int, arg(help="seed of the episodes")] = 0
        agent: Annotated[Literal["best", "last"], arg(help="which agent of the run")] = "best"
        json: Annotated[bool, arg(help="print one JSON object")] = False

    asked = _parse(EvalOptions, words, "eval", evaluate.__doc__)
    from t3d.api import evaluate as play

    score = play(asked.run, episodes=asked.episodes, seed=asked.seed, which=asked.agent)
    if asked.json:
        facts = {"mean": score.mean, "std": score.std, "returns": score.returns}
        print(json.dumps(facts | {"lengths": score.lengths}))
        return 0
    for episode, (total, length) in enumerate(zip(score.returns, score.lengths)):
        print(f"episode {episode:>3}  return {total:>12,.2f}  steps {length:>6,}")
    print(f"mean {score.mean:,.2f}, std {score.std:,.2f} over {asked.episodes} episodes")
    return 0


def record(words: list[str]) -> int:
    """Film an episode of a run's agent: an mp4 and a GIF."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class RecordOptions:
        run: Annotated[str, arg(metavar="RUN", help="a run folder"), Positional]
        out: Annotated[
            str | None, arg(metavar="PATH", help="file; by default in the run folder")
        ] = None
        seed: Annotated[int, arg(help="seed of the episode")] = 0
        agent: Annotated[Literal["best", "last"], arg(help="which agent of the run")] = "best"

    asked = _parse(RecordOptions, words, "record", record.__doc__)
    if asked.seed < 0:
        raise BadInput(f"seed is {asked.seed}; expected at least 0")
    out = Path(asked.out) if asked.out else Path(asked.run) / "episode"
    files, total = _film(asked.run, out, asked.seed, asked.agent)
    print(f"return {total:,.2f}")
    print(*files, sep="\n")
    return 0


def plot(words: list[str]) -> int:
    """Draw learning curves, with intervals over seeds: a PNG and an SVG."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class PlotOptions:
        runs: Annotated[tuple[str, ...], arg(metavar="RUN", help="run folders"), Positional]
        out: Annotated[
            str | None, arg(metavar="PATH", help="file; by default in the run folder")
        ] = None

    asked = _parse(PlotOptions, words, "plot", plot.__doc__)
    if not asked.runs:
        raise BadInput("plot needs at least one run folder: t3d plot RUN [RUN ...]")
    from t3d.show import plots

    several = Path("runs") / "curves"
    out = Path(asked.out) if asked.out else several
    if not asked.out and len(asked.runs) == 1:
        out = Path(asked.runs[0]) / "curve"
    print(*plots.plot(asked.runs, out), sep="\n")
    return 0


def compare(words: list[str]) -> int:
    """Compare groups of runs, with intervals over seeds and a verdict: table, picture, JSON."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class CompareOptions:
        groups: Annotated[
            tuple[str, ...],
            arg(
                metavar="GROUP",
                help="a folder of runs, a run, or LABEL=FOLDER; one alone: the settings in it",
            ),
            Positional,
        ]
        out: Annotated[str, arg(metavar="PATH", help="files to write, without their ending")] = (
            "runs/compare"
        )
        json: Annotated[bool, arg(help="print one JSON object")] = False

    asked = _parse(CompareOptions, words, "compare", compare.__doc__)
    if not asked.groups:
        raise BadInput("compare needs a folder of runs, or several: t3d compare GROUP [GROUP ...]")
    from t3d.show import compare as pages

    found = pages.compare(asked.groups)
    kept = pages.write(found, Path(asked.out))
    if asked.json:
        print(json.dumps(found))
    else:
        pages.show(found, _console())
    drawn = pages.draw(found, Path(asked.out))
    if not asked.json:
        print(*drawn, kept, sep="\n")
    return 0


def check(words: list[str]) -> int:
    """Say whether a run is normal, beside known runs of its environment: a sentence, a picture."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class CheckOptions:
        run: Annotated[str, arg(metavar="RUN", help="a run folder"), Positional]
        out: Annotated[
            str | None, arg(metavar="PATH", help="picture; by default check.png in the run folder")
        ] = None
        json: Annotated[bool, arg(help="print one JSON object")] = False

    about = f"{check.__doc__} The exit code is 0 if it is within or above, and 1 if it is below."
    asked = _parse(CheckOptions, words, "check", about)
    from t3d.show import check as pages
    from t3d.show.terminal import say

    found = pages.check(asked.run)
    if asked.json:
        print(json.dumps(found.told))
    else:
        console = _console()
        for line in pages.lines(found.told):
            say(console, line)
        if pages.unexplained(found.told):
            say(console, f"  {_on_fresh_seeds(asked.run)}")
    try:
        drawn = pages.draw(found, Path(asked.out or Path(asked.run) / "check"))
        if not asked.json:
            print(*drawn, sep="\n")
    except T3DError as error:
        if asked.out:
            raise
        if not asked.json:
            print(f"no picture: {error}")
    return 1 if found.told["verdict"] == "below" else 0


def report(words: list[str]) -> int:
    """Show what runs did, on one page for the browser; --watch follows them."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class ReportOptions:
        runs: Annotated[tuple[str, ...], arg(metavar="RUN", help="run folders"), Positional]
        out: Annotated[
            str | None, arg(metavar="FILE", help="page to write; by default in the run folder")
        ] = None
        watch: Annotated[bool, arg(help="serve it on localhost, and follow runs that go on")] = (
            False
        )
        port: Annotated[int, arg(help="where to serve it; 0 for any free port")] = 0

    asked = _parse(ReportOptions, words, "report", report.__doc__)
    if not asked.runs:
        raise BadInput("report needs at least one run folder: t3d report RUN [RUN ...]")
    from t3d.show import report as pages

    if asked.watch:
        from t3d.show.watch import serve

        with contextlib.suppress(KeyboardInterrupt):
            serve(asked.runs, asked.port, lambda at: print(f"{at}  (Ctrl-C to end)", flush=True))
        return 0
    several = Path("runs") / "report.html"
    alone = Path(asked.runs[0]) / "report.html"
    out = Path(asked.out) if asked.out else alone if len(asked.runs) == 1 else several
    print(pages.report(asked.runs, out))
    return 0


def explain(words: list[str]) -> int:
    """Walk through one real update, step by step, on a page for the browser."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class ExplainOptions:
        run: Annotated[
            str | None,
            arg(metavar="RUN", help="a run folder; without, a tiny agent is trained first"),
            Positional,
        ] = None
        out: Annotated[
            str | None,
            arg(metavar="FILE", help="page to write; by default explain.html, in the run folder"),
        ] = None

    asked = _parse(ExplainOptions, words, "explain", explain.__doc__)
    from t3d.show import explain as pages

    out = Path(asked.out) if asked.out else Path(asked.run or ".") / "explain.html"
    print(pages.explain(asked.run, out, _console()))
    return 0


def presets(words: list[str]) -> int:
    """List the presets: for which environment, with which knobs, and why."""

    @dataclass(frozen=True)
    class PresetsOptions:
        pass

    _parse(PresetsOptions, words, "presets", presets.__doc__)
    for name, preset in PRESETS.items():
        print(f"{name}\n    {preset.why}")
        flags = [flag(knob, value) for knob, value in preset.knobs.items()]
        print(f"    {' '.join(flags) or '(the defaults)'}")
    print("\nt3d train ENV takes the preset named ENV, if there is one; --preset any, and files.")
    return 0


def _knob_values(text: str) -> tuple[str, Any]:
    """`tau=0.005,0.01` as a knob and its values."""
    knob, is_there, values = text.partition("=")
    if not is_there or not values:
        raise BadInput(f"--set {text!r}; expected KNOB=VALUE or KNOB=VALUE,VALUE")
    return knob.replace("-", "_"), _values(values)


def _values(text: str) -> Any:
    """What a text says in TOML; else its parts between commas, and a word as it is."""
    import tomllib

    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    parts = text.split(",")
    return [_values(part) for part in parts] if len(parts) > 1 else text


def _sweep_seeds(seeds: int, preset: str, config: Config, out: str | None) -> int:
    """The knobs of train as a sweep over seeds."""
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
    return _sweep(spec, Path(out or Path("runs") / safe_name(config.env)), None, None, [])


def _sweep(spec: "Spec", out: Path, jobs: int | None, ray: str | None, flags: list[str]) -> int:
    """Train a sweep; say how it ended, and what to type next."""
    from t3d.api import sweep
    from t3d.run.folder import RunFolder
    from t3d.show import plots
    from t3d.show.sweep import scores
    from t3d.show.terminal import say

    console, t3d, folder = _console(), _as_typed(), RunFolder(out)
    cells, signal = sweep(spec, out, jobs, ray, console)
    for cell in cells:
        if cell.state == "failed":
            say(console, f"{cell.path.name} failed: {cell.why}")
    again = " ".join([f"{t3d} sweep {folder}", *flags])
    if signal is not None:
        say(console, f"Stopped and saved. Go on with: {again}")
        return 128 + signal
    for line in scores(cells):
        say(console, line)
    finished = [cell.path for cell in cells if cell.state == "finished"]
    if finished:
        try:
            say(console, f"curves: {plots.plot(finished, out / 'curves')[0]}")
        except T3DError as error:
            say(console, f"curves: none: {error}")
        say(console, "Next:")
        if len({cell.setting for cell in cells}) > 1:
            say(console, f"  {t3d} compare {folder}")
        say(console, f"  {t3d} report {folder}/*/")
    if len(finished) < len(cells):
        say(console, f"{len(cells) - len(finished)} of {len(cells)} failed. Try again: {again}")
        return 2
    return 0


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "sweep": sweep,
    "doctor": doctor,
    "tune": tune,
    "resume": resume,
    "inspect": inspect,
    "eval": evaluate,
    "record": record,
    "plot": plot,
    "compare": compare,
    "check": check,
    "report": report,
    "explain": explain,
    "presets": presets,
}


def _end(outcome: "Outcome", console: "Console", video: bool) -> int:
    """Say how training ended, where the files are, and what to type next."""
    from t3d.run.agents import evaluate as play
    from t3d.run.agents import keep_score
    from t3d.run.folder import RunFolder
    from t3d.show import terminal
    from t3d.show.check import known_for

    folder, run, t3d = outcome.folder, outcome.folder.path, _as_typed()

    def say(text: str) -> None:
        terminal.say(console, text)

    if outcome.signal is not None:
        say(f"Stopped and saved. Go on with: {t3d} resume {folder}")
        return 128 + outcome.signal
    try:
        score = play(run)
    except KeyboardInterrupt:
        say(f"Trained and saved; only its score was stopped. Have it with: {t3d} resume {folder}")
        return 130
    *_, last = folder.metrics("evaluation")
    try:
        keep_score(folder, score)
    except T3DError as error:
        say(f"the score is not kept: {error}")
    which = f"best agent (of step {last['best_step']:,})"
    say(f"Score: {score.mean:,.1f} ± {score.std:,.1f}, {which}, 10 test episodes (seed 0)")
    say(f"  run    {run}")
    try:
        from t3d.show import plots

        say(f"  curve  {plots.plot([run], run / 'curve')[0]}")
    except T3DError as error:
        say(f"  curve  none: {error}")
    if video:
        say("  filming an episode; Ctrl-C to do without ...")
        try:
            say(f"  video  {_film(run, run / 'episode', 0, 'best')[0][0]}")
        except T3DError as error:
            say(f"  video  none: {error}")
        except KeyboardInterrupt:
            say("  video  none: stopped")
    try:
        from t3d.show.report import report as write_report

        say(f"  report {write_report([run], run / 'report.html')}")
    except T3DError as error:
        say(f"  report none: {error}")
    say("Next:")
    next_commands = {
        f"{t3d} explain {folder}": "one of its updates, step by step, in the browser",
        f"{t3d} eval {folder} --episodes 100": "more episodes, for a surer score",
        f"{t3d} resume {folder} --steps {2 * folder.config().steps}": "train further",
    }
    with contextlib.suppress(T3DError):  # where nothing is known to compare with
        known = len(known_for(folder.config()).returns)
        next_commands[f"{t3d} check {folder}"] = f"is it normal? beside {known} known runs"
    if find_spec("tensorboard"):
        tensorboard = f"{t3d.removesuffix('t3d')}tensorboard"
        next_commands[f"{tensorboard} --logdir {RunFolder(run.parent)}"] = (
            "all runs, in the browser"
        )
    width = max(len(command) for command in next_commands)
    for command, purpose in next_commands.items():
        say(f"  {command:<{width}}   {purpose}")
    return 0


def _end_tuning(plan: "Plan", study: "Study", console: "Console") -> int:
    """Say what was found, where it is, and how far to trust it."""
    from t3d.show import terminal, tuning
    from t3d.study.tune import best_of, importances, results, write_best

    def say(text: str) -> None:
        terminal.say(console, text)

    found = results(study)
    best = best_of(found)
    if best is None:
        advice = "begin from another --preset, or with a smaller --learning-rate"
        raise BadInput(f"none of {len(found)} trials came to its end; {advice}")
    began = next((each for each in found if each.number == 0 and each.ended == "finished"), None)
    before = f"; it began at {began.value:,.1f}" if began else ""
    say(f"Best: {best.value:,.1f}, trial {best.number} of {len(found)}{before}")
    preset = write_best(plan, best, len(found))
    say(f"  preset  {preset}")
    path = plan.folder(best.number).path
    say(f"  run     {path if path.exists() else 'on another machine'}")
    try:
        shares = importances(study)
        title = f"{plan.base.env}, {len(found)} trials"
        say(f"  picture {tuning.draw(title, found, shares, plan.out / 'importance')[0]}")
    except T3DError as error:
        say(f"  picture none: {error}")
    say(f"The best of {len(found)} noisy trials looks better than it is. To see it on fresh seeds:")
    fresh = f"--seed {plan.base.seed + 1} --seeds 5"
    env, file = shlex.quote(plan.base.env), shlex.quote(str(preset))
    say(f"  {_as_typed()} train {env} --preset {file} {fresh}")
    return 0


def _on_fresh_seeds(run: str) -> str:
    """The command that trains the same as a run did, on five more seeds."""
    from t3d.run.folder import RunFolder

    config = RunFolder.open(run).config()
    more = dataclasses.replace(config, seed=(config.seed + 1) % 2**31)
    return f"{_as_typed()}{train_command(more).removeprefix('t3d')} --seeds 5"


def _film(run: str | Path, out: Path, seed: int, which: Any) -> tuple[list[Path], float]:
    from t3d.api import load
    from t3d.play.envs import EnvMaker
    from t3d.run.folder import RunFolder
    from t3d.show import video

    config = RunFolder.open(run).config()
    policy = load(run, which=which, importing=True).select_action
    return video.record(policy, EnvMaker(config.env, config), out, seed)


def _as_typed() -> str:
    """The command as the user can type it: with its folder, where the shell does not know it."""
    called = Path(sys.argv[0])
    if called.name != "t3d" or shutil.which("t3d"):
        return "t3d"
    return shlex.quote(os.path.relpath(called))


def _console() -> "Console":
    from t3d.show.terminal import PatientConsole

    return PatientConsole()


def _guess(words: list[str]) -> tuple[str, str]:
    """Environment and preset as far as they show before the words are parsed, for --help."""
    env = words[0] if words and not words[0].startswith("-") else None
    asked = [word.removeprefix("--preset=") for word in words if word.startswith("--preset=")]
    asked += [after for word, after in itertools.pairwise(words) if word == "--preset"]
    known = asked and (asked[0] in PRESETS or is_file(asked[0]))
    preset, config = resolve(env, asked[0] if known else "auto")
    return config.env, preset


def _parse_knobs(words: list[str], command: str, about: str) -> tuple[Any, str, Config]:
    """What was typed after a command that takes every knob; the preset and the config of it."""
    env, preset = _guess(words)
    about = f"{about} The defaults below are those of preset {preset}."
    asked = _parse(_knob_options(env, preset, command), words, command, about)
    preset, _ = resolve(asked.env, asked.preset)
    # Parsed again with the preset's values as the defaults: what was typed wins over them.
    asked = _parse(_knob_options(asked.env, preset, command), words, command, about)
    return asked, preset, Config(**{name: getattr(asked, name) for name in knob_types})


def _knob_options(env: str, preset: str, command: str) -> type[Any]:
    """The options of such a command: every knob, by default as in a preset, and its own."""
    from tyro.conf import Positional, arg

    _, config = resolve(env, preset)
    options: list[Any] = []
    for field in dataclasses.fields(Config):
        limits = knob_range(field)
        text = field.metadata["help"] + (f" ({limits})" if limits else "")
        kind: Any = knob_types[field.name]
        kind = Annotated[kind, arg(help=text)]
        if field.name == "env":
            kind = Annotated[str, arg(metavar="ENV", help=text), Positional]
        options.append((field.name, kind, getattr(config, field.name)))
    run = Annotated[
        str | None, arg(metavar="PATH", help="folder to write; by default new, under runs/")
    ]
    known = Annotated[
        str, arg(metavar="NAME", help="a name that `t3d presets` lists, a TOML file, or auto")
    ]
    video = Annotated[bool, arg(help="film an episode at the end")]
    said = Annotated[bool, arg(help="print one JSON object")]
    all_of = ", ".join(search_ranges)
    trials = Annotated[int, arg(help="trials to finish, all starts of the command together")]
    some = Annotated[
        tuple[str, ...], arg(metavar="KNOB", help="knobs to search; by default all of: " + all_of)
    ]
    out = Annotated[str | None, arg(metavar="PATH", help="folder; by default runs/tune-ENV")]
    storage = Annotated[
        str | None,
        arg(metavar="URL", help="database for many machines; by default a file in the folder"),
    ]
    options += [("preset", known, "auto")]
    own: dict[str, list[Any]]
    seeds = Annotated[
        int, arg(help="how many, from --seed on: more than one is a sweep, side by side")
    ]
    own = {
        "doctor": [("json", said, False)],
        "train": [("seeds", seeds, 1), ("run", run, None), ("video", video, True)],
        "tune": [("trials", trials, 30), ("search", some, ()), ("out", out, None)],
    }
    own["tune"] += [("storage", storage, None)]
    return dataclasses.make_dataclass("KnobOptions", options + own[command], frozen=True)


def _parse(options: type[Options], words: list[str], command: str, about: str | None) -> Options:
    """Read a command's words into its options; what is wrong with them becomes one line."""
    import tyro

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed, unknown = tyro.cli(
                options,
                prog=f"t3d {command}",
                description=about,
                args=words,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise BadInput(f"{_first_sentence(said.getvalue())} (t3d {command} --help)") from stop
    if unknown:
        names = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(options)]  # type: ignore[arg-type]
        typed = unknown[0].partition("=")[0]
        advice = did_you_mean(typed, names) or f"; t3d {command} --help lists all"
        if not typed.startswith("-"):
            raise BadInput(f"{command}: {typed!r} is one argument too many (t3d {command} --help)")
        raise BadInput(f"{command} has no option {typed!r}{advice}")
    return parsed


def _first_sentence(box: str) -> str:
    """The message out of the box that tyro draws around it."""
    text = []
    for line in box.splitlines()[1:]:
        words = line.strip("│ ")
        if not words.strip("─╰╯"):
            break
        text.append(words)
    return " ".join(" ".join(text).split()).rstrip(".")
