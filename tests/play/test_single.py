"""One environment for training and evaluation, and no other."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.broken_envs import Calm
from helpers.robots import LENGTH, Robot
from helpers.runs import TINY, in_memory, metrics_without_time, same_bits
from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.play.single import OneEnv, lending, require_consent
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.session import open_run, train_to_end

ONE: dict[str, Any] = TINY | {"max_episode_steps": 0, "single_env": True}


@pytest.fixture(autouse=True)
def _new_life() -> Iterator[None]:
    Robot.forget()
    yield
    Robot.forget()


def maker(**knobs: Any) -> EnvMaker:
    return EnvMaker(Robot, Config.from_dict({"env": "helpers.robots:Robot", **ONE, **knobs}))


def opened(path: Path, **knobs: Any) -> Run:
    """A run of a folder, new or resumed, as if in a process of its own."""
    Robot.forget()
    return open_run(maker(**knobs), RunFolder(path), {})


def evaluated_at(path: Path) -> list[int]:
    return [record.step for record in RunFolder(path).records(t3d.Evaluation)]


def test_every_loan_is_the_same_environment_and_its_owner_closes_it() -> None:
    with lending(maker()) as lender:
        with lending(lender) as same:
            assert same is lender
        one, other = lender.make(0), lender.make()
        assert one.unwrapped is other.unwrapped
        assert one.name == "helpers.robots:Robot"
        one.close()
        assert Robot.closed == 0
    assert (Robot.made, Robot.closed) == (1, 1)


def test_without_single_env_nothing_is_lent() -> None:
    usual = EnvMaker(Calm, Config())
    with lending(usual) as lender:
        assert lender is usual
    assert not isinstance(lender.source, OneEnv)


def test_what_is_no_environment_is_refused_by_its_name() -> None:
    def nothing() -> Any:
        return None

    wrong = EnvMaker(nothing, Config(single_env=True))
    with lending(wrong) as lender, pytest.raises(t3d.BadInput, match="nothing' made a NoneType"):
        lender.make()


def test_a_run_plays_only_the_episodes_that_were_asked_for(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "run")) as run:
        assert Robot.resets == 0  # nothing moves before the loop
        train_to_end(run)
    # The untrained policy, the end of the episode in which step 30 was played, and the end.
    assert evaluated_at(tmp_path / "run") == [0, 35, 60]
    assert len(Robot.actions) == 60 + 3 * LENGTH
    assert Robot.resets == 9 + 3  # the ninth episode of training was cut at the end
    assert (Robot.made, Robot.closed) == (1, 1)


def test_training_is_the_same_as_with_an_environment_for_evaluations() -> None:
    class Long(Calm):
        """As the robot, but there may be many."""

        def step(self, action: Any) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, self.count >= LENGTH, info

    one, usual = in_memory(Long, **ONE), in_memory(Long, **ONE | {"single_env": False})
    assert [line["step"] for line in usual.records.of("evaluation")] == [0, 30, 60]
    assert one.records.of("train") == usual.records.of("train")
    assert one.records.of("episode") == usual.records.of("episode")
    learned = {name for name in usual.state if not name.startswith("collector.")}
    assert {name: one.state[name] for name in learned} == {
        name: usual.state[name] for name in learned
    }


def test_checkpoints_are_written_between_episodes(tmp_path: Path) -> None:
    class Notes(t3d.Watcher):
        saved: list[int] = []  # noqa: RUF012  one run

        def on_step(self, step: int) -> None:
            self.saved.append(run.saved_at)

    with closing(opened(tmp_path / "run", eval_every=0)) as run:
        train_to_end(run, [Notes()])
    assert sorted(set(Notes.saved)) == [0, 21, 42]


def test_a_run_that_stopped_between_episodes_resumes_to_the_same_bits(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "whole")) as run:
        train_to_end(run)
    with closing(opened(tmp_path / "halves")) as run:
        run.loop(lambda: run.collector.steps >= 35)
    with closing(opened(tmp_path / "halves", engine="fused")) as run:
        assert Robot.resets == 0
        train_to_end(run)
    assert same_bits(tmp_path / "halves", tmp_path / "whole")
    assert metrics_without_time(tmp_path / "halves") == metrics_without_time(tmp_path / "whole")
    assert t3d.inspect(tmp_path / "halves")["not_bit_exact"] == []


def test_a_resumed_run_plays_no_action_again(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "run")) as run:
        run.loop(lambda: run.collector.steps >= 38)
    with closing(opened(tmp_path / "run", engine="fused")) as run:
        assert (Robot.made, Robot.resets, Robot.actions) == (1, 0, [])
        assert "was cut and a new one begins" in run.notes[0]
        train_to_end(run)
    assert len(Robot.actions) == 60 - 38 + LENGTH  # and an evaluation
    facts = t3d.inspect(tmp_path / "run")
    assert facts["finished"]
    assert not facts["bit_exact"]
    assert facts["not_bit_exact"][0].startswith("at step 38 the episode in progress was cut")
    # The cut episode has no end, and nothing of it follows the next.
    episodes = [(r.episode, r.step) for r in RunFolder(tmp_path / "run").records(t3d.Episode)]
    assert episodes[4:6] == [(4, 35), (6, 45)]


def test_an_action_that_was_not_played_is_not_played_in_another_episode(tmp_path: Path) -> None:
    class Fails(Robot):
        def step(self, action: Any) -> Any:
            if len(Robot.actions) == 10:
                raise OSError("emergency stop")
            return super().step(action)

    config = Config.from_dict({"env": "-", **ONE, "eval_every": 0})
    folder = RunFolder(tmp_path / "run")
    with (
        closing(open_run(EnvMaker(Fails, config), folder, {})) as run,
        pytest.raises(t3d.BrokenEnvironment, match="emergency stop"),
    ):
        train_to_end(run)
    assert run.collector.state_dict()["chosen"].size
    Robot.forget()
    with closing(open_run(EnvMaker(Robot, run.config), folder, {})) as run:
        assert not run.collector.state_dict()["chosen"].size


def test_an_evaluation_during_an_episode_cuts_it() -> None:
    class Blind(Robot):
        """Only the cut tells its states apart."""

        def reset(self, **arguments: Any) -> Any:
            return np.zeros(3, np.float32), super().reset(**arguments)[1]

        def step(self, action: Any) -> Any:
            return np.zeros(3, np.float32), *super().step(action)[1:]

    with closing(Run.start(EnvMaker(Blind, maker().config))) as run:
        for _ in range(10):
            run.step()
        run.evaluate()
        assert run.collector.at_rest
        for _ in range(3):
            run.step()
        assert Robot.resets == 2 + 1 + 1
        # A return does not go on from the tenth step to the eleventh, which is of another episode.
        returns = run.memory.batch(np.array([7, 8, 9, 10]), n_step=3)
        assert returns.steps.tolist() == [3, 2, 1, 3]


def test_a_run_that_is_trained_further_says_what_it_would_not_have(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "run")) as run:
        train_to_end(run)
    with closing(opened(tmp_path / "run", steps=90, engine="fused")) as run:
        assert "a run of so many has no evaluation here" in run.notes[0]
        train_to_end(run)
    assert t3d.inspect(tmp_path / "run")["finished"]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"num_envs": 4}, "--single-env does not go with --num-envs 4; use --num-envs 1"),
        ({"collectors": 2}, "does not go with --collectors 2; leave out --collectors"),
        (
            {"env_backend": "processes"},
            "with --env-backend processes; use --env-backend inline",
        ),
        ({"env_backend": "envpool"}, "does not go with --env-backend envpool"),
        ({"remake_envs": True}, "does not go with --remake-envs; use --no-remake-envs"),
    ],
)
def test_what_needs_more_environments_is_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(t3d.BadInput, match=message):
        Config.from_dict({"single_env": True, **knobs})


def test_overlap_goes_with_one_environment() -> None:
    one = in_memory(Robot, **ONE, overlap=True)
    assert one.records.of("evaluation")[-1]["step"] == 60


def test_random_actions_need_consent() -> None:
    config = Config(single_env=True, steps=500)
    questions = []

    def ask(question: str) -> bool:
        questions.append(question)
        return len(questions) == 2

    with pytest.raises(t3d.BadInput, match="agree with --random-steps 10000, or play none with"):
        require_consent(config, {"single_env"}, ask)
    require_consent(config, {"single_env"}, ask)
    assert questions == ["The first 500 steps in Pendulum-v1 are random actions. Play them?"] * 2
    require_consent(config, {"random_steps"})
    require_consent(Config(single_env=True, random_steps=0), ())
    require_consent(Config(), ())
