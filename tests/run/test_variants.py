"""A run with arguments, wrappers and histories, from its training to its last evaluation."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import t3d
from helpers.own_wrappers import Robot, Scale, pendulum
from helpers.runs import TINY, same_bits
from t3d.cli.main import main
from t3d.run.folder import RunFolder

ROBOT = "helpers.own_wrappers:Robot"


def train(path: Path, env: Any, **more: Any) -> Path:
    knobs = {**TINY, "engine": "reference", "steps": 40, "preset": "default", "quiet": True, **more}
    t3d.train(env, run=path, **knobs)
    return path


def test_a_run_keeps_its_arguments_wrappers_and_histories(tmp_path: Path) -> None:
    histories = {"frame_stack": 2, "action_history": 1}
    wrap = [Scale, {"factor": 0.0, "plus": 3}]
    run = train(tmp_path / "run", Robot, env_kwargs={"mass": 2}, wrap=wrap, **histories)
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["env_kwargs"]) == (ROBOT, {"mass": 2})
    assert config["wrap"] == ["helpers.own_wrappers:Scale", "factor=0.0", "plus=3"]
    assert t3d.evaluate(run, episodes=2).returns == [15, 15]  # five steps of 3
    with t3d.make_env(run) as env:
        row, _ = env.reset(seed=0)
        assert row.shape == (2 * 3 + 2,)
        assert row[2] == 2
        assert t3d.load(run).select_action(row).shape == (2,)
    with t3d.make_env(run, env_kwargs={"mass": 5}) as env:
        assert env.reset(seed=0)[0][2] == 5


def test_a_partial_is_evaluated_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    source = partial(Robot, 2, size=4)
    whole = train(tmp_path / "whole", source, steps=60)
    config = RunFolder(whole).config()
    assert (config.env, config.env_kwargs) == (ROBOT, {"mass": 2, "size": 4})
    for name, more in {"by name": {}, "by itself": {"env": source}}.items():
        parts = train(tmp_path / name, source, steps=35)
        t3d.resume(parts, steps=60, quiet=True, **more)  # type: ignore[arg-type]
        assert same_bits(whole, parts)
    assert main(["eval", str(whole), "--episodes", "1"]) == 0
    with pytest.raises(t3d.T3DError, match="env_kwargs cannot change during a run"):
        t3d.resume(parts, steps=80, quiet=True, env=partial(Robot, 3, size=4))


def test_a_partial_that_cannot_be_stored_still_trains_and_resumes_if_it_is_passed(
    tmp_path: Path,
) -> None:
    heavy: Any = np.float32(2)  # not JSON
    source = partial(Robot, mass=heavy)
    run = train(tmp_path / "run", source)
    assert RunFolder(run).config().env == "functools:<partial>"
    t3d.resume(run, steps=60, quiet=True, env=source)
    assert t3d.evaluate(run, env=source, episodes=1).lengths == [5]


def test_the_score_is_of_the_variant_in_which_the_run_is_evaluated(tmp_path: Path) -> None:
    with_kwargs = train(tmp_path / "kwargs", "Pendulum-v1", eval_env_kwargs={"g": 0})
    by_callable = train(tmp_path / "local", "Pendulum-v1", eval_env=lambda **_: pendulum(g=0))
    by_partial = train(tmp_path / "partial", "Pendulum-v1", eval_env=partial(pendulum, g=0))
    scores = [json.loads((run / "score.json").read_text())["returns"] for run in tmp_path.iterdir()]
    assert scores[0] == scores[1] == scores[2]
    assert t3d.evaluate(with_kwargs).returns == scores[0] == t3d.evaluate(by_partial).returns
    assert t3d.evaluate(by_callable, env="Pendulum-v1", env_kwargs={"g": 0}).returns == scores[0]
    usual = t3d.evaluate(with_kwargs, env_kwargs={"g": 10.0}).returns
    assert usual == t3d.evaluate(with_kwargs, env=partial(gym.make, "Pendulum-v1", g=10.0)).returns
    assert usual == t3d.evaluate(by_callable, env="Pendulum-v1").returns != scores[0]


def test_eval_plays_in_the_environment_that_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", ROBOT, env_kwargs={"mass": 2})
    words = ["eval", str(run), "--episodes", "1", "--json"]
    assert main([*words, "--env-kwargs", "mass=3"]) == 0
    assert main([*words, "--env", ROBOT, "--env-kwargs", "size=3"]) == 0
    capsys.readouterr()
    assert main([*words, "--env-kwargs", "size=4"]) == 2
    wrong = (
        "has observations of 4 numbers, and 2 actions from -1 to 1; the environment of the agent"
    )
    assert wrong in capsys.readouterr().err
    assert main([*words, "--env-kwargs", "masss=4"]) == 2
    assert "takes no argument 'masss'; did you mean 'mass'?" in capsys.readouterr().err
    assert main(["record", str(run), "--env-kwargs", "size=4"]) == 2
    assert main(["eval", str(run), "--env", "Pendulum-v1"]) == 2


def test_eval_plays_an_agents_file_as_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", ROBOT, env_kwargs={"mass": 2})
    file = (run / "best.safetensors").rename(tmp_path / "agent.safetensors")
    options = ["--episodes", "2", "--seed", "1", "--json"]
    for more, kwargs in ([], {}), (["--env-kwargs", "mass=3"], {"mass": 3}):
        assert main(["eval", str(file), *options, *more]) == 0
        returns = json.loads(capsys.readouterr().out)["returns"]
        assert returns == t3d.evaluate(file, episodes=2, seed=1, env_kwargs=kwargs).returns
    assert main(["eval", str(file), "--env", "Pendulum-v1"]) == 2
    assert "the environment of the agent" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "no.safetensors")]) == 2
    assert "no run folder at" in capsys.readouterr().err


def test_an_environment_without_a_preset_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", ROBOT, env_kwargs={"mass": 2}, quiet=False, eval_env_kwargs={"mass": 3})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{ROBOT} mass=2, no preset (the defaults), seed 0, engine")
    assert lines[1] == f"evaluated in {ROBOT} mass=3"
