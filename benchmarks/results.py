"""Measured learning curves: the campaign that trains them, and the files that store them.

    python benchmarks/results.py campaign            train what is missing; Ctrl-C saves, run again
    python benchmarks/results.py add GROUP RUN ...   store curves of runs, or of folders of runs
    python benchmarks/results.py again RUN ...       record whether repeated runs of the campaign
                                                     are equal to the stored ones
    python benchmarks/draw_results.py                write docs/results.md and its pictures

A stored curve is a file in benchmarks/results/GROUP/ with its evaluations, its score on test
episodes, its config, the versions, the processor, the command that reproduces it, and the digest
that proves it. The groups are: campaign, ablation, engines, presets; settings, for experiments
that led to a preset; and author, for curves of the author's code (benchmarks/author.py).
"""

import dataclasses
import json
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import t3d
from t3d.base.knobs import flag
from t3d.config import Config
from t3d.presets import train_command
from t3d.run.checkpoint import has_finished
from t3d.run.folder import RunFolder
from t3d.run.records import Evaluation
from t3d.show.sweep import sweep
from t3d.study.evaluations import NO_MATTER, Curve, read_evaluations
from t3d.study.spec import read_spec, runs_of

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CAMPAIGN = HERE / "campaign"
AGAIN = RESULTS / "again.json"
GROUPS = ("campaign", "ablation", "engines", "presets", "settings")
_EXACT, _ROUNDED = ("step", "mean"), ("std", "estimated_Q", "true_Q", "seconds")

Run = dict[str, Any]


def task(config: dict[str, Any]) -> str:
    """The task of a run: its environment, with `-pixels` if it learned from images."""
    return f"{config['env']}-pixels" if config.get("pixels") else str(config["env"])


def without(config: dict[str, Any]) -> tuple[str, ...]:
    """The parts of TD3 that a run leaves out."""
    parts = {
        "twins": not config["twins"],
        "delay": config["policy_freq"] == 1,
        "smoothing": config["policy_noise"] == 0,
    }
    return tuple(part for part, left_out in parts.items() if left_out)


def setting(config: dict[str, Any]) -> list[str]:
    """The knobs of a run that differ from T3D's defaults, as typed."""
    defaults = json.loads(Config().to_json())
    return [
        flag(knob, tuple(value) if isinstance(value, list) else value)
        for knob, value in config.items()
        if value != defaults[knob] and knob not in NO_MATTER | {"eval_every"}
    ]


def name_of(group: str, config: dict[str, Any]) -> str:
    """The file of a run."""
    parts = [task(config)]
    if group == "ablation":
        parts += [f"no-{part}" for part in without(config)] or ["whole"]
    if group == "engines":
        parts.append(config["engine"])
    if group == "settings":
        parts += [typed[2:].replace(" ", "-") for typed in setting(config)] or ["default"]
    return "-".join([*parts, f"seed{config['seed']}.json"])


def add(group: str, path: Path) -> list[Path]:
    """Store the curve of a run, or of the finished runs in a folder."""
    if not path.is_dir():
        raise t3d.T3DError(f"no folder at {path}")
    if not (path / "config.json").is_file():
        return [
            file for each in sorted(path.glob("*/config.json")) for file in add(group, each.parent)
        ]
    folder = RunFolder.open(path)
    config = folder.config()
    score = folder.score()
    if score is None or not has_finished(folder, config.steps):
        print(f"{path} is not finished: left out")
        return []
    about = folder.about()
    evaluations = list(folder.records(Evaluation))
    entry = {
        "command": train_command(config),
        "digest": t3d.inspect(path)["digest"],
        "preset": about["preset"],
        "versions": about["versions"],
        "processor": processor(),
        "config": json.loads(config.to_json()),
        "score": score,
        "evaluations": {name: [getattr(e, name) for e in evaluations] for name in _EXACT}
        | {name: [round(getattr(e, name), 3) for e in evaluations] for name in _ROUNDED},
    }
    file = RESULTS / group / name_of(group, entry["config"])
    if file.exists() and json.loads(file.read_text())["config"]["steps"] > config.steps:
        raise t3d.T3DError(f"{file} has more steps than {path}; move it away to store this one")
    file.parent.mkdir(exist_ok=True)
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return [file]


def again(path: Path) -> Run:
    """Record how many evaluations of a repeated run are, to the last bit, those of the stored one.

    Only the steps that both have are compared: either may be longer. Run this on the machine that
    trained the repeated run.
    """
    folder = RunFolder.open(path)
    config = folder.config()
    file = RESULTS / "campaign" / name_of("campaign", vars(config))
    if not file.exists():
        raise t3d.T3DError(f"{file} is missing: there is no stored run to compare {path} with")
    first = json.loads(file.read_text())
    first_config = Config.from_dict(first["config"])
    if config != dataclasses.replace(first_config, steps=config.steps):
        raise t3d.T3DError(f"{path} has other knobs than {file}; expected: {first['command']}")
    if (versions := folder.about()["versions"]) != first["versions"]:
        raise t3d.T3DError(f"{path} has versions {versions}; expected {first['versions']}")
    if first["processor"] == processor():
        raise t3d.T3DError(
            f"{file} was trained on {processor()} as well; expected another processor"
        )
    then = dict(zip(first["evaluations"]["step"], first["evaluations"]["mean"]))
    clock = dict(zip(then, first["evaluations"]["seconds"]))
    now = read_evaluations(path)
    both = sorted(then.keys() & now.points.keys())
    if all(round(now.seconds[step], 3) == clock[step] for step in both):
        raise t3d.T3DError(f"{path} is the stored run itself; expected one that was trained again")
    state = t3d.inspect(path)
    same_digest: bool | None = state["digest"] == first["digest"]
    if state["step"] != first_config.steps:  # a longer or shorter run has another digest
        same_digest = None
    comparison = {
        "env": config.env,
        "seed": config.seed,
        "step": both[-1],
        "evaluations": len(both),
        "same": sum(now.points[step] == then[step] for step in both),
        "apart": max(abs(now.points[step] - then[step]) for step in both),
        "digest": same_digest,
        "first": first["processor"],
        "again": processor(),
    }
    key = ("env", "seed", "again")
    rows = json.loads(AGAIN.read_text()) if AGAIN.exists() else []
    before = [row for row in rows if all(row[name] == comparison[name] for name in key)]
    if before and before[0]["step"] > comparison["step"]:
        raise t3d.T3DError(f"{AGAIN} has this run up to step {before[0]['step']} already")
    rows = [row for row in rows if row not in before]
    rows = sorted([*rows, comparison], key=lambda row: [row[name] for name in key])
    AGAIN.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    return comparison


