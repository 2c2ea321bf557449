import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from t3d import Config, T3DError
from t3d.base.knobs import range_in_words
from t3d.base.other_names import OTHER_NAMES, OTHER_WAYS
from t3d.cli.knobs import read_knobs
from t3d.cli.main import main
from t3d.cli.options import whole_number
from t3d.config import SCOPES, Span, knob_types, knobs_of, search_ranges
from t3d.presets import PRESETS, Preset, read, resolve, to_toml


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
        ("actor_hidden", (0,), "actor_hidden is 0; expected a whole number at least 1"),
        ("hidden", (64, 0), "hidden is 0; expected a whole number at least 1"),
        ("train_after", "stepp", "expected one of: step, episode; did you mean 'step'?"),
        ("remake_envs", 1, "remake_envs is 1; expected true or false"),
        ("env", "", "env is ''; expected text"),
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


# As other libraries call them, and what they are here.
FOREIGN = {
    # the author's code
    **{"start_timesteps": "random_steps", "eval_freq": "eval_every", "max_timesteps": "steps"},
    **{"expl_noise": "exploration_noise", "max_size": "capacity"},
    # Stable-Baselines3
    **{"total_timesteps": "steps", "buffer_size": "capacity", "learning_starts": "random_steps"},
    **{"gamma": "discount", "train_freq": "updates_per_step", "gradient_steps": "updates_per_step"},
    **{"action_noise": "exploration_noise", "policy_delay": "policy_freq", "n_steps": "n_step"},
    **{"target_policy_noise": "policy_noise", "target_noise_clip": "noise_clip"},
    **{"wrapper_class": "wrap", "info_keywords": "log_info"},
    **{"norm_obs": "normalize_observations", "norm_reward": "reward_scale"},
    **{"policy_kwargs": "hidden", "net_arch": "hidden", "n_envs": "num_envs"},
    **{"n_eval_episodes": "eval_episodes", "save_freq": "checkpoint_every"},
    # CleanRL
    **{"policy_frequency": "policy_freq", "cuda": "device"},
    # RLlib
    **{"lr": "learning_rate", "train_batch_size": "batch_size", "twin_q": "twins"},
    **{"target_noise": "policy_noise", "num_env_runners": "collectors"},
    **{"num_steps_sampled_before_learning_starts": "random_steps"},
    **{"evaluation_interval": "eval_every", "evaluation_duration": "eval_episodes"},
    **{"stddev": "exploration_noise", "random_timesteps": "random_steps", "num_gpus": "device"},
    **{"exploration_config": "exploration_noise", "replay_buffer_config": "capacity"},
    # Spinning Up
    **{"polyak": "tau"},
    # and what people try
    **{"buffer": "capacity", "noise": "exploration_noise", "timesteps": "steps"},
}


@pytest.mark.parametrize(("name", "knob"), FOREIGN.items())
def test_a_name_of_another_library_leads_to_the_knob(
    name: str, knob: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for config in (Config.from_dict, lambda values: Config(**values)):
        with pytest.raises(T3DError, match=f"unknown knob '{name}'; did you mean '{knob}'?"):
            config({name: 1})
    typed, flag = f"--{name}".replace("_", "-"), f"--{knob}".replace("_", "-")
    assert main(["train", typed, "1"]) == 2
    assert f"has no option '{typed}'; did you mean '{flag}'?" in capsys.readouterr().err


# What the advice on a name must name.
WAYS = {
    **dict.fromkeys(["callback", "callbacks", "callbacks_class"], ("--watcher", "watchers=")),
    **dict.fromkeys(["wandb", "wandb_project_name"], ("--track wandb", "track=['wandb']")),
    **dict.fromkeys(["verbose", "quiet", "progress_bar"], ("> /dev/null", "quiet=True")),
    **dict.fromkeys(["log_dir", "tensorboard_log"], ("--run PATH", "run=PATH", "TensorBoard")),
    **dict.fromkeys(["load", "load_model"], ("--from RUN", "from_run=RUN", "t3d resume")),
    "exp_name": ("--run PATH", "run=PATH"),
    "policy": ("TD3", "--hidden", "--body", "--agent"),
    "prior": ("--from RUN --from-memory", "t3d.Start(RUN, memory=True)"),
    "reset_num_timesteps": ("t3d resume RUN --steps N", "t3d.resume"),
    "save_model": ("always saved",),
}


@pytest.mark.parametrize("name", OTHER_WAYS)
def test_a_name_of_something_that_is_no_knob_leads_to_the_way_here(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(T3DError, match=f"unknown knob '{name}'; ") as error:
        Config.from_dict({name: 1})
    typed = f"--{name}".replace("_", "-")
    assert main(["train", typed, "1"]) == 2
    answers = str(error.value), capsys.readouterr().err
    assert answers[1].startswith(f"t3d: train has no option '{typed}'; ")
    for answer in answers:
        assert all(word in answer for word in WAYS[name])
        assert "did you mean" not in answer
    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    options = capsys.readouterr().out
    assert all(option in options for option in re.findall(r"--[a-z]+", OTHER_WAYS[name]))


def test_a_knob_is_refused_where_a_command_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "runs/x", "--gamma", "0.9"]) == 2
    assert "eval has no option '--gamma'; discount is a knob of t3d" in capsys.readouterr().err


