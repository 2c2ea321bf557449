"""`t3d report`: one page about one run or several, from their folders alone."""

import base64
import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t3d.base.errors import T3DError
from t3d.config import Config
from t3d.play.info import LIMIT
from t3d.presets import resolve
from t3d.run.folder import RunFolder
from t3d.run.lock import is_locked
from t3d.run.records import (
    CollectorChange,
    Episode,
    Evaluation,
    HealthWarning,
    Json,
    KnobChange,
    Record,
    Restart,
    Training,
    of_kind,
)
from t3d.show.html import write_page
from t3d.show.words import value_text
from t3d.study.evaluations import Curve, curves
from t3d.study.verdict import best_evaluation, verdict

_POINTS = 400  # of a line; more are averaged
_LARGEST_VIDEO = 20 * 2**20  # bytes of a video that goes into the page
_MOODS = {  # how the page colours a verdict
    "too early to say": "open",
    "not learned yet": "bad",
    "learned": "good",
    "learned, then fell": "mixed",
}


def report(runs: Sequence[str | Path], out: Path) -> Path:
    """Write the page of some runs; returns the file."""
    return write_page(out, "report", report_data(runs))


def report_data(runs: Sequence[str | Path]) -> dict[str, Any]:
    """All that the page shows."""
    entries = [_run(RunFolder.open(run)) for run in runs]
    names = [entry["name"] for entry in entries]
    for entry in entries:
        entry["name"] = entry["path"] if names.count(entry["name"]) > 1 else entry["name"]
    by_env = _curves(runs, entries)
    title = entries[0]["name"] if len(entries) == 1 else f"{len(entries)} runs"
    return {
        "title": f"T3D, {title}",
        "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        "runs": entries,
        "curves": {env: [_curve(line) for line in lines] for env, lines in by_env.items()},
    }


def version(runs: Sequence[str | Path]) -> str:
    """Something that changes when there is more to show."""
    names = ("metrics.jsonl", "score.json", "episode.mp4")
    paths = [Path(run) / name for run in runs for name in names]
    files = [f"{p.stat().st_mtime_ns}-{p.stat().st_size}" for p in paths if p.exists()]
    return "-".join(files + [str(is_locked(RunFolder(run))) for run in runs])


def _curves(runs: Sequence[str | Path], entries: list[Json]) -> dict[str, list[Curve]]:
    """Curves over seeds; a curve per run, where runs have no steps in common."""
    counts = [len(entry["evaluations"]["steps"]) for entry in entries]
    # A seed that has just started would cut the others' curve to its only point.
    minimum = min(2, max(counts))
    evaluated = [run for run, count in zip(runs, counts) if count >= minimum > 0]
    try:
        return curves(evaluated) if evaluated else {}
    except T3DError:
        separate: dict[str, list[Curve]] = {}
        for run in evaluated:
            for env, lines in curves([run]).items():
                lines[0].label = Path(run).name
                separate.setdefault(env, []).extend(lines)
        return separate


def _curve(line: Curve) -> Json:
    """A curve, with its interval and its seeds if there are several."""
    entry = {"label": line.label, "seeds": line.seeds, "steps": line.step.tolist()}
    entry["mean"] = line.mean().tolist()
    if len(line.returns) > 1:
        low, high = line.interval()
        entry |= {"each": line.returns.tolist(), "low": low.tolist(), "high": high.tolist()}
    return entry


def _run(folder: RunFolder) -> Json:
    """One run: what it is, how it went, and what to type next."""
    config, about = folder.config(), folder.about()
    step, seconds, history = _history(folder)
    changed = {each.knob: each.step for each in folder.records(KnobChange)}
    finished = step >= config.steps
    state = "being trained" if is_locked(folder) else "finished" if finished else "stopped"
    preset = str(about["preset"])
    return history | {
        "name": folder.path.resolve().name,
        "path": str(folder.path),
        "env": config.env,
        "seed": config.seed,
        "engine": config.engine,
        "preset": preset,
        "step": step,
        "steps": config.steps,
        "state": state,
        "seconds": seconds,
        "knobs": _knobs(config, preset, changed),
        "versions": about["versions"],
        "command": about["command"],
        "resume": _resume_command(folder, config, finished),
        "score": folder.score(),
        "video": _video(folder),
    }


