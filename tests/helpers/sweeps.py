"""Sweeps of tiny runs."""

import json
from pathlib import Path
from typing import Any

from helpers.runs import TINY

ENVS = ["Pendulum-v1", "InvertedPendulum-v5"]
KNOBS: dict[str, Any] = TINY | {"hidden": [8, 8], "steps": 1500, "checkpoint_every": 100}
KNOBS |= {"eval_every": 60, "log_every": 20}


def toml(path: Path, text: str = "", **values: Any) -> str:
    """A spec of tiny runs as a file; JSON's values are TOML's."""
    knobs = KNOBS | values.pop("knobs", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    lines += ["[knobs]", *(f"{name} = {json.dumps(value)}" for name, value in knobs.items())]
    path.write_text(text or "\n".join(lines))
    return str(path)
