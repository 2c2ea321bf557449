from typing import Any

import numpy as np
import pytest

from helpers import broken_envs
from helpers.runs import needs_envpool
from t3d import Config, T3DError
from t3d.play.envs import EnvMaker
from t3d.play.vector import Environments

BACKENDS = ["inline", "processes", pytest.param("envpool", marks=needs_envpool)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_episode_can_be_played_again_from_its_seed(backend: Any) -> None:
    """Reset seeds derive from (run seed, environment, episode), whatever was played before."""
    config = Config(env="Pendulum-v1", num_envs=3, env_backend=backend, max_episode_steps=4)
    environments = Environments(EnvMaker("Pendulum-v1", config))
    actions = np.random.default_rng(0).uniform(-2, 2, (20, 3, 1)).astype(np.float32)
    starts = []
    environments.reset()
    for action in actions:
        if not environments.played[0]:
            starts.append(environments.state.copy())
        environments.step(action)
    environments.close()
    assert environments.episode.tolist() == [5, 5, 5]
    first_states = np.concatenate(starts)
    assert len(np.unique(first_states, axis=0)) == len(first_states)  # no start is played twice

    again = Environments(EnvMaker("Pendulum-v1", config))
    again.episode[:] = 3
    again.reset()
    again.close()
    assert np.array_equal(again.state, starts[3])


def test_the_last_observation_is_not_the_next_episodes_first() -> None:
    config = Config(env="Pendulum-v1", num_envs=2, max_episode_steps=2)
    environments = Environments(EnvMaker("Pendulum-v1", config))
    environments.reset()
    action = np.ones((2, 1), np.float32)
    environments.step(action)
    before_the_end = environments.state.copy()
    steps = environments.step(action)
    assert steps.truncated.all()
    assert not steps.terminated.any()
    # One step of physics moves a pendulum a little; a reset throws it anywhere.
    assert np.abs(steps.next_state - before_the_end)[:, :2].max() < 0.5
    assert not np.array_equal(steps.next_state, environments.state)
    assert environments.played == [[], []]
    environments.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["Pendulum-v1", "Hopper-v5"])
def test_environments_resume_where_their_state_was_taken(name: str, backend: Any) -> None:
    config = Config(env=name, num_envs=2, env_backend=backend)
    one, other = Environments(EnvMaker(name, config)), Environments(EnvMaker(name, config))
    try:
        one.reset()
        draw = np.random.default_rng(0)
        shape = (2, len(one.low))
        for _ in range(90):
            one.step(draw.uniform(one.low, one.high, shape).astype(np.float32))
        other.load_state_dict(one.state_dict())
        for _ in range(90):
            action = draw.uniform(one.low, one.high, shape).astype(np.float32)
            mine, theirs = one.step(action), other.step(action)
            assert all(np.array_equal(a, b) for a, b in zip(mine[:4], theirs[:4]))
            assert np.array_equal(one.state, other.state)
        assert np.array_equal(one.episode, other.episode)
    finally:
        one.close()
        other.close()


def test_an_environment_that_is_not_deterministic_resumes_with_its_next_episode() -> None:
    config = Config(env="helpers.broken_envs:Lottery", num_envs=2)
    one, other = (Environments(EnvMaker(broken_envs.Lottery, config)) for _ in range(2))
    one.reset()
    one.step(np.zeros((2, 2), np.float32))
    other.load_state_dict(one.state_dict())
    assert other.lost == [0, 1]
    assert other.episode.tolist() == [1, 1]
    assert other.played == [[], []]


def test_a_step_before_a_broken_reset_counts() -> None:
    environments = Environments(EnvMaker(broken_envs.RaisesAtSecondReset, Config()))
    environments.reset()
    for _ in range(4):
        environments.step(np.zeros((1, 2), np.float32))
        environments.check()
    assert environments.step(np.zeros((1, 2), np.float32)).truncated.all()
    with pytest.raises(T3DError, match=r"reset\(\) raised RuntimeError: the arm is tired"):
        environments.check()
