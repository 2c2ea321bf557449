"""What becomes of an environment's info, by arithmetic."""

from collections import OrderedDict
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.broken_envs import Calm
from helpers.runs import needs_envpool
from helpers.telling_envs import Goals, Telling, Winner
from t3d import Config
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate, evaluation_env
from t3d.play.info import EpisodeInfo, Tally
from t3d.play.vector import Environments

BACKENDS = ["inline", "processes"]


def tallied(*infos: Any, log_info: str = "all") -> EpisodeInfo:
    tally = Tally(log_info)
    for info in infos:
        tally.add(info)
    return tally.summary()


def test_numbers_become_means_over_the_steps_that_have_them() -> None:
    infos: list[Any] = [
        {"a": 1, "b": True},
        {"a": 2.5, "b": False},
        {"a": np.float32(4), "late": 7},
    ]
    assert tallied(*infos) == (None, {"a": 2.5, "b": 0.5, "late": 7.0})
    many = [{"a": float(i), "b": np.int64(2 * i)} for i in range(1234)]
    assert tallied(*many).means == {"a": 616.5, "b": 1233.0}


@pytest.mark.parametrize(
    "value",
    [
        *(None, "text", [1.0], (1,), np.ones(1), np.array(1.0), {"x": 1}, object(), 1j, b"1"),
        *(float("nan"), float("inf"), -np.inf, np.float32("nan"), 10**400, 1e39, -1e300),
        *(np.float64("inf"), np.longdouble(1)),
    ],
    ids=lambda value: f"a {type(value).__name__}",
)
def test_what_is_no_plain_finite_number_is_left_out(value: Any) -> None:
    assert tallied({"a": 1.0, "odd": value}).means == {"a": 1.0}
    # A number that turns into something else counts as far as it was one.
    assert tallied({"a": 1.0}, {"a": value}, {"a": 2.0}).means == {"a": 1.5}


def test_a_number_that_is_none_at_first_is_taken_up_later() -> None:
    assert tallied({"a": None}, {"a": 3.0}).means == {"a": 3.0}


def test_bookkeeping_is_not_recorded_unless_it_is_chosen() -> None:
    info = {"TimeLimit.truncated": True, "_mask": True, "episode": {"r": 1.0}, "x": 1, 5: 1, "": 1}
    info |= {"elapsed_step": 3, "env_id": 0, "is_success": True, "success": 0}
    assert tallied(info).means == {"x": 1.0}
    assert tallied(info, log_info="_mask, env_id").means == {"_mask": 1.0, "env_id": 0.0}


def test_names_are_chosen_bounded_and_safe_to_print() -> None:
    info = {f"n{i}": i for i in range(40)}
    assert list(tallied(info).means) == [f"n{i}" for i in range(32)]
    assert tallied(info, log_info="n39,n1,other").means == {"n1": 1.0, "n39": 39.0}
    assert tallied(info, log_info="none").means == {}
    assert tallied({"\x1b[31mred": 1, "y" * 9999: 2}).means == {r"\x1b[31mred": 1, "y" * 64: 2}


@pytest.mark.parametrize("text", ["a,,b", ",", ",".join(f"n{i}" for i in range(33))])
def test_names_that_are_none_are_refused_before_anything_plays(text: str) -> None:
    expected = "expected all, none, or up to 32 names with commas between them"
    with pytest.raises(t3d.BadInput, match=rf"^log_info is '.*'; {expected}$"):
        EnvMaker("Pendulum-v1", Config(log_info=text)).make()


@pytest.mark.parametrize(
    ("infos", "success"),
    [
        ([{}], None),
        ([{"is_success": True}, {"is_success": False}], False),
        ([{"is_success": 0.0}, {"is_success": np.float32(1)}], True),
        ([{"is_success": True}, {}], None),  # the last step counts
        ([{"success": np.True_}], True),
        ([{"success": True, "is_success": 0}], False),
        ([{"success": True, "is_success": None}], True),
        ([{"success": "yes"}], None),
        ([{"success": float("nan")}], None),
    ],
)
def test_success_is_that_of_the_last_step(infos: list[Any], success: bool | None) -> None:
    assert tallied(*infos, log_info="none") == (success, {})


