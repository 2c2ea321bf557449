from typing import Any

import numpy as np
import pytest

from helpers import broken_envs
from helpers.runs import needs_envpool
from t3d import Config, T3DError
from t3d.play.envs import EnvMaker, EnvSource
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


def resumed_after(steps: int, env: EnvSource, without: str = "-") -> Environments:
    """Environments that resumed where others stopped, without some of their saved arrays."""
    one, other = (Environments(EnvMaker(env, Config())) for _ in range(2))
    one.reset()
    for _ in range(steps):
        one.step(np.full((1, 2), 0.5, np.float32))
    state = one.state_dict()
    other.load_state_dict({k: a for k, a in state.items() if not k.startswith(without)})
    return other


class RandomReward(broken_envs.Calm):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.random.default_rng().uniform(), *rest


@pytest.mark.parametrize(
    ("env", "steps"),
    [
        (RandomReward, 3),  # in the first episode
        (broken_envs.RemembersInReward, 10),  # at the beginning of the third
        (broken_envs.RemembersInReward, 12),
        (broken_envs.RemembersInEnds, 7),
        (broken_envs.RemembersInEnds, 8),
    ],
)
def test_rewards_and_ends_that_differ_are_noticed(env: EnvSource, steps: int) -> None:
    assert resumed_after(steps, env).lost == [0]
    assert resumed_after(steps, broken_envs.Calm).lost == []


def test_the_episode_before_is_compared_too() -> None:
    class SaysSo(broken_envs.Remembers):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, reward + (self.episodes == 1 and self.count == 5), *rest

    assert resumed_after(7, SaysSo).lost == []  # its first five steps are what they were
    assert resumed_after(12, SaysSo).lost == [0]


def test_a_state_of_an_earlier_version_has_nothing_to_compare_but_its_end() -> None:
    later = resumed_after(12, broken_envs.RemembersInReward, without="proof.")
    assert later.lost == []
    assert len(later.played[0]) == 2


def test_a_step_before_a_broken_reset_counts() -> None:
    environments = Environments(EnvMaker(broken_envs.RaisesAtSecondReset, Config()))
    environments.reset()
    for _ in range(4):
        environments.step(np.zeros((1, 2), np.float32))
        environments.check()
    assert environments.step(np.zeros((1, 2), np.float32)).truncated.all()
    with pytest.raises(T3DError, match=r"reset\(\) raised RuntimeError: the arm is tired"):
        environments.check()
