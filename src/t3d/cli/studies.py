"""Commands about many runs: sweep, tune, compare, check."""

import dataclasses
import json
import os
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from t3d.base.errors import BadInput, T3DError
from t3d.base.knobs import flag
from t3d.base.text import typed_path
from t3d.cli import say
from t3d.cli.knobs import knob_values, read_knobs, typed_values
from t3d.cli.options import Argument, Command, Option, parse, whole_number
from t3d.cli.runs import JSON, RUN, TRUST
from t3d.config import search_ranges
from t3d.presets import train_command

if TYPE_CHECKING:
    from optuna import Study
    from rich.console import Console

    from t3d.study.plan import Plan
    from t3d.study.spec import Spec


def sweep(words: list[str]) -> int:
    """Train every environment × seed × knob combination in parallel."""
    about = f"{sweep.__doc__} Run the same command again to resume it."
    spec = Argument("spec", "SPEC", "a TOML file, the folder of a sweep, or environments", "many")
    options = [
        Option(
            "seeds",
            "how many seeds, from 0 on, or a list: 0,5,7; [5] is seed 5 alone; by default 1",
            None,
            "SEEDS",
        ),
        Option(
            "preset",
            "a name from `t3d presets`, a TOML file, or auto: that of each environment",
            None,
            "NAME",
        ),
        Option(
            "set",
            "one value, or several to compare: tau=0.005,0.01; can be repeated",
            (),
            "KNOB=VALUES",
            repeated=True,
        ),
        Option("out", "folder to write; by default under runs/", None, "PATH"),
        Option(
            "jobs",
            "how many runs to train at a time; by default one per core",
            None,
            "N",
            whole_number,
        ),
        Option(
            "ray",
            "train on a Ray cluster: auto, host:port, ray://host:port, or local to start one;"
            " its machines must share the disk that --out is on",
            None,
            "ADDRESS",
        ),
        TRUST,
    ]
    typed = parse(Command("sweep", about, spec, {"options": options}), words)
    say.first(f"{' '.join(typed.spec)}: loading PyTorch ...")
    combinations, out = _spec_of(typed)
    if Path(typed.spec[0]).is_dir():  # its sweep.json may be somebody else's
        from t3d.study.spec import runs_of

        configs = [run.config for run in runs_of(combinations, out)]
        say.require_trust(typed.spec[0], *configs, trust=typed.trust)
    return train_sweep(combinations, out, typed.jobs, typed.ray)


def _spec_of(typed: Namespace) -> tuple["Spec", Path]:
    """What to sweep, and the folder for it."""
    from t3d.run.folder import safe_name
    from t3d.study.spec import Spec, read_spec

    path = Path(typed.spec[0])
    if path.suffix == ".toml" or os.path.exists(path):
        if len(typed.spec) > 1 or typed.seeds or typed.preset or typed.set:
            raise BadInput(
                f"{path} says what to sweep; leave out --seeds, --preset, --set and other words"
            )
        spec, name = read_spec(path), path.stem
    else:
        values = {"env": list(typed.spec), "knobs": dict(knob_values(each) for each in typed.set)}
        values |= {"seeds": typed_values(typed.seeds or "1"), "preset": typed.preset or "auto"}
        spec, name = Spec.from_dict(values), "-".join(typed.spec)
    out = path if os.path.isdir(path) else Path("runs") / safe_name(name)
    return spec, Path(typed.out or out)


def train_sweep(spec: "Spec", out: Path, jobs: int | None, ray: str | None) -> int:
    """Train a sweep; print how it ended, and what to type next."""
    from t3d.run.folder import RunFolder
    from t3d.show import plots
    from t3d.show.sweep import scores, sweep
    from t3d.show.terminal import say as tell

    console, t3d, folder = say.console(), say.t3d(), RunFolder(out)
    runs, signal = sweep(spec, out, jobs, ray, console)
    for run in runs:
        if run.state == "failed":
            tell(console, f"{run.path.name} failed: {run.why}")
    flags = [flag(name, value) for name, value in (("jobs", jobs), ("ray", ray)) if value]
    again = " ".join([f"{t3d} sweep {folder}", *flags])
    if signal is not None:
        tell(console, f"Stopped and saved. Resume with: {again}")
        return 128 + signal
    for line in scores(runs):
        tell(console, line)
    finished = [run.path for run in runs if run.state == "finished"]
    if finished:
        try:
            tell(console, f"curves: {plots.plot(finished, out / 'curves')[0]}")
        except T3DError as error:
            tell(console, f"curves: none: {error}")
        tell(console, "Next:")
        if len({run.setting for run in runs}) > 1:
            tell(console, f"  {t3d} compare {folder}")
        tell(console, f"  {t3d} report {folder}/*/")
    if len(finished) < len(runs):
        tell(console, f"{len(runs) - len(finished)} of {len(runs)} failed. Try again: {again}")
        return 2
    return 0


