import builtins
import dataclasses
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args, get_origin, get_type_hints

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import t3d
from helpers import broken_envs
from helpers.images import image_agent
from helpers.runs import TINY, read_json, trained
from t3d import notes
from t3d.api import Knobs, Options
from t3d.base.extras import how_to_install
from t3d.cli.main import main
from t3d.config import knob_types
from t3d.learn import networks
from t3d.learn.engines import AgentSource
from t3d.learn.networks import Body, mlp
from t3d.play.envs import EnvSource
from t3d.run.folder import RunFolder
from t3d.run.loop import Run


def tiny(path: Path, env: Any = "Pendulum-v1", **more: Any) -> t3d.Agent:
    knobs: dict[str, Any] = {"preset": "default", "quiet": True} | TINY | more
    return t3d.train(env, run=path, **knobs)


class Stops(t3d.Watcher):
    """Stops the run at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int) -> str | None:
        return "far enough" if step == self.step else None


def test_train_leaves_what_the_command_leaves_and_returns_the_best_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    agent = tiny(run)
    names = {path.name for path in run.iterdir()}
    assert {"score.json", "curve.png", "curve.svg", "report.html", "tensorboard"} <= names
    assert not {"episode.mp4", "episode.gif"} & names
    assert capsys.readouterr().out == ""
    *_, last = RunFolder(run).records(t3d.Evaluation)
    assert last.best_step is not None
    assert agent.updates == max(0, last.best_step - 20)
    assert read_json(run / "score.json")["returns"] == t3d.evaluate(run).returns


def test_train_says_where_everything_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    tiny(run, quiet=False, video=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Pendulum-v1, preset default, seed 0, engine fused: {tmp_path}")
    score, *files = lines[-6:]
    assert score == "  recording a video; Ctrl-C to skip it ..."
    assert files[0].startswith("Score: -")
    assert files[0].endswith("10 test episodes (seed 0)")
    assert files[1:] == [
        f"  run    {run}",
        f"  curve  {run / 'curve.png'}",
        f"  video  {run / 'episode.mp4'}",
        f"  report {run / 'report.html'}",
    ]
    for name in ("curve.png", "episode.mp4", "report.html"):
        assert (run / name).stat().st_size > 0


def test_evaluate_discounts_as_the_run_does(tmp_path: Path) -> None:
    tiny(tmp_path / "run", lambda: gym.make("InvertedPendulum-v5"), discount=0.5, video=False)
    score = t3d.evaluate(tmp_path / "run", env="InvertedPendulum-v5", episodes=2)
    # Its reward is 1 in every step in which it stands, and 0 in the one in which it falls.
    assert [2 * (1 - 0.5 ** int(total)) for total in score.returns] == score.discounted


def test_scores_and_agents_print_in_one_line(tmp_path: Path) -> None:
    agent = tiny(tmp_path / "run")
    score = t3d.evaluate(tmp_path / "run", episodes=2)
    assert f"{score}" == f"{score.mean:,.1f} ± {score.std:,.1f} over 2 episodes"
    assert f"{score!r}" == f"Score(mean={score.mean:g}, std={score.std:g}, episodes=2)"
    sizes = "observation 3, action 1"
    learned = f"actor 8-8, critic 8-8, {agent.updates} updates, fused engine"
    assert agent.score
    result = "score {mean:,.1f} ± {std:,.1f}, {episodes:.0f} episodes".format(**agent.score)
    assert f"{agent}".startswith(f"FusedT3D(Pendulum-v1: {sizes}, {learned}, {result}, ")
    assert len(f"{agent}") < 300


def test_a_run_of_random_play_names_the_preset_for_small_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = "note: for a small task, try --preset Pendulum-v1 with your own --steps"
    tiny(tmp_path / "own", preset="Pendulum-v1", steps=10, random_steps=10, quiet=False)
    assert advice not in capsys.readouterr().out
    tiny(tmp_path / "run", steps=10, random_steps=10, quiet=False)
    assert advice in capsys.readouterr().out


def test_parts_that_no_command_can_import_are_named_when_training_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def robot() -> Any:
        return broken_envs.Calm()

    robot.__module__, robot.__qualname__ = "__main__", "robot"
    monkeypatch.setattr(sys.modules["__main__"], "robot", robot, raising=False)
    tiny(tmp_path / "run", robot, quiet=False)
    advice = "t3d resume and eval cannot import it; move it to a module"
    assert f"note: robot is defined in the script that runs: {advice}" in capsys.readouterr().out
    tiny(tmp_path / "lambda", lambda: broken_envs.Calm(), quiet=False)
    assert capsys.readouterr().out.count(f"<lambda> is a local function: {advice}") == 1
    tiny(tmp_path / "other", broken_envs.Calm, quiet=False)
    assert advice not in capsys.readouterr().out


def test_more_random_play_is_named_when_a_run_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tmp_path / "run", steps=10)
    t3d.resume(tmp_path / "run", steps=20)
    assert "note: nothing will be learned before step 20: until" in capsys.readouterr().out
    t3d.resume(tmp_path / "run", steps=30)
    assert "nothing will be learned" not in capsys.readouterr().out


def test_without_matplotlib_a_run_is_trained_and_the_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name=name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    tiny(tmp_path / "run", quiet=False)
    out = capsys.readouterr().out
    assert f"  curve  none: plots need an extra: {how_to_install('plot')}" in out
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_that_a_watcher_stops_is_scored_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    agent = tiny(run, quiet=False, watchers=[Stops(35)])
    out = capsys.readouterr().out
    assert "step 35: Stops stops the run: far enough\n" in out
    assert f"saved; resume with: t3d resume {run}\n" in out
    assert (run / "report.html").exists()
    score = read_json(run / "score.json")
    assert agent.updates == max(0, score["step"] - 20)

    t3d.resume(run, quiet=True, watchers=[Stops(45)])
    assert t3d.inspect(run)["step"] == 45
    t3d.resume(run, quiet=True)
    assert t3d.inspect(run)["finished"]


def test_a_run_that_is_stopped_before_any_evaluation_scores_and_returns_its_last_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    agent = tiny(run, eval_every=0, quiet=False, watchers=[Stops(35)])
    assert agent.updates == 15
    out = capsys.readouterr().out
    assert "scoring the last agent on 10 test episodes" in out
    assert ", last agent (of step 35), 10 test episodes" in out
    with pytest.raises(t3d.BadInput, match=r"no best agent yet; .* take the last: --agent last"):
        t3d.load(run)
    score = read_json(run / "score.json")
    assert score["step"] == 35
    assert score["returns"] == t3d.evaluate(run, episodes=10, which="last").returns
    t3d.resume(run, quiet=True)  # the score of the best agent replaces it
    assert read_json(run / "score.json")["step"] == 60


def test_a_run_whose_scoring_was_interrupted_is_scored_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("t3d.run.finish.evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tiny(run)
    digest = t3d.inspect(run)["digest"]
    t3d.resume(run, quiet=True)
    assert (run / "score.json").exists()
    assert (run / "report.html").exists()
    assert t3d.inspect(run)["digest"] == digest
    with pytest.raises(t3d.BadInput, match="is finished at step 60"):
        t3d.resume(run, quiet=True)


def test_a_callable_that_cannot_be_imported_is_trained_scored_and_resumed(tmp_path: Path) -> None:
    def local() -> broken_envs.Calm:
        return broken_envs.Calm()

    run = tmp_path / "run"
    tiny(run, local)
    assert (run / "score.json").exists()
    with pytest.raises(t3d.BadInput, match="from Python, pass it as env"):
        t3d.resume(run, steps=70, quiet=True)
    t3d.resume(run, steps=70, env=local, quiet=True)
    assert t3d.inspect(run)["step"] == 70


def test_a_body_that_cannot_be_imported_is_passed_again(tmp_path: Path) -> None:
    def local(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
        return mlp(sizes, stream, dtype)

    run = tmp_path / "run"
    tiny(run, body=local)
    name = t3d.load(run).config.body
    del networks._bodies[name]  # as in another process
    advice = "is not imported, and no file may do that; pass it as body"
    with pytest.raises(t3d.BadInput, match=advice):
        t3d.load(run)
    with pytest.raises(t3d.BadInput, match="cannot be imported; from Python, pass it as body"):
        t3d.evaluate(run)
    t3d.load(run, body=local)
    del networks._bodies[name]
    assert len(t3d.evaluate(run, episodes=1, body=local).returns) == 1
    del networks._bodies[name]
    t3d.resume(run, steps=70, body=local, quiet=True)
    assert t3d.inspect(run)["step"] == 70


def test_misspelt_knobs_are_refused_by_train_by_resume_and_by_mypy(tmp_path: Path) -> None:
    # Mypy complains of a "type: ignore" without an error: it must see these, too.
    with pytest.raises(t3d.BadInput, match="unknown knob 'batchsize'; did you mean 'batch_size'"):
        t3d.train("Pendulum-v1", batchsize=3)  # type: ignore[call-arg]
    with pytest.raises(t3d.BadInput, match="tau is 'high'; expected a number"):
        t3d.train("Pendulum-v1", tau="high")  # type: ignore[arg-type]
    run = trained(tmp_path / "run")
    with pytest.raises(t3d.BadInput, match="unknown knob 'step'; did you mean 'steps'"):
        t3d.resume(run, step=70)  # type: ignore[call-arg]
    with pytest.raises(
        t3d.BadInput, match="unknown knob 'learning_rat'; did you mean 'learning_ra"
    ):
        t3d.load(run).fine_tune("Pendulum-v1", learning_rat=2)  # type: ignore[call-arg]


def test_the_typed_knobs_are_those_of_the_config() -> None:
    """A knob of `Config` without its line in `Knobs` of api.py fails here."""
    typed, wider = get_type_hints(Knobs), {"agent": AgentSource, "body": str | Body}
    wider |= {"wrap": str | Sequence[Any], "eval_env": EnvSource | None}
    assert [*typed] == [name for name in knob_types if name != "env"]
    for name, kind in typed.items():
        expected = wider.get(name, knob_types[name])
        if get_origin(expected) is tuple:
            one: Any = get_args(expected)[0]
            expected = one | GenericAlias(Sequence, (one,))  # one number, or one per dimension
        assert kind == expected, f"{name}: {expected}"


def test_the_options_of_fine_tune_are_those_of_train() -> None:
    of_train = inspect.signature(t3d.train).parameters.keys() - {"env", "from_run", "knobs"}
    assert get_type_hints(Options).keys() - get_type_hints(Knobs).keys() == of_train


def test_arguments_of_other_libraries_lead_to_those_of_train() -> None:
    for other, message in {
        "callback": "unknown knob 'callback'; callbacks are watchers",
        "verbose": "unknown knob 'verbose'; progress is always shown",
        "total_timesteps": "unknown knob 'total_timesteps'; did you mean 'steps'",
    }.items():
        knobs: dict[str, Any] = {other: 1}
        with pytest.raises(t3d.BadInput, match=message):
            t3d.train("Pendulum-v1", **knobs)


def test_an_environment_without_a_preset_is_told_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "helpers.broken_envs:Calm, no preset (the defaults), seed 0"
    tiny(tmp_path / "own", broken_envs.Calm, preset="auto", quiet=False)
    assert note in capsys.readouterr().out
    tiny(tmp_path / "chosen", broken_envs.Calm, preset="paper-2018", quiet=False)
    tiny(tmp_path / "known", preset="default", quiet=False)
    assert "no preset" not in capsys.readouterr().out


def test_the_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        t3d.Config().tau = 1.0  # type: ignore[misc]


def test_an_agent_class_that_cannot_be_imported_is_trained_scored_and_resumed(
    tmp_path: Path,
) -> None:
    class Careful(t3d.T3D):
        pass

    run = tmp_path / "run"
    assert type(tiny(run, agent=Careful)) is Careful
    assert (run / "score.json").exists()
    assert type(t3d.resume(run, steps=70, agent=Careful, quiet=True)) is Careful
    assert t3d.inspect(run)["step"] == 70


def test_an_agent_loads_from_its_own_file_and_plays_without_its_run(tmp_path: Path) -> None:
    trained, run = tiny(tmp_path / "run"), tmp_path / "run"
    file = run / "best.safetensors"
    loaded = t3d.load(file)
    assert type(loaded) is type(trained)
    assert torch.equal(torch.from_numpy(loaded.weights()), torch.from_numpy(trained.weights()))
    expected = t3d.evaluate(run, episodes=1).returns
    assert t3d.evaluate(file, episodes=1).returns == expected
    assert t3d.evaluate(loaded, episodes=1, env="Pendulum-v1").returns == expected
    assert t3d.evaluate(loaded, episodes=1, env=lambda: gym.make("Pendulum-v1")).returns == expected


def test_an_agent_with_images_loads_from_its_own_file(tmp_path: Path) -> None:
    image_agent().save(tmp_path / "agent.safetensors")
    assert type(t3d.load(tmp_path / "agent.safetensors")) is t3d.T3D


def test_an_agent_does_not_import_the_environment_that_its_file_names(tmp_path: Path) -> None:
    config = t3d.Config(env="nowhere_to_be_imported:make", hidden=(8,))
    t3d.T3D(3, [-2.0], [2.0], config).save(tmp_path / "agent.safetensors")
    agent = t3d.load(tmp_path / "agent.safetensors")
    with pytest.raises(t3d.BadInput, match="the agent needs environment nowhere_to_be_imported"):
        t3d.evaluate(agent)
    assert t3d.evaluate(agent, env="Pendulum-v1", episodes=1).mean < 0


def test_an_agent_made_by_hand_is_evaluated_where_it_is_told_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = t3d.Config(hidden=(8,))
    made = t3d.T3D(3, [-2.0], [2.0], config), notes.T3D(3, 1, 2.0, hidden=(8,)).agent
    for number, agent in enumerate(made):
        agent.save(tmp_path / f"{number}")
        loaded = t3d.load(tmp_path / f"{number}")
        for source in (agent, loaded, tmp_path / f"{number}"):
            assert "Pendulum" not in f"{source!r}"
            with pytest.raises(t3d.BadInput, match="names no environment; pass env="):
                t3d.evaluate(source, episodes=1)
            assert t3d.evaluate(source, env="Pendulum-v1", episodes=1).mean < 0
        assert main(["eval", str(tmp_path / f"{number}"), "--episodes", "1"]) == 2
        assert (
            "names no environment; pass env=... (t3d eval: --env NAME)" in capsys.readouterr().err
        )


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_an_agent_of_a_run_is_evaluated_in_its_environment(tmp_path: Path, engine: str) -> None:
    keeper = KeepsAgent()
    returned = tiny(tmp_path / "run", engine=engine, watchers=[keeper])
    resumed = t3d.resume(tmp_path / "run", steps=70, quiet=True)
    returned.save(tmp_path / "copy")
    loaded = [t3d.load(tmp_path / name) for name in ("run", "run/best.safetensors", "copy")]
    for agent in (keeper.agent, returned, resumed, *loaded):
        assert "(Pendulum-v1: " in f"{agent}"
        assert t3d.evaluate(agent, episodes=1).mean < 0


class KeepsAgent(t3d.Watcher):
    """Keeps the agent that learns."""

    def on_end(self, run: Run) -> None:
        self.agent = run.agent


def test_only_the_best_and_the_last_agent_of_a_run_can_be_loaded(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    functions: list[Any] = [t3d.load, t3d.evaluate]
    for function in functions:
        with pytest.raises(t3d.BadInput, match=r"^which is 'final'; expected one of: best, last$"):
            function(tmp_path / "run", which="final")
