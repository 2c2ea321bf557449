"""Shared by the rows of the scorecard: tiny runs, and `t3d` as a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import t3d
from helpers.runs import TINY

Case = tuple[str, str]
LONGER = {"steps": 3000, "random_steps": 200, "checkpoint_every": 250, "eval_every": 500}


class Row(NamedTuple):
    """A row of the scorecard."""

    what: str
    full: int
    short: int
    cases: Callable[..., Iterator[Case]]  # takes their number, a folder and, of `parts`, the part
    parts: int = 1  # into which a long row is divided, each with other cases


def trained(path: Path, env: Any = "Pendulum-v1", **knobs: Any) -> Path:
    """A tiny run, with checkpoints at steps 40 and 60."""
    t3d.train(env, run=path, quiet=True, preset="default", **(TINY | knobs))
    return path


def command(env: str, knobs: dict[str, Any]) -> list[str]:
    """`t3d train` with some knobs, as a process of its own."""
    words = ["train", env, "--preset", "default", "--no-video"]
    for name, value in knobs.items():
        flag = f"--{name.replace('_', '-')}"
        many = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        words += [flag] if value is True else [flag, *many]
    return words


def process(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    code = "import sys; from t3d.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def in_session(leader: int) -> list[str]:
    """The processes that a trainer has left."""
    listed = subprocess.run(
        ["ps", "-s", str(leader), "-o", "pid=,args="], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "<defunct>" not in line]
