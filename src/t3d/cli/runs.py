"""Commands about finished or running runs: inspect, eval, record, plot."""

import json
from pathlib import Path

from t3d.base.errors import BadInput
from t3d.cli import say
from t3d.cli.options import Argument, Command, Option, one_of, parse, whole_number

RUN = Argument("run", "RUN", "a run folder")
RUNS = Argument("runs", "RUN", "one or more run folders", "many")
JSON = Option("json", "print one JSON object", False)
TRUST = Option("trust", "trust the code that the folder names, and remember that", False)
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
        _AGENT,
        TRUST,
        JSON,
    ]
    typed = parse(Command("eval", f"{evaluate.__doc__}", RUN, {"options": options}), words)
    from t3d.api import evaluate as play
    from t3d.run.folder import RunFolder

    config = RunFolder.open(typed.run).config()
    say.require_trust(typed.run, config, trust=typed.trust, not_from_folder=["ray"])
    with say.own_stdout():
        score = play(typed.run, episodes=typed.episodes, seed=typed.seed, which=typed.agent)
    if typed.json:
        facts = {"mean": score.mean, "std": score.std, "returns": score.returns}
        print(json.dumps(facts | {"lengths": score.lengths}))
        return 0
    for episode, (total, length) in enumerate(zip(score.returns, score.lengths)):
        say.line(f"episode {episode:>3}  return {total:>12,.2f}  steps {length:>6,}")
    say.line(f"mean {score.mean:,.2f}, std {score.std:,.2f} over {typed.episodes} episodes")
    return 0


def record(words: list[str]) -> int:
    """Record a video of one episode: an mp4 and a GIF."""
    options = [
        Option("out", "file to write; by default episode.mp4 in the run folder", None, "PATH"),
        Option("seed", "seed of the episode", 0, "N", whole_number),
        _AGENT,
        TRUST,
    ]
    typed = parse(Command("record", f"{record.__doc__}", RUN, {"options": options}), words)
    if typed.seed < 0:
        raise BadInput(f"seed is {typed.seed}; expected at least 0")
    from t3d.run.folder import RunFolder
    from t3d.show.pictures import record_video

    folder = RunFolder.open(typed.run)
    say.require_trust(typed.run, folder.config(), trust=typed.trust, not_from_folder=["ray"])
    out = Path(typed.out or folder.path / "episode")
    with say.own_stdout():
        files, total = record_video(folder, out, typed.seed, typed.agent)
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
