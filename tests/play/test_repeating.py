import itertools
from typing import Any

import pytest

from helpers import broken_envs
from t3d import Config
from t3d.play.envs import EnvMaker, EnvSource
from t3d.play.repeating import Trial, try_to_repeat


def tried(env: EnvSource, seconds: float = 60.0, **knobs: Any) -> Trial:
    return try_to_repeat(EnvMaker(env, Config(**knobs)), seconds)


@pytest.mark.parametrize("env", [broken_envs.Calm, "Pendulum-v1", "LunarLanderContinuous-v3"])
def test_an_environment_without_a_memory_repeats_every_episode(env: EnvSource) -> None:
    assert tried(env) == Trial("always", 8)


@pytest.mark.parametrize(
    "env", [broken_envs.RemembersInReward, broken_envs.RemembersInEnds, "BipedalWalker-v3"]
)
def test_one_with_a_memory_repeats_them_only_when_new(env: EnvSource) -> None:
    assert tried(env).repeats == "when new"
    assert tried(env, remake_envs=True) == Trial("always", 8)


@pytest.mark.parametrize("env", [broken_envs.Lottery, broken_envs.SharesMemory])
def test_one_that_is_not_deterministic_never_repeats_them(env: EnvSource) -> None:
    assert tried(env).repeats == "never"
    assert tried(env, remake_envs=True).repeats == "never"


def test_it_is_tried_where_the_run_will_play() -> None:
    """A hung environment costs its deadline and nothing else, as in a run."""
    process: Any = {"env_backend": "processes", "env_deadline": 0.3}
    hung = tried(broken_envs.Stuck, **process)
    assert hung == Trial("unknown", why="the process of environment 0 did not answer within 0.3 s")
    assert hung.in_words().startswith("whether the environment repeats its episodes is not known")


def test_one_that_is_broken_or_too_slow_is_left_for_the_run_to_judge() -> None:
    broken = tried(broken_envs.Raises)
    assert broken.repeats == "unknown"
    assert "step() raised ZeroDivisionError: the arm fell off" in broken.why
    assert tried("Pendulum-v1", seconds=0.0) == Trial("unknown", why="it is too slow")


def test_a_busy_machine_tries_six_episodes_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three episodes may not show a memory; each step takes long here."""
    calls = itertools.count()
    monkeypatch.setattr("t3d.play.repeating.time.perf_counter", lambda: next(calls) * 0.02)
    assert tried(broken_envs.Calm, seconds=1.0).episodes >= 6
    assert tried(broken_envs.RemembersInEnds, seconds=1.0).repeats == "when new"
