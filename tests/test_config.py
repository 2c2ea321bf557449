import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from t3d import Config, T3DError
from t3d.config import knob_range
from t3d.presets import PRESETS, resolve


@pytest.mark.parametrize(
    ("knob", "value", "expected"),
    [
        ("tau", 0, "tau is 0; expected a number above 0 and at most 1"),
        ("tau", 1.5, "tau is 1.5; expected a number above 0 and at most 1"),
        ("discount", -0.1, "discount is -0.1; expected a number at least 0 and at most 1"),
        ("batch_size", 2.5, "batch_size is 2.5; expected a whole number at least 1"),
        ("steps", 0, "steps is 0; expected a whole number at least 1"),
        ("learning_rate", float("nan"), "learning_rate is nan; expected a number above 0"),
        ("policy_freq", "two", "policy_freq is 'two'; expected a whole number at least 1"),
        ("seed", True, "seed is True; expected a whole number"),
        ("hidden", (), "hidden is (); expected one or more whole numbers"),
        ("hidden", (64, 0), "hidden is 0; expected a whole number at least 1"),
        ("train_after", "stepp", "expected one of: step, episode; did you mean 'step'?"),
        ("remake_envs", 1, "remake_envs is 1; expected a bool"),
        ("env", "", "env is ''; expected a str"),
        ("steps", 10**400, "expected a whole number at least 1 and at most 1,000,000,000,000"),
        ("hidden", 2_000_000_000, "hidden is 2000000000; expected a whole number"),
    ],
)
def test_a_knob_out_of_range_is_named_with_its_value_and_range(
    knob: str, value: Any, expected: str
) -> None:
    with pytest.raises(T3DError) as caught:
        Config.from_dict({knob: value})
    assert expected in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    values = {"seed": np.int64(3), "tau": np.float32(0.5), "hidden": np.array([4, 5])}
    assert Config.from_dict(values) == Config(seed=3, tau=0.5, hidden=(4, 5))


def test_a_misspelt_knob_gets_the_nearest_name() -> None:
    with pytest.raises(T3DError, match="unknown knob 'polcy_freq'; did you mean 'policy_freq'"):
        Config.from_dict({"polcy_freq": 2})


def test_every_knob_has_help() -> None:
    for field in dataclasses.fields(Config):
        assert field.metadata["help"], field.name
    by_name = {field.name: field for field in dataclasses.fields(Config)}
    assert knob_range(by_name["tau"]) == "above 0 and at most 1"
    assert knob_range(by_name["seed"]) == "at least 0 and at most 4,294,967,295"
    assert knob_range(by_name["env"]) == ""


def test_a_config_survives_json() -> None:
    config = Config(hidden=(400, 300), seed=7, tau=0.01)
    assert Config.from_dict(json.loads(config.to_json())) == config


def test_presets_are_valid_and_auto_takes_the_environments_own() -> None:
    for name in PRESETS:
        assert resolve("Pendulum-v1", name)[0] == name
    assert resolve("Pendulum-v1")[0] == "Pendulum-v1"
    assert resolve("Unheard-v0") == ("default", Config(env="Unheard-v0"))
    paper = resolve("Hopper-v5", "paper-2018")[1]
    assert (paper.batch_size, paper.hidden, paper.learning_rate) == (100, (400, 300), 1e-3)
    assert resolve("Hopper-v5", "author-2020")[1].random_steps == 25_000


def test_an_unknown_preset_gets_the_nearest_name() -> None:
    with pytest.raises(T3DError, match="no preset is called 'paper2018'; did you mean"):
        resolve("Pendulum-v1", "paper2018")
