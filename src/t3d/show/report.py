"""`t3d report`: one page about one run or several, from their folders alone."""

import base64
import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from t3d.base.errors import BadInput, T3DError
from t3d.config import Config
from t3d.presets import resolve
from t3d.run.folder import Record, RunFolder, finite
from t3d.run.lock import is_locked
from t3d.show import plots
from t3d.show.html import write_page

_POINTS = 400  # of a line; more are averaged
_LARGEST_FILM = 20 * 2**20  # bytes of a film that goes into the page
FAR_TOO_MUCH = 0.5  # of `critic_error`
SATURATED = 0.8  # share of actions at an end of their range that is worth a word


def report(runs: Sequence[str | Path], out: Path) -> Path:
    """Write the page of some runs; returns where."""
    return write_page(out, "report", report_data(runs))


def report_data(runs: Sequence[str | Path]) -> dict[str, Any]:
    """All that the page shows."""
    told = [_run(RunFolder.open(run)) for run in runs]
    names = [run["name"] for run in told]
    for run in told:
        run["name"] = run["path"] if names.count(run["name"]) > 1 else run["name"]
    curves = _curves(runs, told)
    title = told[0]["name"] if len(told) == 1 else f"{len(told)} runs"
    return {
        "title": f"T3D, {title}",
        "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        "runs": told,
        "curves": {env: [_curve(line) for line in lines] for env, lines in curves.items()},
    }


def version(runs: Sequence[str | Path]) -> str:
    """Something that changes when there is more to show."""
    names = ("metrics.jsonl", "score.json", "episode.mp4")
    paths = [Path(run) / name for run in runs for name in names]
    files = [f"{p.stat().st_mtime_ns}-{p.stat().st_size}" for p in paths if p.exists()]
    return "-".join(files + [str(is_locked(RunFolder(run))) for run in runs])


def _curves(runs: Sequence[str | Path], told: list[Record]) -> dict[str, list[plots.Curve]]:
    """Curves over seeds; apart, where they have no steps in common."""
    counts = [len(run["evaluations"]["steps"]) for run in told]
    # A seed that has just begun would cut the others' curve to its only point.
    least = min(2, max(counts))
    evaluated = [run for run, count in zip(runs, counts) if count >= least > 0]
    try:
        return plots.curves(evaluated) if evaluated else {}
    except T3DError:
        apart: dict[str, list[plots.Curve]] = {}
        for run in evaluated:
            for env, lines in plots.curves([run]).items():
                lines[0].label = Path(run).name
                apart.setdefault(env, []).extend(lines)
        return apart


def _curve(line: plots.Curve) -> Record:
    told = {"label": line.label, "seeds": line.seeds, "steps": line.step.tolist()}
    if len(line.returns) == 1:
        return told | {"mean": line.mean().tolist()}
    low, high = line.interval()
    each = line.returns.tolist()
    ends = {"low": low.tolist(), "high": high.tolist()}
    return told | {"mean": line.mean().tolist(), "each": each} | ends


def _run(folder: RunFolder) -> Record:
    """One run: what it is, how it went, and what to type next."""
    config, about = folder.config(), folder.about()
    records: dict[str, list[Record]] = {}
    last: Record = {"step": 0, "seconds": 0.0}
    for last in folder.metrics():
        records.setdefault(last["kind"], []).append(last)
    evaluations = records.get("evaluation", [])
    try:
        step, seconds = int(last["step"]), finite(last["seconds"])
        notes = [
            {"step": int(r["step"]), "text": str(r.get("text") or r.get("why"))}
            for kind in ("warning", "restart", "collectors")
            for r in records.get(kind, [])
        ]
        told = {
            "evaluations": _line(evaluations, "mean", "std", "estimated_Q", "true_Q", whole=True),
            "train": _line(records.get("train", []), *_TRAIN),
            "episodes": _line(records.get("episode", []), "return", "length"),
            "verdict": _verdict(records),
            "best": _best(evaluations),
        }
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInput(
            f"{folder.metrics_path} has a record that makes no sense: {error}"
        ) from error
    training = is_locked(folder)
    finished = step >= config.steps
    state = "being trained" if training else "finished" if finished else "stopped"
    more = f" --steps {2 * config.steps}" if finished else ""
    # What has no name that can be imported is given again, in Python.
    nameless = "<" in config.env or config.env.startswith("__main__:")
    by_hand = f"t3d.resume({str(folder.path)!r}, env=...)  # in Python, with the same environment"
    preset = str(about.get("preset"))
    return told | {
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
        "notes": notes,
        "knobs": _knobs(config, preset),
        "versions": known if isinstance(known := about.get("versions"), dict) else {},
        "command": str(about.get("command", "")),
        "resume": by_hand if nameless else f"t3d resume {folder}{more}",
        "score": folder.score(),
        "film": _film(folder),
    }


_TRAIN = (
    *("critic_loss", "actor_loss", "mean_Q"),
    *("exploration", "saturation", "steps_per_second"),
)