def _history(folder: RunFolder) -> tuple[int, float, Json]:
    """A run's last step, its seconds, and what its records show."""
    records = list(folder.records())
    evaluations, training = of_kind(Evaluation, records), of_kind(Training, records)
    episodes = of_kind(Episode, records)
    word, sentences = verdict(evaluations, training)
    history = {
        "evaluations": _line(
            evaluations, "mean", "std", "estimated_Q", "true_Q", "success", all_of=True
        ),
        "train": _line(training, *_TRAIN),
        "episodes": _line(episodes, "return", "length"),
        "info": {
            "episodes": _info_line(episodes),
            "evaluations": _info_line(evaluations, all_of=True),
        },
        "verdict": {"word": word, "mood": _MOODS[word], "sentences": sentences},
        "best": _best(evaluations),
        "notes": _notes(records),
    }
    last = records[-1] if records else Record(step=0)
    return last.step, last.seconds, history


def _notes(records: Sequence[Record]) -> list[Json]:
    """What went wrong, or was repaired."""
    notes = [(each.step, each.text) for each in of_kind(HealthWarning, records)]
    notes += [(each.step, each.why) for each in of_kind(Restart, records)]
    notes += [(each.step, each.text) for each in of_kind(CollectorChange, records)]
    notes += [(each.step, each.text) for each in of_kind(KnobChange, records)]
    return [{"step": step, "text": text} for step, text in notes]


def _resume_command(folder: RunFolder, config: Config, finished: bool) -> str:
    """How to train the run further."""
    if "<" in config.env or config.env.startswith("__main__:"):  # it cannot be imported by name
        return f"t3d.resume({str(folder.path)!r}, env=...)  # in Python, with the same environment"
    more = f" --steps {2 * config.steps}" if finished else ""
    return f"t3d resume {folder}{more}"


_TRAIN = (
    *("critic_loss", "actor_loss", "mean_Q"),
    *("exploration", "saturation", "steps_per_second", "success_rate"),
)


def _line(records: Sequence[Record], *names: str, all_of: bool = False) -> Json:
    """The named numbers of records over steps; where there are many, means of neighbours."""
    lines = [record.to_json() for record in records]
    steps, every = _steps(records, all_of)
    return {"steps": steps, "every": every} | _means(lines, names, every)


def _info_line(records: Sequence[Episode | Evaluation], all_of: bool = False) -> Json:
    """The same of the numbers of the environment's info, as pairs of a name and its values."""
    names = dict.fromkeys(name for record in records for name in record.info)
    steps, every = _steps(records, all_of)
    means = _means([record.info for record in records], list(names)[:LIMIT], every)
    return {"steps": steps, "every": every, "lines": list(means.items())}


def _steps(records: Sequence[Record], all_of: bool) -> tuple[list[int], int]:
    """The steps of the points of a line, and how many records are averaged to a point."""
    every = 1 if all_of else max(1, math.ceil(len(records) / _POINTS))
    ends = range(every, len(records) + every, every)
    return [records[min(end, len(records)) - 1].step for end in ends], every


def _means(lines: Sequence[Json], names: Sequence[str], every: int) -> Json:
    """The numbers of some names, averaged over neighbours that have them."""
    groups = [lines[i : i + every] for i in range(0, len(lines), every)]
    means: Json = {}
    for name in names:
        numbers = [[line[name] for line in g if line.get(name) is not None] for g in groups]
        means[name] = [float(np.mean(values)) if values else None for values in numbers]
    return means


def _best(evaluations: Sequence[Evaluation]) -> Json | None:
    if not evaluations:
        return None
    best = best_evaluation(evaluations)
    facts = {"step": best.step, "mean": best.mean, "std": best.std}
    return facts | {"episodes": len(best.returns)}


def _knobs(config: Config, preset: str, changed: dict[str, int]) -> list[Json]:
    """Every knob, with the preset's value, and whether the two differ.

    `changed` gives the steps from which on some knobs have their value.
    """
    try:
        defaults = dataclasses.asdict(resolve(config.env, preset)[1])
    except T3DError:  # a preset that this version does not know
        defaults = dataclasses.asdict(Config(env=config.env))
    knobs = []
    for name, value in dataclasses.asdict(config).items():
        of_preset = defaults[name]
        # The environment and the seed are the run's own, and `auto` became some engine.
        differs = value != of_preset and name not in ("env", "seed") and of_preset != "auto"
        texts = {"value": value_text(value), "preset": value_text(of_preset)}
        if name in changed:
            texts["value"] += f" (since step {changed[name]:,})"
        knobs.append({"name": name, "differs": differs, **texts})
    return knobs


def _video(folder: RunFolder) -> str | None:
    """The video of an episode, as a data URL."""
    path = folder.path / "episode.mp4"
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _LARGEST_VIDEO:
        return None
    return f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"