def tune(words: list[str]) -> int:
    """Search for better knobs with many short runs."""
    about = (
        f"{tune.__doc__} Ctrl-C saves; run the same command again to resume."
        " Takes all knobs of train; a knob that you set is not searched."
    )
    searchable = ", ".join(name.replace("_", "-") for name in search_ranges)
    own = [
        Option("trials", "total number of trials, earlier starts included", 30, "N", whole_number),
        Option("jobs", "how many trials to train at a time", 1, "N", whole_number),
        Option("search", f"knobs to search; by default {searchable}", (), "KNOB", many=True),
        Option("out", "folder to write; by default runs/tune-ENV", None, "PATH"),
        Option(
            "storage",
            "database, to search on several machines; by default a file in --out",
            None,
            "URL",
        ),
    ]
    typed = read_knobs("tune", about, own, words)
    if typed.config.track:
        raise BadInput("t3d tune logs to no tracker; leave --track out")
    say.first(f"{typed.config.env}, {typed.options.trials} trials: loading PyTorch ...")
    from t3d.run.folder import safe_name
    from t3d.run.session import about as about_run
    from t3d.show import terminal
    from t3d.show.tuning import tune as search
    from t3d.study.plan import Plan, choose
    from t3d.study.storage import hide_password

    options, config = typed.options, typed.config
    names = [name.replace("-", "_") for name in options.search]
    searched = choose(config, typed.knobs, names)
    out = Path(options.out or Path("runs") / f"tune-{safe_name(config.env)}")
    if options.storage:
        hidden = hide_password(options.storage)
        words = [word.replace(options.storage, hidden) for word in words]
    made_by = about_run(typed.preset, shlex.join(["t3d", "tune", *words]))
    plan = Plan(config, searched, options.trials, out, options.storage, made_by, options.jobs)
    console = say.console()
    study, signal = search(plan, console)
    if signal is not None:
        command = f"{say.t3d()} tune {shlex.join(words)}"
        terminal.say(console, f"Stopped and saved. Resume with: {command}")
        return 128 + signal
    return _end_tuning(plan, study, console)


def _end_tuning(plan: "Plan", study: "Study", console: "Console") -> int:
    """Print which knobs were best, where they are, and how to test them."""
    from t3d.show import terminal, tuning
    from t3d.study.tune import best_of, importances, results, write_best

    def tell(text: str) -> None:
        terminal.say(console, text)

    trials = results(plan, study)
    best = best_of(trials)
    if best is None:
        advice = "start from another --preset, or with a smaller --learning-rate"
        raise BadInput(f"none of {len(trials)} trials finished; {advice}")
    first = next((each for each in trials if each.number == 0 and each.ended == "finished"), None)
    before = f"; the starting knobs had {first.value:,.1f}" if first else ""
    tell(f"Best: {best.value:,.1f}, trial {best.number} of {len(trials)}{before}")
    preset = write_best(plan, best, len(trials))
    tell(f"  preset  {preset}")
    path = plan.folder(best.number).path
    tell(f"  run     {path if path.exists() else 'on another machine'}")
    try:
        shares = importances(study)
        title = f"{plan.base.env}, {len(trials)} trials"
        tell(f"  picture {tuning.draw(title, trials, shares, plan.out / 'importance')[0]}")
    except T3DError as error:
        tell(f"  picture none: {error}")
    tell(f"The best of {len(trials)} noisy trials looks better than it is. Test it on new seeds:")
    env, file = shlex.quote(plan.base.env), typed_path(preset)
    more = f"--steps {plan.base.steps} --seed {plan.base.seed + 1} --seeds 5"
    tell(f"  {say.t3d()} train {env} --preset {file} {more}")
    return 0


def compare(words: list[str]) -> int:
    """Compare groups of runs, with intervals over seeds and a verdict."""
    about = f"{compare.__doc__} With a single folder, compare the settings in it."
    groups = Argument("groups", "GROUP", "folders of runs, runs, or LABEL=FOLDER", "many")
    options = [
        Option("out", "files to write, without their ending", "runs/compare", "PATH"),
        JSON,
    ]
    typed = parse(Command("compare", about, groups, {"options": options}), words)
    from t3d.show import compare as pages
    from t3d.study.compare import compare as compare_groups

    comparison = compare_groups(typed.groups)
    file = pages.write(comparison, Path(typed.out))
    if typed.json:
        print(json.dumps(comparison))
    else:
        pages.show(comparison, say.console())
    pictures = pages.draw(comparison, Path(typed.out))
    if not typed.json:
        for each in (*pictures, file):
            say.line(each)
    return 0


def check(words: list[str]) -> int:
    """Check whether a run is normal, against known runs of its task."""
    about = f"{check.__doc__} Draws both. The exit code is 1 if the run is below them, else 0."
    options = [
        Option("out", "picture to write; by default check.png in the run folder", None, "PATH"),
        JSON,
    ]
    typed = parse(Command("check", about, RUN, {"options": options}), words)
    from t3d.show import check as pages
    from t3d.show.terminal import say as tell
    from t3d.study.check import check as check_run
    from t3d.study.check import unexplained

    checked = check_run(typed.run)
    if typed.json:
        print(json.dumps(checked.result))
    else:
        console = say.console()
        for line in pages.lines(checked.result):
            tell(console, line)
        if unexplained(checked.result):
            tell(console, f"  {_on_new_seeds(typed.run)}")
    try:
        pictures = pages.draw(checked, Path(typed.out or Path(typed.run) / "check"))
        if not typed.json:
            for each in pictures:
                say.line(each)
    except T3DError as error:
        if typed.out:
            raise
        if not typed.json:
            say.line(f"no picture: {error}")
    return 1 if checked.result["verdict"] == "below" else 0


def _on_new_seeds(run: str) -> str:
    """The command that trains with the config of a run, on five more seeds."""
    from t3d.run.folder import RunFolder

    config = RunFolder.open(run).config()
    more = dataclasses.replace(config, seed=(config.seed + 1) % 2**31)
    return f"{say.t3d()}{train_command(more).removeprefix('t3d')} --seeds 5"
