from typing import Any

import numpy as np
import pytest

from helpers import broken_envs
from helpers.playing import Lopsided, played
from t3d import Config, ReplayBuffer, T3DError
from t3d.base.numbers import Array
from t3d.play.collect import Collector
from t3d.play.collecting import Transition
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate
from t3d.play.vector import Environments


def test_rows_are_stored_with_the_state_they_began_in() -> None:
    memory = played(random_steps=0, num_envs=2)
    assert len(memory) == 800
    # The environment answers with the action played and the count of steps.
    assert np.array_equal(memory.next_state[:800, :3], memory.action[:800])
    counts = memory.next_state[:800, 3].reshape(400, 2)
    assert np.array_equal(counts, np.tile([[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]], (80, 1)))
    began = memory.state[:800, 3].reshape(400, 2)
    assert np.array_equal(began, counts - 1)
    assert not memory.done[:800].any()  # a time limit is not a termination


def test_a_termination_is_stored_and_the_episode_reported() -> None:
    class Ends(Lopsided):
        def step(self, action: Any) -> Any:
            observation, *_ = super().step(action)
            return observation, 1.5, self.count == 3, self.count == 3, {}

    config = Config(env="-", num_envs=2)
    environments = Environments(EnvMaker(Ends, config))
    environments.reset()
    collector = Collector(environments, config)
    memory = ReplayBuffer(100, 4, 3)
    episodes = [collector.step(lambda s: s[:, :3], memory) for _ in range(6)]
    assert [len(ended) for ended in episodes] == [0, 0, 2, 0, 0, 2]
    assert episodes[5][1][:4] == (1, 1, 3, 4.5)  # environment, number, length, return
    # Over at its own time limit: terminated counts.
    assert memory.done[:12].tolist() == [0, 0, 0, 0, 1, 1] * 2


def test_nothing_that_is_not_finite_enters_the_memory() -> None:
    config = Config(env="-")
    environments = Environments(EnvMaker(broken_envs.NanObservation, config))
    environments.reset()
    memory = ReplayBuffer(100, 3, 2)
    collector = Collector(environments, config)
    collector.step(lambda s: s[:, :2], memory)
    collector.step(lambda s: s[:, :2], memory)
    with pytest.raises(T3DError, match="environment 0"):
        collector.step(lambda s: s[:, :2], memory)
    assert len(memory) == 2


def test_some_rows_of_a_transition_keep_their_environments() -> None:
    numbers = np.arange(3)
    step = Transition(*(10 * field + numbers for field in range(6)))
    some = step.only(np.array([0, 2]))
    assert [field.tolist() for field in some if field is not None] == [
        *([10 * field, 10 * field + 2] for field in range(6)),
        [0, 2],
    ]


def test_a_collector_plays_the_evaluation_episodes_of_its_config() -> None:
    config = Config(seed=3, eval_episodes=2, discount=0.9, max_episode_steps=5)
    collector = Collector(Environments(EnvMaker("Pendulum-v1", config)), config)
    env = EnvMaker("Pendulum-v1", config).make()

    def policy(states: Array) -> Array:
        return states[:, :1]

    score = collector.evaluate(policy, env, lambda: False)
    expected = evaluate(policy, env, range(2), seed=3, discount=0.9)
    assert score.returns == expected.returns
    assert score.discounted == expected.discounted
    assert collector.evaluate(policy, env, lambda: True).returns == []
