"""Measured learning curves: take them over from run folders, and draw docs/results.md.

    python benchmarks/results.py add RUN [RUN ...]   keep a run's curve in benchmarks/results/
    python benchmarks/results.py draw                write docs/results.md and its pictures

A kept curve is one JSON file with its evaluations, its score on test episodes, its config, the
versions and the command that gave it.
"""

import itertools
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import t3d
from t3d.run.folder import RunFolder
from t3d.show.plots import Curve, draw

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"


def task(config: dict[str, Any]) -> str:
    """What a run learned: its environment, by state or by sight."""
    return f"{config['env']}-pixels" if config.get("pixels") else str(config["env"])


def add(run: str) -> Path:
    """Keep the curve of a finished run."""
    folder = RunFolder.open(run)
    config = folder.config()
    evaluations = list(folder.metrics("evaluation"))
    if evaluations[-1]["step"] < config.steps:
        raise t3d.T3DError(
            f"{run} is not finished: step {evaluations[-1]['step']} of {config.steps}"
        )
    score = t3d.evaluate(run)
    about = folder.about()
    kept = {
        **about,
        "command": re.sub(r" --run \S+", "", about["command"]),  # where it was is no part of it
        "config": json.loads(config.to_json()),
        "score": {"mean": score.mean, "std": score.std, "returns": score.returns},
        "evaluations": [{k: e[k] for k in ("step", "mean", "std", "seconds")} for e in evaluations],
    }
    path = RESULTS / f"{task(kept['config'])}-{config.engine}-seed{config.seed}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return path


Runs = list[dict[str, Any]]


def kept() -> dict[str, dict[str, Runs]]:
    """The kept runs by environment and engine, in the order of their seeds."""
    by_env: dict[str, dict[str, Runs]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(RESULTS.glob("*-seed*.json")):
        run = json.loads(path.read_text())
        by_env[task(run["config"])][run["config"]["engine"]].append(run)
    return {env: dict(engines) for env, engines in sorted(by_env.items())}


def author(env: str) -> Curve | None:
    """The curve of the author's code on an environment, if it was measured."""
    files = sorted(RESULTS.glob(f"author-{env}-seed*.jsonl"))
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    if not rows:
        return None
    steps = np.array([point["step"] for point in rows[0]])
    returns = np.array([[point["ret"] for point in row] for row in rows])
    return Curve("author's code", list(range(len(rows))), steps, returns)


def t3d_curve(engine: str, runs: Runs) -> Curve:
    """The curve of an engine's runs on one environment."""
    steps = np.array([point["step"] for point in runs[0]["evaluations"]])
    returns = np.array([[point["mean"] for point in run["evaluations"]] for run in runs])
    return Curve(f"T3D, {engine}", [r["config"]["seed"] for r in runs], steps, returns)


def p_value(one: Curve, two: Curve) -> float:
    """How often chance alone would set two groups of seeds as far apart as they are.

    Each seed counts by the mean of all its evaluations. Exact: every way to deal the seeds out
    to two groups of these sizes is tried.
    """
    seeds = np.concatenate([one.returns.mean(axis=1), two.returns.mean(axis=1)])
    size = len(one.returns)

    def apart(chosen: tuple[int, ...]) -> float:
        mine = np.isin(np.arange(len(seeds)), chosen)
        return float(abs(seeds[mine].mean() - seeds[~mine].mean()))

    found = apart(tuple(range(size)))
    dealt = [apart(chosen) for chosen in itertools.combinations(range(len(seeds)), size)]
    return float(np.mean([difference >= found - 1e-9 for difference in dealt]))


def page(by_env: dict[str, dict[str, Runs]]) -> str:
    """docs/results.md."""
    lines = [
        "# Results",
        "",
        "Measured on two CPU cores, one thread per run, and drawn by",
        "`python benchmarks/results.py draw` from the files in `benchmarks/results/`, which hold",
        "every evaluation, config and version. Bands are 95 % bootstrap intervals of the mean over",
        "seeds, thin lines are seeds. The curves show the agent as it was at that step; the score",
        "is the best of these agents on ten test episodes (seed 0) that it was not chosen by. The",
        "minutes are wall clock on a machine that did other work too: no measure of speed, for",
        "which see [speed.md](speed.md).",
        "",
    ]
    for env, engines in by_env.items():
        lines += [f"## {env}", "", f"![Learning curves on {env}](images/{env}.svg)", ""]
        lines += [
            "| engine | seed | score | best evaluation | at step | last evaluation | minutes |"
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        for engine, runs in engines.items():
            for run in runs:
                points = run["evaluations"]
                best = max(points, key=lambda point: point["mean"])
                cells = [
                    engine,
                    str(run["config"]["seed"]),
                    f"{run['score']['mean']:,.1f} ± {run['score']['std']:,.1f}",
                    f"{best['mean']:,.1f}",
                    f"{best['step']:,}",
                    f"{points[-1]['mean']:,.1f}",
                    f"{points[-1]['seconds'] / 60:.1f}",
                ]
                lines.append(f"| {' | '.join(cells)} |")
        if len(engines) == 2:
            p = p_value(*(t3d_curve(engine, runs) for engine, runs in engines.items()))
            lines += [
                "",
                "Do the engines learn alike? Each seed counts by the mean of all its evaluations;",
                "an exact permutation test of the difference between the engines' means, over all",
                f"ways to deal these seeds out to two groups, gives **p = {p:.2f}**: "
                + ("no difference beyond that of seeds." if p > 0.05 else "a difference."),
            ]
        repeat = next(iter(engines.values()))[0]["config"].get("action_repeat", 1)
        if repeat > 1:
            lines += ["", f"Each action is played {repeat} times, and counts as one step."]
        for runs in engines.values():
            again = "One of these runs again, bit for bit on the same kind of machine:"
            lines += ["", runs[0].get("note", again), "", f"    {runs[0]['command']}"]
        lines.append("")
        peer = author(env)
        if peer:
            lines += [
                "The author's code (github.com/sfujim/TD3, its 2020 settings, but 10,000 random",
                "steps as here, ten evaluation episodes) was measured on the same environment.",
                "Two seeds each are too few to tell the two apart:",
                "",
                "| step | author's code, each seed | T3D, each seed |",
                "|---|---|---|",
            ]
            mine = t3d_curve(*next(iter(engines.items())))
            for step in (50_000, 100_000):
                theirs = peer.returns[:, peer.step == step].ravel()
                ours = mine.returns[:, mine.step == step].ravel()
                cells = [", ".join(f"{value:,.0f}" for value in row) for row in (theirs, ours)]
                lines.append(f"| {step:,} | {cells[0]} | {cells[1]} |")
            lines.append("")
    return "\n".join(lines)


def draw_all() -> None:
    """Write the page and its pictures."""
    by_env = kept()
    for env, engines in by_env.items():
        lines = [t3d_curve(engine, runs) for engine, runs in engines.items()]
        peer = author(env)
        if peer:
            within = peer.step <= lines[0].step[-1]
            lines.append(Curve(peer.label, peer.seeds, peer.step[within], peer.returns[:, within]))
        for file in draw({env: lines}, DOCS / "images" / env):
            print(file.relative_to(HERE.parent))
    (DOCS / "results.md").write_text(page(by_env))
    print("docs/results.md")


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"] and sys.argv[2:]:
        for argument in sys.argv[2:]:
            print(add(argument))
    elif sys.argv[1:] == ["draw"]:
        draw_all()
    else:
        sys.exit(__doc__)
