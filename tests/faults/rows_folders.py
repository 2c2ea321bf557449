"""The rows of the scorecard about folders of others: changed files, and code that they name."""

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faults.common import Case, Row, trained
from faults.folder_fuzzer import changes, fuzz
from helpers.runs import TINY, write_run
from t3d.cli.main import main
from t3d.presets import PRESETS, Preset, to_toml
from t3d.study.known import known_curves

Words = Callable[[Path], list[str]]
_SHORT: dict[str, Any] = TINY | {"steps": 40}

# R17: a folder of each kind, and the commands that read it.


def a_run(path: Path) -> list[Words]:
    """A run with checkpoints, which can be resumed."""
    trained(path, **_SHORT)
    return [
        lambda run: ["inspect", str(run)],
        lambda run: ["inspect", str(run), "--json"],
        lambda run: ["eval", str(run), "--episodes", "1"],
        lambda run: ["record", str(run)],
        lambda run: ["resume", str(run), "--steps", "50", "--no-video"],
        lambda run: ["explain", str(run)],
        lambda run: ["report", str(run)],
    ]


def a_curve(path: Path) -> list[Words]:
    """A run with the records of a known one."""
    known = known_curves()["Pendulum-v1"]
    records: list[dict[str, Any]] = []
    for step, mean in zip(known["step"], known["runs"]["0"]):
        now = {"step": step, "seconds": step / 1000 + 1}
        measures = {"critic_loss": 0.5, "actor_loss": 1.0, "mean_Q": -2.0, "saturation": 0.1}
        best = {"best_mean": mean, "best_step": step, "estimated_Q": mean / 2, "true_Q": mean / 3}
        records += [
            {"kind": "episode", "env": 0, "episode": 1, "length": 200, "return": mean} | now,
            {"kind": "train", "updates": step, "steps_per_second": 9.0} | measures | now,
            {"kind": "evaluation", "mean": mean, "std": 1.0, "returns": [mean] * 3} | best | now,
        ]
    texts = {"name": "saturated", "text": "at a limit", "why": "was killed", "reason": "enough"}
    records += [
        {"kind": kind, **texts, **now} for kind in ("warning", "restart", "collectors", "stop")
    ]
    about = {"preset": "Pendulum-v1", "command": "t3d train", "versions": known["versions"]}
    write_run(path, records, about, env="Pendulum-v1", **PRESETS["Pendulum-v1"].knobs)
    score = {"mean": mean, "std": 1.0, "episodes": 10, "step": step, "returns": [mean] * 10}
    (path / "score.json").write_text(json.dumps(score))
    other = shutil.copytree(path, path.with_name("other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"seed": 1, "tau": 0.5}))
    out = str(path.with_name("out"))
    return [
        lambda run: ["check", str(run)],
        lambda run: ["check", str(run), "--json"],
        lambda run: ["report", str(run)],
        lambda run: ["report", str(run), str(other), "--out", f"{out}.html"],
        lambda run: ["plot", str(run)],
        lambda run: ["plot", str(run), str(other), "--out", out],
        lambda run: ["compare", str(run), str(other), "--out", out],
        lambda run: ["inspect", str(run)],
    ]


def a_sweep(path: Path) -> list[Words]:
    """A sweep of one run, which is finished."""
    path.mkdir()
    trained(path / "Pendulum-v1-seed0", **_SHORT)
    spec = {"env": ["Pendulum-v1"], "seeds": [0], "preset": "default", "knobs": _SHORT}
    (path / "sweep.json").write_text(json.dumps(spec | {"variants": {}}))
    return [lambda run: ["sweep", str(run), "--jobs", "1"]]


def a_search(path: Path) -> list[Words]:
    """A search of one trial, which is finished."""
    knobs = [f"--{name.replace('_', '-')}={value}" for name, value in _SHORT.items()]
    knobs[knobs.index("--hidden=(8, 8)")] = "--hidden=8"
    words = ["tune", "Pendulum-v1", "--preset", "default", *knobs, "--trials", "1", "--out"]
    assert main([*words, str(path)]) == 0
    return [lambda run: [*words, str(run)]]


def a_preset(path: Path) -> list[Words]:
    """A preset in a file. It is read, but nothing is trained: the folder of the run exists."""
    path.mkdir()
    (path / "mine.toml").write_text(
        to_toml(Preset("mine", _SHORT | {"hidden": [8]}, "Pendulum-v1"))
    )
    file = "mine.toml"
    return [lambda run: ["train", "--preset", str(run / file), "--run", str(run)]]


KINDS = {
    "run": (a_run, 10),
    "curve": (a_curve, 8),
    "sweep": (a_sweep, 1),
    "search": (a_search, 1),
    "preset": (a_preset, 1),
}


def changed_folders(count: int, folder: Path, seed: int = 17) -> Iterator[Case]:
    """R17."""
    chance = random.Random(seed)
    commands, ways = {}, {}
    for kind, (make, _) in KINDS.items():
        path = folder / kind / "folder"
        path.parent.mkdir()
        commands[kind] = make(path)
        ways[kind] = changes(path, random.Random(chance.random()))
        for words in commands[kind]:  # on a good folder, and all that is imported is there by now
            copy = shutil.copytree(path, folder / kind / "copy" / "folder")
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                assert main(words(copy)) in (0, 1, 2), words(copy)
            shutil.rmtree(copy)
    for _ in range(count):
        kind = chance.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
        change = next(ways[kind])
        command = chance.choice(commands[kind])
        yield fuzz(folder / kind / "folder", change, command, folder / "scratch")


ROWS = {
    "R17": Row("files of a folder changed by their grammar", 3000, 40, changed_folders),
}
