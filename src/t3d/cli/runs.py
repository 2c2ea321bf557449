"""Commands about finished or running runs: inspect, eval, record, plot."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t3d.base.arguments import checked
from t3d.base.errors import BadInput
from t3d.base.text import percent
from t3d.cli import say
from t3d.cli.options import Argument, Command, Option, one_of, parse, whole_number

if TYPE_CHECKING:
    from t3d.config import Config

RUN = Argument("run", "RUN", "a run folder")
RUNS = Argument("runs", "RUN", "one or more run folders", "many")
JSON = Option("json", "print one JSON object", False)
TRUST = Option("trust", "trust the code that RUN names, and remember that", False)
_VARIANT = [
    Option("env", "a variant of the environment to play in, with the same spaces", None, "NAME"),
    Option(
        "env_kwargs",
        "arguments of the environment, on top of the run's: gravity=5",
        (),
        "NAME=VALUE",
        many=True,
        repeated=True,
    ),
]
_AGENT = Option(
    "agent", "which agent of the run: best or last", "best", "NAME", one_of("best", "last")
)


def inspect(words: list[str]) -> int:
    """Show how far a run got, and whether its files are intact."""
    typed = parse(Command("inspect", f"{inspect.__doc__}", RUN, {"options": [JSON]}), words)
    from t3d.api import inspect as facts_of
    from t3d.base.files import size
    from t3d.run.folder import RunFolder

    facts = facts_of(typed.run)
    if typed.json:
        print(json.dumps(facts))
        return 0
    say.line(f"{facts['run']}: {facts['env']}, seed {facts['seed']}, engine {facts['engine']}")
    if origin := RunFolder(typed.run).origin():
        say.line(f"started from {origin}; its agent's SHA-256 is {origin.sha256}")
    step = facts["step"]
    if step is None:
        say.line("no valid checkpoint yet")
    else:
        state = "being trained" if facts["training"] else "finished" if facts["finished"] else ""
        where = f"step {step:,} of {facts['steps']:,}, {facts['updates']:,} updates"
        say.line(f"{where}{f', {state}' if state else ''}")
        if facts["best_mean"] is not None:
            say.line(f"best evaluation {facts['best_mean']:,.2f}, at step {facts['best_step']:,}")
        why = "; ".join(facts["not_bit_exact"])
        checked = "; ".join(facts["checked"]) or "nothing, by an earlier version of t3d"
        exact = f"bit-exact in everything that was checked: {checked}"
        say.line(exact if facts["bit_exact"] else f"not bit-exact: {why}")
        say.line(f"digest {facts['digest']}")
    for name, file in facts["checkpoints"].items():
        say.line(f"  {name}  {'valid, ' + size(file['bytes']) if file['valid'] else file['why']}")
    if step is not None and not facts["training"] and not facts["finished"]:
        say.line(f"resume with: {say.t3d()} resume {RunFolder(typed.run)}")
    return 0


def evaluate(words: list[str]) -> int:
    """Play episodes without noise; print every return, the mean and the std."""
    options = [
        Option("episodes", "episodes to play", 10, "N", whole_number),
        Option("seed", "seed of the episodes", 0, "N", whole_number),
        Option(
            "eval_envs",
            "episodes to play at the same time, each in a process of its own",
            None,
            "N",
            whole_number,
        ),
        _AGENT,
        *_VARIANT,
        TRUST,
        JSON,
    ]
    run = Argument("run", "RUN", "a run folder, or an agent's file")
    typed = parse(Command("eval", f"{evaluate.__doc__}", run, {"options": options}), words)
    say.first(f"{typed.run}: loading PyTorch ...", sys.stderr)
    from t3d.api import evaluate as play
    from t3d.run.agents import config_of

    typed_env = _require_trust(typed, config_of(typed.run))
    with say.own_stdout():
        arguments = {"episodes": typed.episodes, "seed": typed.seed, "eval_envs": typed.eval_envs}
        score = play(typed.run, which=typed.agent, **arguments, **typed_env)
    if typed.json:
        facts = {"mean": score.mean, "std": score.std, "returns": score.returns}
        facts |= {"success": score.success, "successes": [each.success for each in score.infos]}
        print(json.dumps(facts | {"lengths": score.lengths, "info": score.info}))
        return 0
    ends = {None: "", True: "  success", False: "  no success"}
    for episode, (total, length) in enumerate(zip(score.returns, score.lengths)):
        end = ends[score.infos[episode].success]
        say.line(f"episode {episode:>3}  return {total:>12,.2f}  steps {length:>6,}{end}")
    share = "" if score.success is None else f", success {percent(score.success)}"
    say.line(f"mean {score.mean:,.2f}, std {score.std:,.2f}{share} over {typed.episodes} episodes")
    for name, mean in score.info.items():
        say.line(f"  info {name}  mean {mean:,.4g}")
    return 0


def _require_trust(typed: Namespace, config: "Config") -> dict[str, Any]:
    """Refuse code that only the run names; returns the environment that was typed."""
    own = () if typed.env is None else ("env", "eval_env")
    say.require_trust(typed.run, config, trust=typed.trust, not_from_folder=["ray", *own])
    return {"env": typed.env, "env_kwargs": checked("env_kwargs", typed.env_kwargs)}


def record(words: list[str]) -> int:
    """Record a video of one episode: an mp4 and a GIF."""
    options = [
        Option("out", "file to write; by default episode.mp4 in the run folder", None, "PATH"),
        Option("seed", "seed of the episode", 0, "N", whole_number),
        _AGENT,
        *_VARIANT,
        TRUST,
    ]
    typed = parse(Command("record", f"{record.__doc__}", RUN, {"options": options}), words)
    if typed.seed < 0:
        raise BadInput(f"seed is {typed.seed}; expected at least 0")
    say.first(f"{typed.run}: loading PyTorch ...", sys.stderr)
    from t3d.run.folder import RunFolder
    from t3d.show.pictures import record_video

    folder = RunFolder.open(typed.run)
    typed_env = _require_trust(typed, folder.config())
    out = Path(typed.out or folder.path / "episode")
    with say.own_stdout():
        files, total = record_video(folder, out, typed.seed, typed.agent, **typed_env)
    say.line(f"return {total:,.2f}")
    for file in files:
        say.line(file)
    return 0


def plot(words: list[str]) -> int:
    """Draw learning curves, with intervals over seeds: a PNG and an SVG."""
    out = Option("out", "file to write; by default in the run folder, or in runs/", None, "PATH")
    typed = parse(Command("plot", f"{plot.__doc__}", RUNS, {"options": [out]}), words)
    from t3d.show import plots

    default = Path(typed.runs[0]) / "curve" if len(typed.runs) == 1 else Path("runs") / "curves"
    for file in plots.plot(typed.runs, Path(typed.out or default)):
        say.line(file)
    return 0
