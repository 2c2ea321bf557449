"""The rows of the scorecard about folders of others: changed files, and code that they name."""

import contextlib
import io
import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import t3d
from faults.common import Case, Row, trained
from faults.folder_fuzzer import changes, fuzz
from helpers.runs import TINY, write_run
from helpers.runs import trained as plainly_trained
from t3d.cli.main import main
from t3d.presets import PRESETS, Preset, to_toml
from t3d.run.agents import load
from t3d.run.trust import _granted
from t3d.study.known import known_curves

Words = Callable[[Path], list[str]]
_SHORT: dict[str, Any] = TINY | {"steps": 40}

# R17: a folder of each kind, and the commands that read it.


def a_run(path: Path) -> list[Words]:
    """A run with checkpoints, which can be resumed."""
    plainly_trained(path, **_SHORT)
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
    output_of(lambda: main([*words, str(path)]))
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


def changed_folders(count: int, folder: Path, part: int = 0) -> Iterator[Case]:
    """R17. A few cases are of the kinds that need no other process."""
    chance = random.Random(17 + part)
    kinds = [kind for kind in KINDS if count >= 200 or kind not in ("sweep", "search")]
    commands, ways = {}, {}
    for kind in kinds:
        path = folder / kind / "folder"
        path.parent.mkdir()
        commands[kind] = KINDS[kind][0](path)
        ways[kind] = changes(path, random.Random(chance.random()))
    tried: set[Words] = set()
    for _ in range(count):
        kind = chance.choices(kinds, [KINDS[each][1] for each in kinds])[0]
        command = chance.choice(commands[kind])
        if command not in tried:  # on a good folder first: it imports what a command needs
            tried.add(command)
            copy = shutil.copytree(folder / kind / "folder", folder / kind / "copy" / "folder")
            output_of(lambda copy=copy, command=command: main(command(copy)))  # type: ignore[misc]
            shutil.rmtree(copy)
        yield fuzz(folder / kind / "folder", next(ways[kind]), command, folder / "scratch")


# R18: code that a folder names.

LEAVES_A_MARK = """
from pathlib import Path
import gymnasium, t3d
Path("mark").touch()
class Agent(t3d.T3D): pass
from t3d.learn.networks import mlp as body
def make(**more): return gymnasium.make("Pendulum-v1", **more)
def wrapper(env): return env
"""
_MEMBERS = {"env": "make", "agent": "Agent", "body": "body", "wrap": "wrapper", "eval_env": "make"}


def sources(folder: Path, number: int) -> dict[str, str]:
    """Modules by where they are, none of which is imported yet; all but Python's leave a mark."""
    package = folder / f"package{number}"
    package.mkdir()
    for path in (folder / f"module{number}.py", package / "__init__.py", package / "inner.py"):
        path.write_text(LEAVES_A_MARK)
    return {
        "a file": f"module{number}",
        "a package": f"package{number}",
        "a module of a package": f"package{number}.inner",
        "a module that is not there": f"package{number}.nothing",
        "a module with an effect": "antigravity",
        "Python itself": "os",
    }


def named(run: Path, knob: str, name: str) -> Path:
    """The run with another name in its config."""
    config = json.loads((run / "config.json").read_text())
    plain: dict[str, Any] = {
        "env": "Pendulum-v1",
        "agent": "t3d",
        "body": "mlp",
        "wrap": [],
        "eval_env": None,
    }
    value = [name] if knob == "wrap" else name
    (run / "config.json").write_text(json.dumps(config | plain | {knob: value}))
    return run


def trust(count: int, folder: Path) -> Iterator[Case]:
    """R18."""
    with contextlib.chdir(folder), environment(XDG_CONFIG_HOME=str(folder / "config")):
        yield from itertools.islice(refusals(folder), count)
        yield from agreements(folder)


