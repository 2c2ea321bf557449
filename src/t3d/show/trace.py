"""One update as a debugger sees it: every value that it computes, with the line that did.

The update is the real one, in learn/t3d.py, which knows nothing of this.
"""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from t3d.learn import t3d as page
from t3d.learn.replay.memory import Batch, ReplayBuffer
from t3d.learn.t3d import T3D

Tensors = dict[str, Tensor]


class Seen(NamedTuple):
    """A value that a line of `T3D.train` or `T3D.update` gave to a name."""

    line: int
    name: str
    value: Any


class Change(NamedTuple):
    """What a line did to the parameters of a network."""

    line: int
    network: str  # actor, critic, actor_target or critic_target
    before: Tensors
    after: Tensors
    gradient: Tensors  # empty for a target, which has none


@dataclass
class Traced:
    """An update, taken apart."""

    number: int = 0  # counted from 1
    rows: NDArray[np.int64] | None = None  # of the memory, that were drawn
    seen: list[Seen] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def value(self, step: int, name: str) -> Any:
        """What a name stood for when a step was done."""
        lines = step_lines()
        *_, last = (v for line, n, v in self.seen if n == name and lines.get(line) == step)
        return last

    def change(self, network: str) -> Change | None:
        """What became of a network; None if it was left alone."""
        return next((c for c in self.changes if c.network == network), None)


def step_lines() -> dict[int, int]:
    """Which of the fifteen steps each line of learn/t3d.py belongs to, by its comments."""
    found: dict[int, int] = {}
    for function in (T3D.train, T3D.update):
        lines, first = inspect.getsourcelines(function)
        step = None
        for number, text in enumerate(lines, first):
            comment = re.match(r"\s*# Step (\d+):", text)
            step = int(comment[1]) if comment else step
            if step:
                found[number] = step
    return found


def trace(agent: T3D, memory: ReplayBuffer) -> Traced:
    """Do one update, and watch it."""
    watch = _Watch(agent)
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        agent.train(memory, 1)
    finally:
        sys.settrace(before)
    watch.traced.number = agent.updates
    return watch.traced


class _Watch:
    """Is told by Python of every call, and of every line of the calls that it wants to follow."""

    def __init__(self, agent: T3D) -> None:
        self.traced = Traced()
        names = ("actor", "critic", "actor_target", "critic_target")
        self._networks: dict[str, nn.Module] = {name: getattr(agent, name) for name in names}
        self._names = {id(network): name for name, network in self._networks.items()}
        self._optimizers = {
            id(agent.actor_optimizer): "actor",
            id(agent.critic_optimizer): "critic",
        }
        polyak: Any = page._polyak
        self._follow: dict[CodeType, Callable[[FrameType], Any]] = {
            T3D.train.__code__: self._by_line,
            T3D.update.__code__: self._by_line,
            type(agent.sampler).draw.__code__: self._drawn,
            page._descend.__code__: self._descending,
            polyak.__wrapped__.__code__: self._following,
        }

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        follow = self._follow.get(frame.f_code)
        return follow(frame) if follow else None

    def _by_line(self, frame: FrameType) -> Any:
        """Note which names stand for something new, line by line."""
        known: dict[str, Any] = dict(frame.f_locals)
        line = frame.f_lineno

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal line
            for name, value in frame.f_locals.items():
                if known.get(name) is not value:
                    known[name] = value
                    if isinstance(value, (Tensor, Batch)):
                        self.traced.seen.append(Seen(line, name, _copy(value)))
            line = frame.f_lineno
            return local

        return local

    def _drawn(self, frame: FrameType) -> Any:
        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                self.traced.rows = arg.copy()
            return local

        return local

    def _descending(self, frame: FrameType) -> Any:
        network = self._optimizers[id(frame.f_locals["optimizer"])]
        return self._changing(frame, network, learns=True)

    def _following(self, frame: FrameType) -> Any:
        return self._changing(frame, self._names[id(frame.f_locals["target"])], learns=False)

    def _changing(self, frame: FrameType, network: str, *, learns: bool) -> Any:
        """Compare a network before a call and after it."""
        caller = frame.f_back
        while caller is not None and caller.f_code is not T3D.update.__code__:
            caller = caller.f_back  # what decorates the function stands between
        assert caller is not None
        line, before = caller.f_lineno, self._parameters(network)

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                gradient = self._gradients(network) if learns else {}
                change = Change(line, network, before, self._parameters(network), gradient)
                self.traced.changes.append(change)
            return local

        return local

    def _parameters(self, network: str) -> Tensors:
        named = self._networks[network].named_parameters()
        return {name: parameter.detach().clone() for name, parameter in named}

    def _gradients(self, network: str) -> Tensors:
        named = self._networks[network].named_parameters()
        return {name: p.grad.detach().clone() for name, p in named if p.grad is not None}


def _copy(value: Any) -> Any:
    if isinstance(value, Batch):
        return Batch(*(part.detach().clone() for part in value))
    return value.detach().clone()