def _line(records: list[Record], *names: str, whole: bool = False) -> Record:
    """The named numbers of records over steps; where there are many, means of neighbours."""
    every = 1 if whole else max(1, math.ceil(len(records) / _POINTS))
    groups = [records[i : i + every] for i in range(0, len(records), every)]
    found: Record = {"steps": [int(group[-1]["step"]) for group in groups], "every": every}
    for name in names:
        kept = [[finite(r[name]) for r in g if r.get(name) is not None] for g in groups]
        found[name] = [float(np.mean(values)) if values else None for values in kept]
    return found


def _best(evaluations: list[Record]) -> Record | None:
    if not evaluations:
        return None
    best = max(evaluations, key=lambda record: float(record["mean"]))
    return {name: best[name] for name in ("step", "mean", "std")} | {
        "episodes": len(best.get("returns", []))
    }


def _verdict(records: dict[str, list[Record]]) -> Record:
    """How it went in a word, and in some sentences with their numbers."""
    evaluations = records.get("evaluation", [])
    if len(evaluations) < 2:
        return {"word": "too early to say", "mood": "open", "said": []}
    first, last = evaluations[0], evaluations[-1]
    best = max(evaluations, key=lambda record: float(record["mean"]))
    rise = best["mean"] - first["mean"]
    said = []
    # The best of many is above the first by chance already: the more, the further.
    beyond = NormalDist().inv_cdf(1 - 0.025 / len(evaluations))
    if rise <= beyond * _error(first, best, evaluations):
        word, mood = "not learned yet", "bad"
        said.append(
            f"The best evaluation, {best['mean']:,.1f}, is not beyond chance above the first, "
            f"{first['mean']:,.1f}. See what t3d doctor says of the environment."
        )
    else:
        word, mood = "learned", "good"
        said.append(
            f"Its evaluations rose from {first['mean']:,.1f} to {best['mean']:,.1f}, "
            f"at step {best['step']:,}."
        )
        fallen = best["mean"] - last["mean"]
        if fallen > max(0.2 * rise, 2 * _error(best, last, evaluations)):
            word, mood = "learned, then fell", "mixed"
            said.append(
                f"The last one is {last['mean']:,.1f}. The agent of step {best['step']:,} is kept: "
                f"eval, record and load take that one."
            )
        quarter = max(1, len(evaluations) // 4)
        parts = evaluations[-2 * quarter : -quarter], evaluations[-quarter:]
        before, after = (float(np.mean([r["mean"] for r in part])) for part in parts)
        if len(evaluations) >= 8 and after - before > 0.1 * rise:
            said.append("It still rose at the end: more steps may give more.")
    off = critic_error(last)
    if last.get("cut_off", 0) > 0.05:
        said.append(
            "Its episodes are cut off so early that what comes after them still counts: what the "
            "critic expects cannot be compared with what came."
        )
    elif off is not None:
        expected, got = last["estimated_Q"], last["true_Q"]
        how = f"{abs(off):.0%} too {'high' if off > 0 else 'low'}"
        said.append(
            f"Where episodes begin, the critic expects {expected:,.1f}; {got:,.1f} is what comes, "
            f"both discounted: {how if abs(off) > 0.05 else 'about right'}."
        )
        if off > FAR_TOO_MUCH:
            said.append("That is far too much: over-estimation. Try a smaller --learning-rate.")
    train = records.get("train", [])
    if train and (train[-1].get("saturation") or 0) > SATURATED:
        share = train[-1]["saturation"]
        said.append(f"{share:.0%} of its last actions are at an end of their range.")
    return {"word": word, "mood": mood, "said": said}


def critic_error(evaluation: Record) -> float | None:
    """By what share the critic expects more than comes; None where that cannot be compared."""
    if evaluation.get("cut_off", 0) > 0.05 or evaluation.get("estimated_Q") is None:
        return None
    expected, got = evaluation["estimated_Q"], evaluation["true_Q"]
    return float((expected - got) / max(abs(expected), abs(got), 1e-9))


def _error(one: Record, two: Record, evaluations: list[Record]) -> float:
    """The standard error of the difference of two evaluations."""
    if len(one.get("returns", [])) < 2:  # one episode says nothing of its own spread
        return float(np.std(np.diff([r["mean"] for r in evaluations])))
    parts = [r["std"] ** 2 / max(1, len(r.get("returns", []))) for r in (one, two)]
    return math.sqrt(sum(parts))


def _knobs(config: Config, preset: str) -> list[Record]:
    """Every knob, and what the preset says where that differs."""
    try:
        usual = dataclasses.asdict(resolve(config.env, preset)[1])
    except T3DError:  # a preset that this version does not know
        usual = dataclasses.asdict(Config(env=config.env))
    told = []
    for name, value in dataclasses.asdict(config).items():
        of_preset = usual[name]
        # What a run is, and which engine `auto` became, is no difference.
        differs = value != of_preset and name not in ("env", "seed") and of_preset != "auto"
        shown = {"value": _said(value), "preset": _said(of_preset)}
        told.append({"name": name, "differs": differs, **shown})
    return told


def _said(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _film(folder: RunFolder) -> str | None:
    """The film of an episode, as the address of itself."""
    path = folder.path / "episode.mp4"
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _LARGEST_FILM:
        return None
    return f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"
