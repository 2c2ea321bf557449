"""Rows of the scorecard: odd answers of environments (R7), both engines on random configs (R19),
and damaged caches of compiled code (R20).
"""

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import t3d
from faults.common import Case, command, trained
from faults.engine_fuzz import FuzzCase, judge
from helpers import odd_answers
from helpers.runs import TESTS, TINY
from t3d.cli.main import main
from t3d.play.envs import EnvMaker
from t3d.run import checkpoint
from t3d.run.folder import RunFolder

# R7: the odd answers of helpers/odd_answers.py, alone and through the commands.

ODD = "helpers.odd_answers:Odd"


@contextlib.contextmanager
def answering(name: str) -> Iterator[None]:
    """Have every `Odd` give one of the odd answers."""
    os.environ["ODD_ANSWER"] = name
    try:
        yield
    finally:
        del os.environ["ODD_ANSWER"]


def odd_environments(count: int, folder: Path) -> Iterator[Case]:
    """R7: each answer by itself, and through the commands: all answers if `count` is as large."""
    for name, case in odd_answers.CASES.items():
        with answering(name):
            yield name, answered(case)
    folder.mkdir()
    run = trained(folder / "calm", ODD, engine="reference")
    names = list(odd_answers.CASES)
    for number, name in enumerate(names if count > len(names) else names[40:80:20]):
        for what, words in commands(name, run, folder / f"{number}", number % 8 == 7).items():
            with answering(name):
                yield f"{name}: {what}", spoken(name, words, folder / f"{number}")


def answered(case: odd_answers.Case) -> str:
    """What is wrong with what a guarded environment makes of an odd answer."""
    maker = EnvMaker(ODD, t3d.Config(env=ODD))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            env = maker.make(0)
            first, _ = env.reset(seed=7)
            for _ in range(3):
                observation, reward, terminated, truncated, _ = env.step(np.ones(2, np.float32))
            env.close()
        except t3d.T3DError as error:
            place = "" if case.where.endswith("space") else ", episode seed 7, step "
            named = (
                odd_answers.in_one_line(str(error)) and ODD in str(error) and place in str(error)
            )
            right = case.accepted is None and named
            return "" if right else f"refused with: {error}"
        except BaseException as error:
            return f"raised {type(error).__name__}"
    values: dict[str, Any] = {
        "observation": observation.tolist(),
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "reset": first.tolist(),
    }
    value = values.get(case.where, True)
    return "" if value == case.accepted else f"accepted as {value}"


def commands(name: str, run: Path, out: Path, processes: bool) -> dict[str, list[str]]:
    """The commands that play an environment; `doctor` takes long if nothing is refused."""
    knobs = TINY | {"engine": "reference", "run": str(out)}
    if processes:
        knobs |= {"num_envs": 2, "env_backend": "processes"}
    refused = odd_answers.CASES[name].accepted is None
    doctor = {"doctor": ["doctor", ODD]} if refused else {}
    return doctor | {
        "train": command(ODD, knobs),
        "eval": ["eval", str(run), "--episodes", "1"],
        "record": ["record", str(run), "--out", str(out / "episode.mp4")],
    }


def spoken(name: str, words: list[str], run: Path) -> str:
    """What is wrong with what a command says about an odd answer."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except BaseException as error:
            return f"raised {type(error).__name__}: {error}"
    refused = odd_answers.CASES[name].accepted is None
    lines = err.getvalue().splitlines()
    if code != (2 if refused else 0) or len(lines) != refused:
        return f"exit {code}: {err.getvalue()[:300]}"
    if refused and not (odd_answers.in_one_line(lines[0]) and ODD in lines[0]):
        return f"not named, or not in one line: {lines[0]}"
    newest = checkpoint.newest_valid(RunFolder(run)) if run.exists() else None
    for file in newest.path.glob("memory-*") if newest else ():
        if not all(np.isfinite(array).all() for array in load_file(file).values()):
            return "something that is not finite was stored"
    return ""


# R19: both engines on random configs.


def engine_configs(count: int, folder: Path, part: int = 0) -> Iterator[Case]:
    """R19."""
    for number in range(part * count, (part + 1) * count):
        verdict = judge(FuzzCase(number, updates=20 if count < 10 else 250))
        yield f"config {number}: {verdict.word}", verdict.wrong


# R20: damaged caches of compiled code.

_ANSWER = """
import sys
sys.path.insert(0, {tests!r})
from faults.compiled_sum import total
print(total(3))
"""
_DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda content, chance: b"",
    "cut": lambda content, chance: content[: chance.randrange(len(content))],
    "random": lambda content, chance: chance.randbytes(len(content)),
    "a bit flipped": lambda content, chance: flipped(content, chance),
    "longer": lambda content, chance: content + b"\0",
    "a pickle that runs code": lambda content, chance: b"cos\nsystem\n(S'touch HARM'\ntR.",
}


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def damaged_caches(count: int, folder: Path) -> Iterator[Case]:
    """R20: a small function, which is compiled and kept as the engine is."""
    chance = random.Random(20)
    good = folder / "good"
    if sums(good) != ("6", ""):
        yield "compiled at first", f"got {sums(good)}"
        return
    yield "compiled at first", ""
    yield "read later", "" if sums(good) == ("6", "") else f"got {sums(good)}"
    for number in range(count):
        what, damage = list(_DAMAGES.items())[number % len(_DAMAGES)]
        cache = shutil.copytree(good, folder / f"{number}")
        (file,) = cache.rglob("*.nbc")
        file.write_bytes(damage(file.read_bytes(), chance))
        yield f"{what}, {number}", recompiled(cache, "is damaged: it is compiled again")
    for what, (spoil, line) in list(_SPOILS.items())[: len(_SPOILS) if count > 1 else 1]:
        cache = shutil.copytree(good, folder / what)
        (file,) = cache.rglob("*.nbc")
        with contextlib.suppress(PermissionError):  # only root can give a file away
            spoil(file)
            yield what, refused(cache, line)


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


_SPOILS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file that others can write": (lambda file: file.chmod(0o666), "can be written by other"),
    "a folder that others can write": (
        lambda file: file.parent.chmod(0o777),
        "can be written by other",
    ),
    "a file that is a link": (linked, "is neither a file nor a folder"),
    "a file of another user": (lambda file: os.chown(file, 12345, -1), "belongs to another user"),
    "a folder of another user": (
        lambda file: os.chown(file.parent, 12345, -1),
        "belongs to another user",
    ),
}


def recompiled(cache: Path, line: str) -> str:
    """What is wrong with two starts on a damaged cache: the first mends it."""
    result, message = sums(cache)
    if result != "6" or line not in message or message.count("\n") != 1 or "Traceback" in message:
        return f"{result}: {message}"
    if list(cache.rglob("HARM")) or Path("HARM").exists():
        return "it was executed"
    again = sums(cache)
    return "" if again == ("6", "") else f"not mended: {again}"


def refused(cache: Path, line: str) -> str:
    """What is wrong with a start on a cache that others may have written."""
    before = sorted(cache.rglob("*"))
    result, message = sums(cache)
    if result != "6" or line not in message or message.count("\n") != 1:
        return f"{result}: {message}"
    return "" if sorted(cache.rglob("*")) == before else "it was written to"


def sums(cache: Path) -> tuple[str, str]:
    """Start Python, call the compiled function; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", _ANSWER.format(tests=str(TESTS))],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        cwd=cache.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip(), done.stderr