def test_a_config_of_wrong_names_is_refused_also_by_mypy() -> None:
    with pytest.raises(T3DError, match="unknown knob 'gamma'; did you mean 'discount'"):
        Config(gamma=0.9)  # type: ignore[call-arg]
    for name in ("self", "cls", "values"):
        with pytest.raises(T3DError, match=f"unknown knob '{name}'"):
            Config.from_dict({name: 1})


def test_other_names_are_no_knobs_and_lead_to_knobs() -> None:
    assert not (OTHER_NAMES.keys() | OTHER_WAYS.keys()) & knob_types.keys()
    assert not OTHER_NAMES.keys() & OTHER_WAYS.keys()
    assert set(OTHER_NAMES.values()) <= knob_types.keys()


def test_other_names_lead_to_the_word_that_a_command_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, message in [
        ("train --env-id Hopper-v5", "train takes ENV without --env-id: t3d train [ENV]"),
        ("resume runs/x --lr 1e-4", "has no option '--lr'; type --set learning_rate=VALUE"),
        ("resume runs/x --total-timesteps 9", "'--total-timesteps'; did you mean '--steps'?"),
        ("sweep Hopper-v5 --tau 0.01", "sweep has no option '--tau'; type --set tau=VALUE"),
        ("tune --search lr", "lr is no knob; did you mean 'learning_rate'?"),
    ]:
        assert main(words.split()) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1e4", "10_000", "10000", "10000.0", "1.0e+4"])
def test_steps_can_be_typed_in_any_way_that_python_writes_a_whole_number(text: str) -> None:
    assert read_knobs("train", "", [], ["--steps", text]).config.steps == 10_000
    assert whole_number(text) == 10_000


