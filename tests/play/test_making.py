"""Environments with arguments, wrappers, variants and histories."""

import subprocess
import sys
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import t3d
from helpers.own_wrappers import Robot
from helpers.runs import TINY, in_memory, needs_envpool
from t3d import Config, T3DError
from t3d.base.observation import Layout
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluation_env
from t3d.play.making import unfolded
from t3d.run.build import build
from t3d.run.loop import Run

ROBOT, SCALE = "helpers.own_wrappers:Robot", "helpers.own_wrappers:Scale"


def played(config: Config, source: Any = None) -> list[list[float]]:
    """The observations of an episode, with the actions 0.5 and -1, then 0.25 and 1."""
    with closing(EnvMaker(source or config.env, config).make()) as env:
        rows = [env.reset(seed=1)[0].copy()]
        actions = np.array([[0.5, -1.0], [0.25, 1.0]], np.float32)
        rows += [env.step(action)[0].copy() for action in actions]
        return [row.tolist() for row in rows]


@pytest.mark.parametrize("source", [ROBOT, Robot, "helpers.own_wrappers:Robot"])
def test_an_environment_gets_its_arguments(source: Any) -> None:
    rows = played(Config(env_kwargs={"mass": 2.5, "size": 4}), source)
    assert [(len(row), row[2]) for row in rows] == [(4, 2.5)] * 3


def test_a_registered_environment_gets_its_arguments() -> None:
    with closing(EnvMaker("Pendulum-v1", Config(env_kwargs={"g": 5})).make()) as env:
        inside: Any = env.unwrapped
        assert inside.g == 5


