"""A control rate, by a clock that only the test moves."""

import dataclasses
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import t3d
from helpers.broken_envs import Calm
from helpers.runs import TINY
from t3d import Config
from t3d.base.observation import Layout
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker, GuardedEnv
from t3d.play.evaluate import evaluate
from t3d.play.pacing import Lateness
from t3d.play.repeating import try_to_repeat
from t3d.play.vector import Environments
from t3d.run.doctor import Diagnosis, RandomPlay, _check_speed, examine, glance
from t3d.run.loop import Run
from t3d.run.records import Record

NO_ACTION = np.zeros(2, np.float32)


class Clock:
    """Moves when somebody sleeps, or when the test says that something took time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.slept += seconds


class Measures(t3d.Watcher):
    """Keeps the measures of training records."""

    def __init__(self) -> None:
        self.measures: list[dict[str, float | None]] = []

    def on_record(self, record: Record) -> None:
        if isinstance(record, t3d.Training):
            self.measures.append(record.measures)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("t3d.play.pacing.clock", clock)
    monkeypatch.setattr("t3d.play.pacing.sleep", clock.sleep)
    return clock


class Timed(Calm):
    """Notes when its steps begin; each takes 4 ms."""

    clock: Clock

    def reset(self, **arguments: Any) -> Any:
        self.began: list[float] = []
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self.began.append(round(self.clock.now - 100, 6))
        self.clock.now += 0.004
        return super().step(action)


@pytest.fixture
def env(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> GuardedEnv:
    monkeypatch.setattr(Timed, "clock", clock, raising=False)
    return maker().make()


def maker(**knobs: Any) -> EnvMaker:
    return EnvMaker(Timed, Config(rate=50, **knobs))


def steps(env: GuardedEnv, clock: Clock, thinking: list[float]) -> list[float]:
    """Play after some seconds of thinking each; returns when the steps began."""
    for seconds in thinking:
        clock.now += seconds
        env.step(NO_ACTION)
    timed = env.unwrapped
    assert isinstance(timed, Timed)
    return timed.began


def test_steps_begin_at_the_ticks(env: GuardedEnv, clock: Clock) -> None:
    env.reset()
    assert steps(env, clock, [0, 0.001, 0.015, 0.0001]) == [0, 0.02, 0.04, 0.06]


def test_a_late_step_begins_at_once_and_the_next_a_period_later(
    env: GuardedEnv, clock: Clock
) -> None:
    env.reset()
    assert steps(env, clock, [0, 0.05, 0, 0]) == [0, 0.054, 0.074, 0.094]


def test_a_tenth_of_a_period_is_in_time_and_does_not_move_the_ticks(clock: Clock) -> None:
    Timed.clock = clock
    paced = maker()
    env = paced.make()
    env.reset()
    assert steps(env, clock, [0, 0.0175, 0]) == [0, 0.0215, 0.04]
    assert paced.lateness.take() == {"late_steps": 0, "late_ms": 0}
    steps(env, clock, [0.0185])
    assert paced.lateness.take() == {"late_steps": 1, "late_ms": 2.5}


def test_the_first_step_after_a_reset_is_in_time(clock: Clock) -> None:
    Timed.clock = clock
    paced = maker()
    env = paced.make()
    env.reset()
    steps(env, clock, [0, 0])
    env.reset()
    clock.now = 107.0
    assert steps(env, clock, [0, 0]) == [7, 7.02]
    env.reset()
    assert steps(env, clock, [0]) == [7.024]  # at once
    assert str(paced.lateness) == "0 of 5 steps were late"


def test_repeats_of_an_action_are_paced_one_by_one(clock: Clock) -> None:
    Timed.clock = clock
    env = maker(action_repeat=2).make()
    env.reset()
    assert steps(env, clock, [0, 0]) == [0, 0.02, 0.04, 0.06]


def test_evaluations_are_paced(env: GuardedEnv, clock: Clock) -> None:
    evaluate(lambda states: states[:, :2], env, range(1), seed=0)
    timed = env.unwrapped
    assert isinstance(timed, Timed)
    assert timed.began == [0, 0.02, 0.04, 0.06, 0.08]


def test_lateness_counts_all_steps_and_those_since_it_was_taken() -> None:
    lateness = Lateness()
    assert lateness.take() == {}
    assert str(lateness) == "0 of 0 steps were late"
    for seconds in (0.0, 0.0125, 0.005):
        lateness.add(seconds)
    assert lateness.take() == {"late_steps": 2, "late_ms": 12.5}
    assert lateness.take() == {}
    lateness.add(0.001)
    assert lateness.take() == {"late_steps": 1, "late_ms": 1}
    assert str(lateness) == "3 of 4 steps were late, by up to 12.5 ms"


def test_training_records_have_the_late_steps(clock: Clock) -> None:
    class Slow(Timed):
        def step(self, action: Any) -> Any:
            clock.now += 0.03 if self.count == 2 else 0
            return super().step(action)

    Timed.clock = clock

    def measured(**knobs: Any) -> list[tuple[Any, Any]]:
        knobs = TINY | {"max_episode_steps": 0, "eval_every": 0, "steps": 20} | knobs
        with closing(Run.start(EnvMaker(Slow, Config(env="-", **knobs)))) as run:
            run.watchers.append(watcher := Measures())
            run.loop()
        return [(each.get("late_steps"), each.get("late_ms")) for each in watcher.measures]

    assert measured(rate=50) == [(2, 14.0)] * 2  # a step of 34 ms, in each of two episodes
    assert measured() == [(None, None)] * 2


def test_what_is_played_to_try_the_environment_does_not_wait(clock: Clock) -> None:
    Timed.clock = clock
    paced = maker(max_episode_steps=3)
    assert try_to_repeat(paced, seconds=60).repeats == "always"
    assert glance(paced) == glance(dataclasses.replace(paced, config=Config(max_episode_steps=3)))
    examine(paced, seconds=0.1)
    assert (clock.slept, paced.lateness.steps) == (0, 0)
    with closing(paced.make()) as env:
        env.reset()
        env.step(NO_ACTION)
        env.step(NO_ACTION)
    assert clock.slept > 0


def test_the_doctor_knows_what_a_rate_takes_and_forbids() -> None:
    well = examine(EnvMaker("Pendulum-v1", Config(steps=7200, rate=1, random_steps=10)), 0.1)
    assert well.facts["7,200 steps"] == "about 2.0 hours, without evaluations"
    busy = RandomPlay(steps=10, seconds=10)
    slow = Diagnosis()
    _check_speed(Layout(3), busy, 1000.0, Config(rate=1), slow)
    assert not slow.flags
    _check_speed(Layout(3), busy, 1000.0, Config(), slow)
    assert slow.flags == {"num_envs": 4, "env_backend": "processes"}


def test_only_one_environment_in_this_process_is_paced() -> None:
    with pytest.raises(t3d.BadInput, match=r"--rate 50\.0 does not go with --num-envs 2; use"):
        Config(rate=50, num_envs=2)
    with pytest.raises(t3d.BadInput, match="does not go with --env-backend processes"):
        Config(rate=50, env_backend="processes")
    config = Config(rate=50)
    with closing(Environments(EnvMaker(Calm, config))) as environments:
        assert Collector(environments, config).measures() == {}
