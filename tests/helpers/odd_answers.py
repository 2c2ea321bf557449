"""An environment that answers in one of many odd ways, and what T3D must make of each.

`Odd` behaves until the environment variable ODD_ANSWER names an entry of the table, and from the
third step on gives that answer. It works by its name in every command, and in processes.
"""

import asyncio
import os
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box

from helpers.broken_envs import Calm

HUGE = 10**400  # no float holds it


class Case(NamedTuple):
    """One odd answer: where it is given, what makes it, and what must come of it.

    `accepted` is what the reward, the end or the observation must become; None if it is refused.
    """

    where: str  # observation, reward, terminated, truncated, info, step, reset, space or close
    answer: Callable[[], Any]
    accepted: Any = None


class Refuses:
    """An object that refuses to be shown, to be an array, a number or a truth value."""

    def __init__(self, kind: type[BaseException] = RuntimeError) -> None:
        self.kind = kind

    def _no(self, *_: Any, **__: Any) -> Any:
        raise self.kind("no")

    __repr__ = __str__ = __array__ = __float__ = __bool__ = __len__ = __iter__ = __getitem__ = _no


class RefusesToBeShown(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class Multiline(Exception):
    def __str__(self) -> str:
        return "one\ntwo\x1b[31m\x00\udc80\u202e"


def raises(error: Callable[[], BaseException]) -> Callable[[], Any]:
    def call() -> Any:
        raise error()

    return call


def endless() -> Any:
    return endless()


def warned() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("an error now", stacklevel=1)


def buffers(*values: Any) -> Any:
    """Structured numbers."""
    return np.array([values], np.dtype([("a", "f4"), ("b", "f4"), ("c", "f4")]))


O3 = [0.5, 0.25, 0.0]
A3 = np.array(O3, np.float32)
NAN, INF = float("nan"), float("inf")


def masked(*mask: bool) -> Any:
    return np.ma.masked_array(A3, mask)


def observations(*rows: tuple[str, Callable[[], Any], Any]) -> dict[str, Case]:
    return {f"observation {name}": Case("observation", make, ok) for name, make, ok in rows}


def scalars(where: str, *rows: tuple[str, Callable[[], Any], Any]) -> dict[str, Case]:
    return {f"{where} {name}": Case(where, make, ok) for name, make, ok in rows}


CASES: dict[str, Case] = {
    **observations(
        ("list", lambda: list(O3), O3),
        ("tuple", lambda: tuple(O3), O3),
        ("list of NumPy scalars", lambda: list(A3), O3),
        ("list of 0-d arrays", lambda: [np.array(x) for x in O3], O3),
        ("float64", lambda: A3.astype(np.float64), O3),
        ("float16", lambda: A3.astype(np.float16), O3),
        ("long double", lambda: A3.astype(np.longdouble), O3),
        ("big-endian", lambda: A3.astype(">f4"), O3),
        ("strided", lambda: np.repeat(A3, 2)[::2], O3),
        ("read-only", lambda: np.frombuffer(A3.tobytes(), np.float32), O3),
        ("int8", lambda: np.array([1, 0, 1], np.int8), [1, 0, 1]),
        ("bool", lambda: np.array([True, False, True]), [1, 0, 1]),
        ("fractions", lambda: [Fraction(1, 2), Fraction(1, 4), Fraction(0)], O3),
        ("decimals", lambda: [Decimal("0.5"), Decimal("0.25"), Decimal(0)], O3),
        ("integers as objects", lambda: np.array([1, 0, 1], object), [1, 0, 1]),
        ("tensor", lambda: torch.tensor(O3), O3),
        ("unmasked", lambda: masked(False, False, False), O3),
        ("subclass", lambda: A3.view(np.memmap.__mro__[1]), O3),
        ("integers beyond a float", lambda: [HUGE, 0, 0], None),
        ("integers beyond float32", lambda: [10**60, 0, 0], None),
        ("float64 beyond float32", lambda: np.array([1e39, 0, 0]), None),
        ("long double beyond", lambda: np.array([np.longdouble("1e400"), 0, 0]), None),
        ("float16 infinity", lambda: np.array([np.inf, 0, 0], np.float16), None),
        ("nan among integers", lambda: [1, NAN, 2], None),
        ("decimal nan", lambda: [Decimal("nan"), Decimal(0), Decimal(0)], None),
        ("tensor with gradient", lambda: torch.ones(3, requires_grad=True), None),
        ("tensor without storage", lambda: torch.ones(3, device="meta"), None),
        ("sparse tensor", lambda: torch.eye(3)[0].to_sparse(), None),
        ("bfloat16 tensor", lambda: torch.ones(3, dtype=torch.bfloat16), None),
        ("complex", lambda: np.array([1j, 0, 0]), None),
        ("complex list", lambda: [1 + 0j, 0, 0], None),
        ("text of digits", lambda: ["1", "2", "3"], None),
        ("text array", lambda: np.array(["1", "2", "3"]), None),
        ("bytes", lambda: b"abc", None),
        ("dates", lambda: np.array(["2020-01-01"] * 3, "M8[D]"), None),
        ("structured", lambda: buffers(1, 2, 3), None),
        ("masked", lambda: masked(False, True, False), None),
        ("refusing object", Refuses, None),
        ("object that raises CancelledError", lambda: Refuses(asyncio.CancelledError), None),
        ("list of refusing objects", lambda: [Refuses()] * 3, None),
        ("dict", lambda: {"a": 1}, None),
        ("set", lambda: {1.0, 2.0, 3.0}, None),
        ("generator", lambda: (x for x in O3), None),
        ("None inside", lambda: [0.0, None, 0.0], None),
        ("0-d", lambda: np.array(0.5), None),
        ("column", lambda: A3[:, None], None),
        ("huge text", lambda: "x" * 10**6, None),
        ("type", lambda: float, None),
    ),
    **scalars(
        "reward",
        ("int", lambda: 3, 3.0),
        ("bool", lambda: True, 1.0),
        ("np.bool_", lambda: np.True_, 1.0),
        ("np.float16", lambda: np.float16(0.5), 0.5),
        ("np.int64", lambda: np.int64(-2), -2.0),
        ("0-d array", lambda: np.array(0.5), 0.5),
        ("array of one", lambda: np.array([[0.5]]), 0.5),
        ("tensor", lambda: torch.tensor(0.5), 0.5),
        ("fraction", lambda: Fraction(1, 4), 0.25),
        ("decimal", lambda: Decimal("0.25"), 0.25),
        ("beyond a float", lambda: HUGE, None),
        ("minus beyond a float", lambda: -HUGE, None),
        ("np.longdouble beyond", lambda: np.longdouble("1e400"), None),
        ("tensor with gradient", lambda: torch.tensor(1.0, requires_grad=True), None),
        ("complex", lambda: 1 + 2j, None),
        ("complex array", lambda: np.array(1 + 0j), None),
        ("text of digits", lambda: "1.5", None),
        ("bytes", lambda: b"1", None),
        ("None", lambda: None, None),
        ("refusing object", Refuses, None),
        ("object that raises SystemExit", lambda: Refuses(SystemExit), None),
        ("empty array", lambda: np.zeros(0), None),
        ("masked", lambda: np.ma.masked, None),
        ("date", lambda: np.datetime64("2020-01-01"), None),
    ),
    **scalars(
        "terminated",
        ("np.bool_", lambda: np.True_, True),
        ("1", lambda: 1, True),
        ("0.0", lambda: 0.0, False),
        ("tensor", lambda: torch.tensor(True), True),
        ("tensor with gradient", lambda: torch.tensor(1.0, requires_grad=True), None),
        ("array of one", lambda: np.array([True]), True),
        ("text", lambda: "False", None),
        ("None", lambda: None, None),
        ("nan", lambda: NAN, None),
        ("2", lambda: 2, None),
        ("huge", lambda: HUGE, None),
        ("refusing object", Refuses, None),
        ("object that raises GeneratorExit", lambda: Refuses(GeneratorExit), None),
        ("many tensors", lambda: torch.tensor([True, False]), None),
    ),
    **scalars("truncated", ("dict", dict, None), ("tensor", lambda: torch.tensor(True), True)),
    **scalars(
        "info",
        ("None", lambda: None, True),
        ("refusing object", Refuses, True),
        ("text", lambda: "all is well", True),
    ),
    **{
        f"{where} raises {name}": Case(where, raises(error))
        for where in ("step", "reset")
        for name, error in {
            "CancelledError": asyncio.CancelledError,
            "GeneratorExit": GeneratorExit,
            "BaseException": lambda: BaseException("base"),
            "SystemExit": lambda: SystemExit(0),
            "MemoryError": MemoryError,
            "StopIteration": StopIteration,
            "an error that cannot be shown": RefusesToBeShown,
            "an error of many lines": Multiline,
            "a megabyte": lambda: ValueError("x" * 10**6),
            "an error group": lambda: ExceptionGroup("two", [ValueError(1), TypeError(2)]),
        }.items()
    },
    "step recurses for ever": Case("step", endless),
    "step warns, as an error": Case("step", warned),
    "step returns a list": Case("step", lambda: [A3, 0.0, False, False, {}], True),
    "step returns text of five": Case("step", lambda: "abcde"),
    "step returns a refusing object": Case("step", Refuses),
    "reset returns a refusing object": Case("reset", Refuses),
    "reset returns a list": Case("reset", lambda: [A3, {}], O3),
    "reset returns text of two": Case("reset", lambda: "ab"),
    "reset returns a bad observation": Case("reset", lambda: (Refuses(), {})),
    "reset returns odd info": Case("reset", lambda: (A3, Refuses()), O3),
    "space of actions raises": Case("action_space", raises(lambda: OSError("no robot"))),
    "space of actions raises CancelledError": Case("action_space", raises(asyncio.CancelledError)),
    "space of observations raises": Case("observation_space", raises(RefusesToBeShown)),
    "space of actions from nan": Case("action_space", lambda: changed_box(low=np.full(2, NAN))),
    "space of actions with listed bounds": Case(
        "action_space", lambda: changed_box(low=[-1, -1]), True
    ),
    "space of actions with text": Case("action_space", lambda: changed_box(low="low")),
    "space of actions beyond float32": Case(
        "action_space", lambda: Box(-1e300, 1e300, (2,), np.float64)
    ),
    "space of actions with other bounds": Case(
        "action_space", lambda: changed_box(high=np.ones(3, np.float32))
    ),
    "space of observations None": Case("observation_space", lambda: None),
    "close raises CancelledError": Case("close", raises(asyncio.CancelledError), True),
}


def changed_box(**bounds: Any) -> Box:
    """A Box whose bounds were set to something else later."""
    box = Box(-1, 1, (2,), np.float32)
    vars(box).update(bounds)
    return box


class Odd(Calm):
    """Calm, but for the answer that ODD_ANSWER names."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        self.render_mode = render_mode

    def odd(self, where: str) -> Any:
        """The odd answer for this place, or None if another is odd."""
        case = CASES.get(os.environ.get("ODD_ANSWER", ""))
        return case if case and case.where == where else None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        answer = super().reset(seed=seed)
        case = self.odd("reset")
        return case.answer() if case else answer

    def step(self, action: Any) -> Any:
        answer = super().step(action)
        if self.count < 3:
            return answer
        case = self.odd("step")
        if case:
            return case.answer()
        fields = dict(zip(("observation", "reward", "terminated", "truncated", "info"), answer))
        return tuple(
            case.answer() if (case := self.odd(name)) else value for name, value in fields.items()
        )

    def close(self) -> None:
        if case := self.odd("close"):
            case.answer()

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)

    def __getattribute__(self, name: str) -> Any:
        if name in ("action_space", "observation_space") and (case := self.odd(name)):
            return case.answer()
        return super().__getattribute__(name)


def in_one_line(text: str) -> bool:
    """Whether a message is one short line that a terminal only shows."""
    return text.isprintable() and len(text) < 2000 and "Traceback" not in text
