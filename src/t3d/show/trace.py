"""Trace one update like a debugger: every value that it computes, and on which line.

The traced code is learn/t3d.py itself, unchanged.
"""

import inspect
import re
import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from t3d.learn.perception import Batch
from t3d.learn.replay.memory import ReplayBuffer
from t3d.learn.replay.sampling import Transitions
from t3d.learn.t3d import T3D

Tensors = dict[str, Tensor]


class Assignment(NamedTuple):
    """A value that a line of `T3D.train` or `T3D.update` assigned to a name."""

    line: int
    name: str
    value: Any


class Change(NamedTuple):
    """How a line changed the parameters of a network."""

    line: int
    network: str  # actor, critic, actor_target or critic_target
    before: Tensors
    after: Tensors
    gradient: Tensors  # empty for a target, which has none


@dataclass
class Trace:
    """A trace of one update."""

    number: int = 0  # counted from 1
    rows: NDArray[np.int64] | None = None  # of the memory, in the batch
    assignments: list[Assignment] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def value(self, step: int, name: str) -> Any:
        """The value of a name at the end of a step."""
        lines = step_lines()
        *_, last = (v for line, n, v in self.assignments if n == name and lines.get(line) == step)
        return last

    def change(self, network: str) -> Change | None:
        """The change of a network; None if there was none."""
        return next((c for c in self.changes if c.network == network), None)


def step_lines() -> dict[int, int]:
    """The step of each line of learn/t3d.py, by its "Step" comments."""
    steps: dict[int, int] = {}
    for function in (T3D.train, T3D.update):
        lines, first = inspect.getsourcelines(function)
        step = None
        for number, text in enumerate(lines, first):
            comment = re.match(r"\s*# Step (\d+):", text)
            step = int(comment[1]) if comment else step
            if step:
                steps[number] = step
    return steps


def trace(agent: T3D, memory: ReplayBuffer) -> Trace:
    """Do one update, and trace it."""
    record = Trace()
    recorder = _Recorder(agent, record)
    before = sys.gettrace()
    sys.settrace(recorder)
    try:
        agent.train(memory, 1)
    finally:
        sys.settrace(before)
    record.number, record.rows = agent.updates, agent.rows
    return record


class _Recorder:
    """The function for `sys.settrace`: it follows `T3D.train` and `T3D.update`."""

    def __init__(self, agent: T3D, record: Trace) -> None:
        self._record = record
        self._networks = agent.networks
        self._parameters = {name: _parameters(net) for name, net in self._networks.items()}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code not in (T3D.train.__code__, T3D.update.__code__):
            return None
        values: dict[str, Any] = dict(frame.f_locals)
        line = frame.f_lineno

        def after_a_line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal line
            self._record_values(line, frame.f_locals, values)
            if frame.f_code is T3D.update.__code__:
                self._record_changes(line)
            line = frame.f_lineno
            return after_a_line

        return after_a_line

    def _record_values(self, line: int, now: dict[str, Any], values: dict[str, Any]) -> None:
        """Record the names that have a new value."""
        for name, value in now.items():
            if values.get(name) is not value:
                values[name] = value
                if isinstance(value, (Tensor, Batch, Transitions)):
                    self._record.assignments.append(Assignment(line, name, _copy(value)))

    def _record_changes(self, line: int) -> None:
        """Record the networks that have new parameters."""
        for name, network in self._networks.items():
            before, now = self._parameters[name], dict(network.named_parameters())
            if all(torch.equal(before[key], parameter) for key, parameter in now.items()):
                continue
            after = self._parameters[name] = _parameters(network)
            gradient = {k: p.grad.detach().clone() for k, p in now.items() if p.grad is not None}
            self._record.changes.append(Change(line, name, before, after, gradient))


def _parameters(network: nn.Module) -> Tensors:
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return type(value)(*(part.detach().clone() for part in value))
