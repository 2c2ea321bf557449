"""The lines of code that do each of the fifteen steps."""

import inspect
from typing import Any

import t3d.learn.networks as networks
from t3d.learn import t3d as steps_page
from t3d.learn.replay.memory import ReplayBuffer
from t3d.show.trace import step_lines


def sources() -> dict[str, Any]:
    """By step: the file, its first line, and the lines."""
    by_number: dict[str, Any] = {}
    functions: dict[int, tuple[str, Any]] = {
        1: ("learn/replay/memory.py", ReplayBuffer.sample),
        2: ("learn/networks.py", networks.Actor.forward),
        3: ("learn/networks.py", networks.Critic.forward),
    }
    for step, (file, function) in functions.items():
        lines, start = inspect.getsourcelines(function)
        by_number[str(step)] = {"file": file, "first": start, "lines": _unindented(lines)}
    text = inspect.getsource(steps_page).splitlines()
    by_step: dict[int, list[int]] = {}
    for line, step in step_lines().items():
        by_step.setdefault(step, []).append(line)
    for step, numbers in by_step.items():
        first, last = min(numbers), _last_line(text, min(numbers), max(numbers))
        lines = _unindented(text[first - 1 : last])
        by_number[str(step)] = {"file": "learn/t3d.py", "first": first, "lines": lines}
    return by_number


def _last_line(text: list[str], first: int, limit: int) -> int:
    """The line before the first that is empty or less indented than the step's comment."""
    indent = len(text[first - 1]) - len(text[first - 1].lstrip())
    last = first
    for line in range(first, limit + 1):
        content = text[line - 1]
        if not content.strip() or len(content) - len(content.lstrip()) < indent:
            break
        last = line
    return last


def _unindented(lines: list[str]) -> list[str]:
    bare = [line.rstrip("\n") for line in lines]
    indent = min(len(line) - len(line.lstrip()) for line in bare if line.strip())
    return [line[indent:] for line in bare]