def test_an_environment_cannot_change_the_arguments_of_the_config() -> None:
    config = Config(env=ROBOT, env_kwargs={"mass": 1, "parts": [0]})
    played(config)
    assert config.env_kwargs == {"mass": 1, "parts": [0]}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"env_kwargs": {"gravity": 5}}, "'Pendulum-v1' takes no argument 'gravity'; it takes: g"),
        (
            {"env": ROBOT, "env_kwargs": {"mas": 5}},
            f"environment '{ROBOT}' takes no argument 'mas'; did you mean 'mass'?",
        ),
        (
            {"env": "HalfCheetah-v5", "env_kwargs": {"frame_skipp": 5}},
            "'HalfCheetah-v5' takes no argument 'frame_skipp'; did you mean 'frame_skip'?",
        ),
        ({"env": ROBOT}, "cannot be made without mass=VALUE"),
        (
            {"wrap": (SCALE, "factors=2")},
            f"wrapper '{SCALE}' takes no argument 'factors'; did you mean 'factor'?",
        ),
        ({"wrap": (f"{SCALE}s",)}, "has no wrapper 'Scales'; did you mean 'Scale'?"),
        ({"wrap": ("helpers.own_wrappers:not_a_wrapper",)}, "made a str; expected a gymnasium.Env"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(knobs: dict[str, Any], message: str) -> None:
    config = Config(**knobs)
    with pytest.raises(T3DError) as caught:
        EnvMaker(config.env, config).make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrappers_apply_in_their_order_inside_of_the_repeats() -> None:
    action = np.array([1, 0], np.float32)
    wraps = {"plain": (), "one": (SCALE, "plus=1", SCALE, "factor=10")}
    wraps["other"] = (SCALE, "factor=10", SCALE, "plus=1")
    rewards = {}
    for name, wrap in wraps.items():
        config = Config(env=ROBOT, env_kwargs={"mass": 1}, wrap=wrap, action_repeat=2)
        with closing(EnvMaker(config.env, config).make()) as env:
            env.reset(seed=0)
            rewards[name] = env.step(action)[1]
    assert rewards["plain"] < 0
    assert rewards["one"] == 10 * (rewards["plain"] + 2)
    assert rewards["other"] == 10 * rewards["plain"] + 2


def test_vectors_are_stacked_the_oldest_first() -> None:
    arguments = {"mass": 3, "size": 3}
    single = played(Config(env_kwargs=arguments), Robot)
    start, one, two = single
    rows = played(Config(env_kwargs=arguments, frame_stack=3), Robot)
    assert rows == [start * 3, [*start, *start, *one], [*start, *one, *two]]


def test_the_last_actions_come_after_the_observation_in_their_range_from_minus_1_to_1() -> None:
    start, one, two = played(Config(env_kwargs={"mass": 3}), Robot)
    config = Config(env_kwargs={"mass": 3}, action_history=2)
    rows = played(config, Robot)
    assert rows[0] == [*start, 0, 0, 0, 0]
    assert rows[1] == [*one, 0, 0, 0.5, -1]
    assert rows[2] == [*two, 0.5, -1, 0.25, 1]
    with closing(EnvMaker("Pendulum-v1", Config(action_history=1)).make()) as env:
        assert env.layout == Layout(4)
        env.reset(seed=0)
        assert env.step(np.array([-1], np.float32))[0][3] == -0.5  # of a range from -2 to 2
        assert env.reset(seed=0)[0][3] == 0


def test_both_histories_and_images_go_together() -> None:
    config = Config(action_history=1, frame_stack=2, env_kwargs={"mass": 1})
    assert len(played(config, Robot)[0]) == 2 * 3 + 2
    config = Config(env="helpers.seeing_envs:Camera", action_history=3, frame_stack=2)
    with closing(EnvMaker(config.env, config).make()) as env:
        assert (env.layout.vector, env.layout.frame_stack) == (3 * len(env.low), 2)
        env.reset(seed=0)
        row = env.step(env.high)[0][-4 * len(env.low) :].copy().view(np.float32)
        assert row.tolist() == [1.0] * len(env.low)


def test_the_memory_holds_the_histories_and_never_those_of_another_episode() -> None:
    knobs = TINY | {"frame_stack": 2, "action_history": 2, "n_step": 3, "num_envs": 2}
    config = Config(**(knobs | {"env": ROBOT, "env_kwargs": {"mass": 2}, "steps": 40}))
    with closing(Run.start(EnvMaker(config.env, config))) as run:
        while run.collector.steps < 40:
            run.step()
        memory = run.memory
        rows = memory.live_rows()
        state = np.asarray(memory.observation)[np.asarray(rows)]
    assert state.shape[1] == 2 * 3 + 2 * 2
    begins = (state[:, -4:] == 0).all(axis=1)  # no action yet
    assert begins.sum() >= 6
    assert (state[begins, :3] == state[begins, 3:6]).all()


def test_inline_and_processes_are_the_same_run_with_arguments_wrappers_and_histories() -> None:
    knobs: dict[str, Any] = {
        "env_kwargs": {"mass": 2},
        "wrap": (SCALE, "factor=0.1"),
        "eval_env_kwargs": {"mass": 3},
        "frame_stack": 2,
        "action_history": 2,
        "engine": "reference",
        "steps": 40,
    }
    one = in_memory(ROBOT, **knobs)
    other = in_memory(ROBOT, env_backend="processes", **knobs)
    assert one.state == other.state
    assert one.records.lines == other.records.lines


def test_evaluations_play_in_their_own_variant() -> None:
    def mass(**knobs: Any) -> tuple[float, str]:
        config = Config(env=ROBOT, env_kwargs={"mass": 2, "size": 4}, **knobs)
        with closing(evaluation_env(EnvMaker(ROBOT, config))) as env:
            return float(env.reset(seed=0)[0][2]), env.name

    assert mass() == (2, ROBOT)
    assert mass(eval_env_kwargs={"mass": 3}) == (3, ROBOT)  # on top: it has the same size
    own: dict[str, Any] = {"eval_env": "helpers.own_wrappers:Robot", "eval_env_kwargs": {"mass": 4}}
    assert mass(**own) == (4, ROBOT)
    assert mass(eval_env="Pendulum-v1", eval_env_kwargs={"g": 1})[1] == "Pendulum-v1"
    with closing(EnvMaker(ROBOT, Config(env_kwargs={"mass": 2}, **own)).make()) as env:
        assert env.reset(seed=0)[0][2] == 2


def test_a_variant_with_other_spaces_is_refused_in_one_line(tmp_path: Any) -> None:
    config = Config(env_kwargs={"g": 5}, eval_env=ROBOT, eval_env_kwargs={"mass": 1})
    with pytest.raises(T3DError) as caught:
        build(EnvMaker(config.env, config), tmp_path)
    assert str(caught.value) == (
        f"'{ROBOT}' has observations of 3 numbers, and 2 actions from -1 to 1; 'Pendulum-v1' has"
        " observations of 3 numbers, and 1 action from -2 to 2: these must be equal"
    )


@needs_envpool
@pytest.mark.parametrize("knobs", [{"env_kwargs": {"g": 5}}, {"wrap": (SCALE,)}])
def test_envpool_refuses_arguments_and_wrappers(knobs: dict[str, Any]) -> None:
    config = Config(env_backend="envpool", **knobs)
    with pytest.raises(T3DError, match="does not work with EnvPool's environments; use --env-back"):
        EnvMaker("Pendulum-v1", config).make()


def test_a_partial_is_its_callable_and_its_arguments() -> None:
    def parts(source: Any) -> tuple[Any, dict[str, Any]]:
        return unfolded(source)

    assert parts(partial(Robot, 2, size=4)) == (Robot, {"mass": 2, "size": 4})
    assert parts(partial(gym.make, "Pendulum-v1", g=5)) == ("Pendulum-v1", {"g": 5})
    assert parts(Robot) == (Robot, {})
    local: Any = type("Local", (Robot,), {})
    heavy: Any = np.float32(2)  # not JSON
    for kept in (partial(Robot, heavy), partial(Robot, 1, parts=(1,)), partial(local, 1)):
        assert parts(kept) == (kept, {})


def test_an_environment_in_use_is_not_shared() -> None:
    """An evaluation would reset the environment in which training is in an episode."""
    env = gym.make("Pendulum-v1")
    maker = EnvMaker(lambda: env, Config())
    with closing(maker.make()), pytest.raises(T3DError) as caught:
        maker.make(0)
    assert "returned an environment that is in use already; make a new one at each" in str(
        caught.value
    )
    maker.make().close()  # after it was closed, its user decides
    with pytest.raises(T3DError, match=r"env is a .*; expected .* makes a new one: lambda: Robot"):
        t3d.train(env)  # type: ignore[arg-type]


def test_one_environment_may_be_lent(tmp_path: Any) -> None:
    env = gym.make("Pendulum-v1", max_episode_steps=10)
    knobs = TINY | {"max_episode_steps": 0, "random_steps": 20, "single_env": True}
    t3d.train(lambda: env, run=tmp_path / "run", quiet=True, **knobs)


def test_a_lambda_in_a_process_of_its_own_is_refused_in_one_line() -> None:
    config = Config(env_backend="processes")
    with pytest.raises(T3DError) as caught:
        evaluation_env(EnvMaker(lambda: gym.make("Pendulum-v1"), config))
    assert "it is a lambda or a local function; define it with def or class" in str(caught.value)
    assert "0x" not in str(caught.value)


def test_a_name_without_its_version_is_no_reason_to_warn() -> None:
    code = "import gymnasium, t3d; from t3d.play.envs import EnvMaker; EnvMaker"
    code += "('Pendulum', t3d.Config(env='Pendulum')).make()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_warning_of_mujoco_is_shown_once_and_a_handler_of_the_users_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.setattr("t3d.play.making._heard", set())
    maker = EnvMaker("HalfCheetah-v5", Config())
    before = mujoco.get_mju_user_warning()
    try:
        mujoco.set_mju_user_warning(None)
        for _ in range(3):
            maker.make().close()
            mujoco.get_mju_user_warning()("a mass is odd")
        lines = capsys.readouterr().err.splitlines()
        assert lines.count("t3d: MuJoCo warns: a mass is odd") == 1
        assert len(lines) == len(set(lines))
        own: list[str] = []
        mujoco.set_mju_user_warning(own.append)
        maker.make().close()
        mujoco.get_mju_user_warning()("mine")
        assert own[-1] == "mine"
    finally:
        mujoco.set_mju_user_warning(before)