def refusals(folder: Path) -> Iterator[Case]:
    """Nothing is imported, and a command that would import something says what."""
    run = plainly_trained(folder / "run", **_SHORT)
    sweep = folder / "sweep"
    sweep.mkdir()
    importing: dict[str, Callable[[], int]] = {
        "eval": lambda: main(["eval", str(run)]),
        "record": lambda: main(["record", str(run)]),
        "resume": lambda: main(["resume", str(run), "--steps", "50"]),
        "sweep": lambda: main(["sweep", str(sweep)]),
        "t3d.evaluate": lambda: raised(lambda: t3d.evaluate(run)),
        "t3d.resume": lambda: raised(lambda: t3d.resume(run, steps=50)),
        "t3d.load": lambda: raised(lambda: load(run, importing=True)),
        "t3d.make_env": lambda: raised(lambda: t3d.make_env(run)),
    }
    unused = {
        "t3d.load": ("env", "wrap", "eval_env"),
        "t3d.make_env": ("agent", "body", "eval_env"),
    }
    others = ("inspect", "report", "plot", "explain", "check")
    modules = sources(folder, 0)
    for (where, module), knob in itertools.product(modules.items(), _MEMBERS):
        name = f"{module}:{'abort' if module == 'os' else _MEMBERS[knob]}"
        named(run, knob, name)
        knobs = {} if knob == "env" else {knob: name}
        spec = {"env": name if knob == "env" else "Pendulum-v1", "knobs": knobs}
        (sweep / "sweep.json").write_text(json.dumps(spec))
        for command, look in importing.items():
            if knob in unused.get(command, ()):
                continue
            code, lines = output_of(look)
            flag = "no such module" if "nothing" in module else "trust"
            wrong = "" if code == 2 and len(lines) == 1 else f"exit {code}: {lines}"
            if not wrong and not (name in lines[0] and flag in lines[0]):
                wrong = f"does not say what to trust: {lines}"
            yield f"{command}, {knob} in {where}", wrong or imported(folder, module)
        for command in others:
            output_of(lambda command=command: main([command, str(run)]))  # type: ignore[misc]
            yield f"{command}, {knob} in {where}", imported(folder, module)
    named(run, "env", "Pendulum-v1")
    config = json.loads((run / "config.json").read_text())
    cluster = {"collectors": 1, "ray": "ray://stranger:10001"}
    (run / "config.json").write_text(json.dumps(config | cluster))
    code, lines = output_of(importing["resume"])
    right = code == 2 and "Ray cluster ray://stranger:10001" in lines[0] and "trust" in lines[0]
    yield "resume, a cluster", "" if right else f"exit {code}: {lines}"


def agreements(folder: Path) -> Iterator[Case]:
    """What the user trusts is imported and remembered; what the user trains is not asked for."""
    for number, knob in enumerate(_MEMBERS, start=1):
        module = f"module{number}"
        sources(folder, number)
        name = f"{module}:{_MEMBERS[knob]}"
        run = named(folder / "run", knob, name)
        code, lines = output_of(lambda run=run: main(["eval", str(run), "--trust"]))  # type: ignore[misc]
        yield f"--trust, {knob}", "" if (folder / "mark").exists() else f"exit {code}: {lines}"
        _granted.clear()  # as in a later process
        code, lines = output_of(lambda run=run: main(["eval", str(run)]))  # type: ignore[misc]
        yield f"after --trust, {knob}", "" if "trust" not in str(lines) else str(lines)
        (folder / "mark").unlink()
    (folder / "config" / "t3d" / "trusted.jsonl").unlink()
    own = plainly_trained(folder / "own", "module1:make", **_SHORT)
    _granted.clear()
    code, lines = output_of(lambda: main(["eval", str(own), "--episodes", "1"]))
    yield "a run that was trained here", "" if code == 0 else f"exit {code}: {lines}"
    (folder / "config" / "t3d" / "trusted.jsonl").write_text("not JSON\n[1]\n{}\n")
    code, lines = output_of(lambda: main(["eval", str(own), "--episodes", "1"]))
    yield "a damaged list", "" if code == 2 and len(lines) == 1 else f"exit {code}: {lines}"


def output_of(look: Callable[[], int]) -> tuple[int, list[str]]:
    """The exit code of some work, and the lines of its errors."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = look()
    return code, errors.getvalue().splitlines()


def raised(look: Callable[[], Any]) -> int:
    """2 if some work raises an error, which is printed."""
    try:
        look()
    except t3d.T3DError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def imported(folder: Path, module: str) -> str:
    """What is wrong if a module was imported."""
    loaded = module in sys.modules and module != "os"
    return "it was imported" if loaded or (folder / "mark").exists() else ""


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Some variables of the environment, for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


ROWS = {
    "R17": Row("files of a folder changed by their grammar", 3000, 20, changed_folders, 10),
    "R18": Row("code that a folder names, without trust", 1000, 40, trust),
}
