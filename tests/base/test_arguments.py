"""Arguments that are typed, stored and typed again."""

import json
import shlex
from typing import Any

import numpy as np
import pytest

from t3d import Config, T3DError
from t3d.base import arguments
from t3d.base.knobs import flag


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.0", 5.0),
        ("-1e-3", -0.001),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("fast", "fast"),
        ("a b", "a b"),
        ('"5"', "5"),
        ("", ""),
        ("a=b:c", "a=b:c"),
        ("2020-01-01", "2020-01-01"),
        ("[1, 2]", [1, 2]),
        ('{"a": {"b": [null]}}', {"a": {"b": [None]}}),
        ("{a = 1, b = 'x'}", {"a": 1, "b": "x"}),
        ('"[1, 2"', "[1, 2"),
    ],
)
def test_a_word_is_the_value_that_it_looks_like(text: str, value: Any) -> None:
    typed = arguments.checked("env_kwargs", [f"name={text}"])
    assert typed == {"name": value}
    assert type(typed["name"]) is type(value)
    assert arguments.checked("env_kwargs", arguments.words(typed)) == typed


def test_arguments_survive_the_config_file_and_the_command_line() -> None:
    given = {"a": 1, "b": "two words", "c": [1, {"d": None}], "e": "5", "f": False}
    config = Config(env_kwargs=given)
    assert config.env_kwargs == given
    assert Config.from_dict(json.loads(config.to_json())) == config
    assert hash(config) == hash(Config(env_kwargs=dict(reversed(given.items()))))
    assert config != Config(env_kwargs=given | {"a": 2})
    option, *words = shlex.split(flag("env_kwargs", config.env_kwargs))
    assert option == "--env-kwargs"
    assert Config(env_kwargs=words) == config  # type: ignore[arg-type]


def test_arrays_become_lists_and_the_config_keeps_a_copy() -> None:
    numbers = [1.5]
    config = Config(env_kwargs={"a": np.arange(2), "b": np.float32(0.5), "c": numbers})
    numbers.append(2.5)
    assert config.env_kwargs == {"a": [0, 1], "b": 0.5, "c": [1.5]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["Pendulum-v1"], "env_kwargs has 'Pendulum-v1'; expected NAME=VALUE, such as gravity=5"),
        (["a-b=1"], "env_kwargs has 'a-b=1'; expected NAME=VALUE"),
        (["f=[1, 2"], "env_kwargs: f is '[1, 2'; expected JSON or TOML, because of how it begins"),
        (
            ["f={a:1}"],
            """env_kwargs: f is '{a:1}'; expected JSON or TOML, because of how it begins;"""
            """ as a text: '"{a:1}"'""",
        ),
        (5, "env_kwargs is 5; expected NAME=VALUE words, in Python a dict"),
        ({1: 2}, "env_kwargs has 1; expected the name of an argument"),
        ({"f": len}, "env_kwargs: f is <built-in function len>; expected finite numbers, texts"),
        ({"f": float("nan")}, "env_kwargs: f is nan; expected finite numbers"),
        (["f=Infinity"], "env_kwargs: f is inf; expected finite numbers"),
        ({"f": "x" * 20_000}, "env_kwargs has more than 10,000 characters"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(T3DError) as caught:
        Config(env_kwargs=value)
    assert str(caught.value).startswith(message)


def test_wrappers_are_names_each_with_the_arguments_after_it() -> None:
    words = ["a:B", "x=2", "y=c:d", "e.f:G"]
    assert arguments.calls("wrap", words) == [("a:B", {"x": 2, "y": "c:d"}), ("e.f:G", {})]
    assert arguments.wrapper_words(["a:B", {"x": 2, "y": "c:d"}, "e.f:G"]) == tuple(words)
    with pytest.raises(T3DError, match=r"^wrap begins with 'x=2'; expected module:name$"):
        Config(wrap=["x=2"])  # type: ignore[arg-type]
    with pytest.raises(T3DError, match=r"wrapper .*<lambda> cannot be imported; define it at"):
        arguments.wrapper_words(lambda env: env)