def processor() -> str:
    """The processor of this machine. Bits depend on it: call `add` where the run was trained."""
    facts = {"vendor_id": platform.machine(), "cpu family": "?", "model": "?"}
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    return f"{facts['vendor_id']} family {facts['cpu family']} model {facts['model']}"


def stored_runs(group: str) -> dict[str, list[Run]]:
    """The stored runs of a group by task, in the order of their seeds."""
    by_task: dict[str, list[Run]] = defaultdict(list)
    for path in sorted((RESULTS / group).glob("*.json")):
        run = json.loads(path.read_text())
        by_task[task(run["config"])].append(run)
    for runs in by_task.values():
        runs.sort(key=lambda run: run["config"]["seed"])
    return dict(by_task)


def curve(label: str, runs: list[Run], what: str = "mean") -> Curve:
    """A measure of some runs, at the steps that all of them reached."""
    lines = [dict(zip(run["evaluations"]["step"], run["evaluations"][what])) for run in runs]
    return _joined(label, [run["config"]["seed"] for run in runs], lines)


def _joined(label: str, seeds: list[int], lines: list[dict[int, float]]) -> Curve:
    steps = sorted(set.intersection(*map(set, lines)))
    return Curve(label, seeds, np.array(steps), np.array([[at[s] for s in steps] for at in lines]))


def author(env: str) -> dict[int, list[Curve]]:
    """The author's code on an environment: a curve per seed, by the number of random steps."""
    curves: dict[int, list[Curve]] = defaultdict(list)
    for path in sorted((RESULTS / "author").glob(f"{env}-*.jsonl")):
        about, *points = map(json.loads, path.read_text().splitlines())
        line = {point["step"]: point["ret"] for point in points}
        seed = int(path.stem.rpartition("seed")[2])
        curves[about["random_steps"]].append(_joined("", [seed], [line]))
    return dict(sorted(curves.items()))


def together(label: str, curves: list[Curve]) -> Curve:
    """Curves as one, at the steps that all of them reached."""
    lines = [dict(zip(c.step.tolist(), row)) for c in curves for row in c.returns]
    return _joined(label, [seed for c in curves for seed in c.seeds], lines)


def plan() -> dict[Path, tuple[list[Config], list[Config]]]:
    """By sweep of the campaign: its runs, and those that are not stored yet."""
    by_sweep = {}
    for path in sorted(CAMPAIGN.glob("*.toml")):
        configs = [run.config for run in runs_of(read_spec(path), Path())]
        by_sweep[path] = configs, [config for config in configs if not _is_stored(path, config)]
    return by_sweep


def group_of(spec: Path) -> str:
    """The group of a sweep's curves."""
    return "ablation" if "ablation" in spec.stem else "campaign"


def _is_stored(spec: Path, config: Config) -> bool:
    group = group_of(spec)
    file = RESULTS / group / name_of(group, vars(config))
    if not file.exists():
        return False
    stored = Config.from_dict(json.loads(file.read_text())["config"])
    expected = dataclasses.replace(config, steps=stored.steps, engine=stored.engine)
    return stored == expected and stored.steps >= config.steps


def campaign() -> int:
    """Train, sweep by sweep, the missing runs, and store them; returns an exit code."""
    for path, (_, configs) in plan().items():
        seeds: dict[str, set[int]] = defaultdict(set)
        for config in configs:
            seeds[config.env].add(config.seed)
        by_seeds: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for env, missing in seeds.items():
            by_seeds[tuple(sorted(missing))].append(env)
        out = HERE.parent / "runs" / group_of(path)
        for group, envs in by_seeds.items():
            spec = dataclasses.replace(read_spec(path), env=envs, seeds=list(group))
            runs, stopped = sweep(spec, out, None, None, Console())
            for run in runs:
                if run.state == "finished":
                    print(*add(group_of(path), run.path))
            if stopped is not None or any(run.state == "failed" for run in runs):
                print("Stopped and saved. Resume with: python benchmarks/results.py campaign")
                return 1
    return 0


def main(words: list[str]) -> int | str | None:
    """Run a command; returns an exit code, or an error message."""
    if words == ["campaign"]:
        return campaign()
    if words[:1] == ["again"] and len(words) > 1:
        for path in words[1:]:
            print(path, again(Path(path)))
        return 0
    if words[:1] != ["add"] or len(words) < 3 or words[1] not in GROUPS:
        return __doc__
    for path in words[2:]:
        for added in add(words[1], Path(path)):
            print(added)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except t3d.T3DError as error:
        sys.exit(f"{error}")
