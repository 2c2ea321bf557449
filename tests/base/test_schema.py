from dataclasses import dataclass, field
from typing import Any

import pytest

from t3d.base.schema import parse


@dataclass
class Wheel:
    size: float
    spokes: int = 0


@dataclass
class Car:
    name: str
    wheels: list[Wheel]
    notes: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    electric: bool = False
    more: Any = None


GOOD: dict[str, Any] = {"name": "a", "wheels": [{"size": 1}], "later": [1]}


def test_a_value_of_the_right_shape_becomes_a_dataclass() -> None:
    assert parse(Car, GOOD) == Car("a", [Wheel(1.0)])
    full = GOOD | {"notes": {"a": "b"}, "owner": "c", "electric": True, "more": [[]]}
    assert parse(Car, full) == Car("a", [Wheel(1.0)], {"a": "b"}, "c", True, [[]])
    assert parse(Car, GOOD | {"wheels": [{"size": 1, "spokes": 2.0}]}).wheels == [Wheel(1.0, 2)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": None}, "its name is None; expected a text"),
        ({"wheels": {}}, "its wheels is {}; expected a list"),
        ({"wheels": [1]}, "in its wheels, it is 1; expected an object"),
        ({"wheels": [{}]}, "in its wheels, it has no size"),
        ({"wheels": [{"size": "1"}]}, "in its wheels, its size is '1'; expected a finite number"),
        ({"wheels": [{"size": True}]}, "expected a finite number"),
        ({"wheels": [{"size": float("inf")}]}, "expected a finite number"),
        ({"wheels": [{"size": float("nan")}]}, "expected a finite number"),
        ({"wheels": [{"size": 10**400}]}, "expected a finite number"),
        ({"wheels": [{"size": 1, "spokes": 1.5}]}, "expected a whole number"),
        ({"wheels": [{"size": 1, "spokes": 2**63}]}, "expected a whole number"),
        ({"notes": []}, r"its notes is \[\]; expected an object"),
        ({"notes": {"a": 1}}, r"its notes\.a is 1; expected a text"),
        ({"owner": 1}, "its owner is 1; expected a text"),
        ({"electric": 1}, "its electric is 1; expected true or false"),
    ],
)
def test_a_value_of_another_shape_is_named(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"{why}$"):
        parse(Car, GOOD | changed)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"^it has no name$"):
        parse(Car, {"wheels": []})