@pytest.mark.parametrize("text", ["1.5", "ten", "1e-3", "inf", "nan", "1e400"])
def test_steps_that_are_no_whole_number_are_refused_in_one_line(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--steps", text]) == 2
    assert re.fullmatch(
        r"t3d: steps is .+; expected a whole number at least 1 .+\n", capsys.readouterr().err
    )
    assert main(["resume", "runs/none", "--steps", text]) == 2
    assert f"--steps is '{text}'; expected a whole number" in capsys.readouterr().err


def test_a_misspelt_knob_gets_the_nearest_name() -> None:
    with pytest.raises(T3DError, match="unknown knob 'polcy_freq'; did you mean 'policy_freq'"):
        Config.from_dict({"polcy_freq": 2})


def test_every_knob_has_a_scope_and_help_that_names_its_choices() -> None:
    for field in dataclasses.fields(Config):
        assert field.metadata["scope"] in SCOPES
        text = field.metadata["help"]
        assert text, field.name
        if get_origin(knob_types[field.name]) is Literal:
            assert all(re.search(rf"\b{name}\b", text) for name in get_args(knob_types[field.name]))
    by_name = {field.name: field for field in dataclasses.fields(Config)}
    assert range_in_words(by_name["tau"]) == "above 0 and at most 1"
    assert range_in_words(by_name["seed"]) == "at least 0 and at most 4,294,967,295"
    assert range_in_words(by_name["env"]) == ""


def test_knobs_can_be_listed_by_scope() -> None:
    assert knobs_of("memory") == {"capacity", "sampling"}
    assert {"threads", "device", "log_every"} <= knobs_of("machine", "records")
    assert "tau" not in knobs_of("machine", "records")
    assert knobs_of(*SCOPES) == set(knob_types)


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
    with pytest.raises(T3DError, match=r"called 'paper2018'; did you mean 'paper-2018'\?$"):
        resolve("Pendulum-v1", "paper2018")
    with pytest.raises(T3DError, match=r"'zz'; expected one of: auto, .+ or a file that ends in"):
        resolve("Pendulum-v1", "zz")


def test_a_name_without_its_version_leads_to_the_preset() -> None:
    expected = resolve("Pendulum-v1")[1]
    assert resolve("Pendulum") == ("Pendulum-v1", dataclasses.replace(expected, env="Pendulum"))
    assert resolve("Pendulum-v1", "Pendulum") == ("Pendulum-v1", expected)
    assert resolve("Hopper", "Reacher")[0] == "Reacher-v5"
    assert resolve("Pend")[0] == "default"  # it is no prefix


def test_a_preset_file_lies_over_the_preset_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('why = "x"\nenv = "Pendulum-v1"\n[knobs]\ntau = 0.5\n')
    pendulum = dataclasses.replace(resolve("Pendulum-v1")[1], tau=0.5)
    assert resolve("Pendulum-v1", str(path))[1] == pendulum
    assert resolve(None, str(path))[1] == pendulum
    assert resolve("Unheard-v0", str(path))[1] == Config(env="Unheard-v0", tau=0.5)


def test_what_tune_tries_is_legal() -> None:
    assert {"learning_rate", "tau", "hidden"} <= set(search_ranges)
    for knob, where in search_ranges.items():
        tried = (where.low, where.high) if isinstance(where, Span) else where
        for value in tried:
            Config.from_dict({knob: value})
        if isinstance(where, Span):
            assert where.low < where.high
            assert where.low > 0 or not where.log


def test_a_preset_file_survives_being_written_and_read(tmp_path: Path) -> None:
    knobs: dict[str, Any] = {
        "tau": 1e-5,
        "hidden": (400, 300),
        "grey": True,
        "device": "cuda:0",
        "steps": 10**12,
    }
    written = Preset('a "quoted" \\ reason,\nover lines: äöü \x7f \x01 😀', knobs, "Hopper-v5")
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(written), "utf-8")
    preset = read(str(path))
    assert (preset.why, preset.env) == (written.why, "Hopper-v5")
    expected = Config(env="Hopper-v5", random_steps=25_000, **knobs)
    # What is recorded is the path as typed; its environment is for those who name none.
    assert resolve(None, str(path)) == (str(path), expected)
    assert resolve("Ant-v5", str(path))[1] == Config(env="Ant-v5", **knobs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('why = "x"\n[knobs]\ntua = 1', "unknown knob 'tua'; did you mean 'tau'?"),
        ('why = "x"\n[knobs]\ntau = 7', "tau is 7; expected a number above 0 and at most 1"),
        ('why = "x"\n[knobs]\ntau = 1979-05-27', "tau is datetime.date(1979, 5, 27); expected"),
        ('why = "x"\n[knobs.tau]\na = 1', "tau is {'a': 1}; expected a number"),
        ('why = "x"\n[knobs]\nenv = "A-v0"', "has env among the knobs; it goes above [knobs]"),
        ('why = "x"\nenv = 7', "env is 7; expected text"),
        ('why = "x"\nknobs = 3', "knobs is 3; expected a table, [knobs]"),
        ('why = "x"\ntau = 0.1', "unknown part 'tau'; knobs go below a line [knobs]"),
        ('why = "x"\n[knob]', "unknown part 'knob'; did you mean 'knobs'?"),
        ("[knobs]\ntau = 0.1", "has no why; expected a line such as"),
        ("tau: 0.1", "is not TOML: "),
        ("a = " + "[" * 100_000, "is not TOML: "),
        ("a = " + "9" * 5000, "is not TOML: "),
        ("#" * 2**21, "has 2,097,152 bytes; expected at most 1,048,576"),
        (b"why = '\xff'", "is not TOML: "),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_bad_preset_file_is_one_line(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    path = tmp_path / "bad.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(T3DError) as caught:
        resolve("Pendulum-v1", str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
