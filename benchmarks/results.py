"""Measured learning curves: the campaign that makes them, and the files that keep them.

    python benchmarks/results.py campaign            train what is missing; Ctrl-C, and it goes on
    python benchmarks/results.py add GROUP RUN ...   keep curves of runs, or of folders of runs
    python benchmarks/results.py again RUN ...       note whether runs of the campaign, made once
                                                     more, are the kept ones
    python benchmarks/draw_results.py                write docs/results.md and its pictures

A kept curve is a file in benchmarks/results/GROUP/ with its evaluations, its score on test
episodes, its config, the versions, the processor, the command that gives it again, and the digest
by which one knows that it did. Groups are: campaign, ablation, engines, presets; settings, for what
was tried before a preset was; and author, for curves of the author's code (benchmarks/author.py).
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
    """What a run learned: its environment, by state or by sight."""
    return f"{config['env']}-pixels" if config.get("pixels") else str(config["env"])


def without(config: dict[str, Any]) -> tuple[str, ...]:
    """Which parts of TD3 a run does without."""
    parts = {
        "twins": not config["twins"],
        "delay": config["policy_freq"] == 1,
        "smoothing": config["policy_noise"] == 0,
    }
    return tuple(part for part, gone in parts.items() if gone)


def setting(config: dict[str, Any]) -> list[str]:
    """What sets a run apart from T3D's defaults, as typed."""
    usual = json.loads(Config().to_json())
    return [
        flag(knob, tuple(value) if isinstance(value, list) else value)
        for knob, value in config.items()
        if value != usual[knob] and knob not in NO_MATTER | {"eval_every"}
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
    """Keep the curve of a run, or of those in a folder that are finished."""
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
    kept = {
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
    file = RESULTS / group / name_of(group, kept["config"])
    if file.exists() and json.loads(file.read_text())["config"]["steps"] > config.steps:
        raise t3d.T3DError(f"{file} has more steps than {path}; move it away to keep this one")
    file.parent.mkdir(exist_ok=True)
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return [file]


def again(path: Path) -> Run:
    """Note how many evaluations of a run are, to the last bit, those of the kept one of its knobs.

    One that goes on further than the kept one, or is on its way, counts as far as both are. Say it
    on the machine on which the run was made.
    """
    folder = RunFolder.open(path)
    config = folder.config()
    file = RESULTS / "campaign" / name_of("campaign", vars(config))
    if not file.exists():
        raise t3d.T3DError(f"{file} is not there: nothing is kept to compare {path} with")
    first = json.loads(file.read_text())
    asked = Config.from_dict(first["config"])
    if config != dataclasses.replace(asked, steps=config.steps):
        raise t3d.T3DError(f"{path} has other knobs than {file}; expected: {first['command']}")
    if (versions := folder.about()["versions"]) != first["versions"]:
        raise t3d.T3DError(f"{path} has versions {versions}; expected {first['versions']}")
    if first["processor"] == processor():
        raise t3d.T3DError(f"{file} was made on {processor()} as well; expected another processor")
    then = dict(zip(first["evaluations"]["step"], first["evaluations"]["mean"]))
    clock = dict(zip(then, first["evaluations"]["seconds"]))
    now = read_evaluations(path)
    both = sorted(then.keys() & now.points.keys())
    if all(round(now.seconds[step], 3) == clock[step] for step in both):
        raise t3d.T3DError(f"{path} is the kept run itself; expected one that was made again")
    found = t3d.inspect(path)
    noted = {
        "env": config.env,
        "seed": config.seed,
        "step": both[-1],
        "evaluations": len(both),
        "same": sum(now.points[step] == then[step] for step in both),
        "apart": max(abs(now.points[step] - then[step]) for step in both),
        "digest": found["digest"] == first["digest"] if found["step"] == asked.steps else None,
        "first": first["processor"],
        "again": processor(),
    }
    one = ("env", "seed", "again")
    rows = json.loads(AGAIN.read_text()) if AGAIN.exists() else []
    before = [row for row in rows if all(row[name] == noted[name] for name in one)]
    if before and before[0]["step"] > noted["step"]:
        raise t3d.T3DError(f"{AGAIN} has this run up to step {before[0]['step']} already")
    rows = [row for row in rows if row not in before]
    rows = sorted([*rows, noted], key=lambda row: [row[name] for name in one])
    AGAIN.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    return noted


def processor() -> str:
    """The kind of this machine, on which the last bits of a run depend: add where you trained."""
    facts = {"vendor_id": platform.machine(), "cpu family": "?", "model": "?"}
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    return f"{facts['vendor_id']} family {facts['cpu family']} model {facts['model']}"


def kept(group: str) -> dict[str, list[Run]]:
    """The kept runs of a group by task, in the order of their seeds."""
    by_task: dict[str, list[Run]] = defaultdict(list)
    for path in sorted((RESULTS / group).glob("*.json")):
        run = json.loads(path.read_text())
        by_task[task(run["config"])].append(run)
    for runs in by_task.values():
        runs.sort(key=lambda run: run["config"]["seed"])
    return dict(by_task)


def curve(label: str, runs: list[Run], what: str = "mean") -> Curve:
    """What was measured of runs, at the steps that all of them reached."""
    lines = [dict(zip(run["evaluations"]["step"], run["evaluations"][what])) for run in runs]
    return _joined(label, [run["config"]["seed"] for run in runs], lines)


def _joined(label: str, seeds: list[int], lines: list[dict[int, float]]) -> Curve:
    steps = sorted(set.intersection(*map(set, lines)))
    return Curve(label, seeds, np.array(steps), np.array([[at[s] for s in steps] for at in lines]))


def author(env: str) -> dict[int, list[Curve]]:
    """The author's code on an environment: by the random steps it began with, a curve per seed."""
    found: dict[int, list[Curve]] = defaultdict(list)
    for path in sorted((RESULTS / "author").glob(f"{env}-*.jsonl")):
        about, *points = map(json.loads, path.read_text().splitlines())
        line = {point["step"]: point["ret"] for point in points}
        seed = int(path.stem.rpartition("seed")[2])
        found[about["random_steps"]].append(_joined("", [seed], [line]))
    return dict(sorted(found.items()))


def together(label: str, curves: list[Curve]) -> Curve:
    """Curves as one, at the steps that all of them reached."""
    lines = [dict(zip(c.step.tolist(), row)) for c in curves for row in c.returns]
    return _joined(label, [seed for c in curves for seed in c.seeds], lines)


def plan() -> dict[Path, tuple[list[Config], list[Config]]]:
    """By sweep of the campaign: its runs, and those that are not kept yet."""
    found = {}
    for path in sorted(CAMPAIGN.glob("*.toml")):
        configs = [run.config for run in runs_of(read_spec(path), Path())]
        found[path] = configs, [config for config in configs if not _is_kept(path, config)]
    return found


def group_of(spec: Path) -> str:
    """Where the curves of a sweep go."""
    return "ablation" if "ablation" in spec.stem else "campaign"


def _is_kept(spec: Path, config: Config) -> bool:
    group = group_of(spec)
    file = RESULTS / group / name_of(group, vars(config))
    if not file.exists():
        return False
    there = Config.from_dict(json.loads(file.read_text())["config"])
    asked = dataclasses.replace(config, steps=there.steps, engine=there.engine)
    return there == asked and there.steps >= config.steps


def campaign() -> int:
    """Train, sweep by sweep, the missing runs, and store them; returns an exit code."""
    for path, (_, configs) in plan().items():
        seeds: dict[str, set[int]] = defaultdict(set)
        for config in configs:
            seeds[config.env].add(config.seed)
        alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for env, missed in seeds.items():
            alike[tuple(sorted(missed))].append(env)
        out = HERE.parent / "runs" / group_of(path)
        for those, envs in alike.items():
            spec = dataclasses.replace(read_spec(path), env=envs, seeds=list(those))
            runs, stopped = sweep(spec, out, None, None, Console())
            for run in runs:
                if run.state == "finished":
                    print(*add(group_of(path), run.path))
            if stopped is not None or any(run.state == "failed" for run in runs):
                print("Stopped and saved. Go on with: python benchmarks/results.py campaign")
                return 1
    return 0


def main(words: list[str]) -> int | str | None:
    """Run a command; returns an exit code, or what to say of bad input."""
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