class Strange(dict[str, Any]):
    """A dict of its own kind, which raises when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise SystemExit("no")

    def keys(self) -> Any:
        raise SystemExit("no")

    __iter__ = items = get = keys  # type: ignore[assignment]


@pytest.mark.parametrize("info", [None, 3, "text", [1], Strange(x=1)], ids=repr)
def test_an_info_that_is_no_dict_changes_nothing(info: Any) -> None:
    class Odd(Calm):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], info

    with closing(EnvMaker(Odd, Config()).make()) as env:
        env.reset(seed=1)
        answers = [env.play(np.zeros(2, np.float32)) for _ in range(5)]
        assert answers[-1][4] == EpisodeInfo()
        env.reset(seed=1)
        assert env.step(np.zeros(2, np.float32))[4] is info


def test_a_mapping_of_another_kind_is_read() -> None:
    assert tallied(OrderedDict(a=1.0, success=1)) == (True, {"a": 1.0})


def test_step_and_reset_return_the_environments_own_info() -> None:
    own: dict[Any, Any] = {"array": np.ones(3), 5: object()}

    class Own(Calm):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=seed)[0], own

        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], own

    with closing(EnvMaker(Own, Config()).make()) as env:
        assert env.reset(seed=1)[1] is own
        assert env.step(np.zeros(2, np.float32))[4] is own


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_environment_has_its_own_means(backend: Any) -> None:
    config = Config(env="-", num_envs=2, env_backend=backend)
    with closing(Environments(EnvMaker(Telling, config))) as environments:
        environments.reset()
        collector = Collector(environments, config)
        actions = np.array([[0.5, -1], [-0.5, 1]], np.float32)
        for _ in range(4):
            collector.chosen = actions
            assert collector.play(lambda s: s[:, :2]).episodes == []
        collector.chosen = actions
        one, other = collector.play(lambda s: s[:, :2]).episodes
    assert one.info == (True, {"cost": 0.5, "count": 3.0, "near": 0.0})
    assert other.info == (False, {"cost": -0.5, "count": 3.0, "near": 1.0})


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_means_of_an_episode_in_progress_are_exact_after_a_resume(backend: Any) -> None:
    config = Config(env="-", num_envs=2, env_backend=backend)
    draw = np.random.default_rng(0)
    with (
        closing(Environments(EnvMaker(Telling, config))) as one,
        closing(Environments(EnvMaker(Telling, config))) as other,
    ):
        one.reset()
        for _ in range(8):  # the second episode has played three steps
            one.step(draw.uniform(-1, 1, (2, 2)).astype(np.float32))
        other.load_state_dict(one.state_dict())
        for _ in range(2):
            action = draw.uniform(-1, 1, (2, 2)).astype(np.float32)
            mine, theirs = one.step(action), other.step(action)
    assert mine.infos == theirs.infos
    assert mine.infos.keys() == {0, 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_score_has_the_success_rate_and_the_means(backend: Any) -> None:
    maker = EnvMaker(Goals, Config(env_backend=backend))
    with closing(evaluation_env(maker)) as env:
        score = evaluate(lambda s: s[:, :2], env, range(20), 0)
    wins = [info.success for info in score.infos]
    assert len(wins) == 20
    assert set(wins) == {True, False}
    assert score.success == sum(filter(None, wins)) / 20
    assert f"{score}".endswith(f"over 20 episodes, success {100 * score.success:.3g} %")
    assert f"success={score.success:g}" in f"{score!r}"
    with closing(evaluation_env(EnvMaker(Winner, Config()))) as env:
        assert evaluate(lambda s: s[:, :2], env, range(2), 0).success == 1
    with closing(evaluation_env(EnvMaker(Telling, Config()))) as env:
        score = evaluate(lambda s: 0 * s[:, :2] + 0.25, env, range(2), 0)
    assert score.info == {"cost": 0.25, "count": 3.0, "near": 1.0}
    with closing(evaluation_env(EnvMaker(Calm, Config()))) as env:
        score = evaluate(lambda s: s[:, :2], env, range(2), 0)
    assert (score.success, score.info) == (None, {})


@needs_envpool
def test_envpool_gives_the_numbers_of_its_only_environment() -> None:
    config = Config(env="HalfCheetah-v5", env_backend="envpool", max_episode_steps=3)
    with closing(EnvMaker("HalfCheetah-v5", config).make()) as env:
        env.reset(seed=1)
        infos = [env.step(np.full(6, 0.5, np.float32))[4] for _ in range(3)]
        env.reset(seed=1)
        *_, last = [env.play(np.full(6, 0.5, np.float32))[4] for _ in range(3)]
    assert last is not None
    assert last.means["x_velocity"] == pytest.approx(np.mean([i["x_velocity"] for i in infos]))
    assert last.means.keys() == {"reward_run", "reward_ctrl", "x_position", "x_velocity"}
