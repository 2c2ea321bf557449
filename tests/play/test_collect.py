from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import broken_envs
from t3d import Config, ReplayBuffer, T3DError
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate
from t3d.play.explore import mean_noise
from t3d.play.vector import Environments

Array = NDArray[Any]


class Lopsided(broken_envs.Calm):
    """Bounds that differ per dimension and are not symmetric, as CarRacing's."""

    action_space = gym.spaces.Box(
        np.array([-1, 0, 10], np.float32), np.array([1, 2, 50], np.float32)
    )
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.append(action, self.count), 0.0, False, self.count >= 5, {}


def played(**knobs: Any) -> ReplayBuffer:
    config = Config(env="-", **knobs)
    environments = Environments(EnvMaker(Lopsided, config))
    environments.reset()
    collector = Collector(environments, config)
    memory = ReplayBuffer(10_000, 4, 3)

    def middle(states: Array) -> Array:
        return np.tile(np.array([0, 1, 30], np.float32), (len(states), 1))

    for _ in range(400):
        collector.step(middle, memory)
    environments.close()
    return memory


def test_random_actions_fill_the_whole_range() -> None:
    actions = played(random_steps=10_000).action[:400]
    assert np.allclose(actions.min(axis=0), [-1, 0, 10], atol=0.5)
    assert np.allclose(actions.max(axis=0), [1, 2, 50], atol=0.5)
    assert np.allclose(actions.mean(axis=0), [0, 1, 30], rtol=0.1, atol=0.1)


def test_exploration_noise_is_a_fraction_of_each_half_range() -> None:
    actions = played(random_steps=0, exploration_noise=0.1).action[:400]
    assert np.allclose(actions.std(axis=0), [0.1, 0.1, 2.0], rtol=0.1)
    scaled = (actions - [0, 1, 30]) / [1, 1, 20]
    assert len(np.unique(scaled)) == scaled.size  # one draw per step and per dimension


def test_each_dimension_may_have_its_own_noise() -> None:
    actions = played(random_steps=0, exploration_noise=(0.1, 0.0, 0.2)).action[:400]
    assert np.allclose(actions.std(axis=0), [0.1, 0.0, 4.0], rtol=0.1)
    with pytest.raises(T3DError, match="exploration_noise has 2 numbers; expected 1, or 3"):
        played(exploration_noise=(0.1, 0.2))


def test_noise_goes_from_one_size_to_another_over_some_steps() -> None:
    knobs = {"exploration_noise": 0.4, "exploration_final": 0.1, "exploration_steps": 200}
    changing = played(random_steps=50, **knobs).action[50:400] - [0, 1, 30]
    constant = played(random_steps=50, exploration_noise=0.1).action[50:400] - [0, 1, 30]
    sizes = 0.1 * np.median(changing / constant, axis=1)  # some are cut off at the range
    expected = np.linspace(0.4, 0.1, 201)
    np.testing.assert_allclose(sizes, np.append(expected, [0.1] * 149), rtol=1e-3)


def test_ornstein_uhlenbeck_noise_drifts_and_begins_anew_with_each_episode() -> None:
    knobs = {"exploration": "ou", "exploration_noise": 0.05, "random_steps": 0}
    scaled = (played(**knobs, exploration_pull=0.2).action[:400] - [0, 1, 30]) / [1, 1, 20]
    drift = scaled.reshape(80, 5, 3) / 0.05  # episodes have five steps
    drawn = drift.copy()
    drawn[:, 1:] -= 0.8 * drift[:, :-1]  # what each step added to four fifths of the last
    # These are the numbers that Gaussian noise would have been.
    plain = played(random_steps=0, exploration_noise=0.05).action[:400]
    expected = ((plain - [0, 1, 30]) / [1, 1, 20] / 0.05).reshape(80, 5, 3)
    np.testing.assert_allclose(drawn, expected, atol=1e-3)


def test_exploration_stays_inside_the_range() -> None:
    actions = played(random_steps=0, exploration_noise=5).action[:400]
    assert (actions >= [-1, 0, 10]).all()
    assert (actions <= [1, 2, 50]).all()


def test_environments_do_not_share_their_noise() -> None:
    actions = played(random_steps=0, num_envs=4).action[:1600].reshape(400, 4, 3)
    assert len(np.unique(actions[:, :, 0])) == 1600


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
    assert episodes[5][1] == (1, 1, 3, 4.5)  # environment, number, length, return
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


def test_evaluation_repeats_itself_and_adds_no_noise() -> None:
    env = EnvMaker("Pendulum-v1", Config()).make()
    actions: list[Array] = []

    def policy(states: Array) -> Array:
        actions.append(states[:, :1].copy())
        return states[:, :1]

    one = evaluate(policy, env, range(3), seed=5)
    again = evaluate(policy, env, range(3), seed=5)
    assert (one.returns, one.lengths) == (again.returns, again.lengths)
    assert len(one.returns) == 3
    assert one.lengths == [200, 200, 200]
    assert one.mean == pytest.approx(sum(one.returns) / 3)
    assert evaluate(policy, env, range(3), seed=6).returns != one.returns
    assert evaluate(policy, env, range(3), seed=5, purpose="test").returns != one.returns


def test_evaluation_discounts_from_the_first_state_on() -> None:
    env = EnvMaker("Pendulum-v1", Config()).make()
    states, rewards = [], []

    def policy(state: Array) -> Array:
        states.append(state[0].copy())
        angle = np.arctan2(state[0, 1], state[0, 0])
        # Gymnasium's own formula, for an action of 0.
        rewards.append(-(angle**2 + 0.1 * state[0, 2] ** 2))
        return np.zeros((1, 1), np.float32)

    score = evaluate(policy, env, range(2), seed=5, discount=0.9)
    for i in range(2):
        np.testing.assert_array_equal(score.starts[i], states[200 * i])
        by_hand = sum(0.9**k * reward for k, reward in enumerate(rewards[200 * i : 200 * i + 200]))
        assert score.discounted[i] == pytest.approx(by_hand, rel=1e-5)
        assert score.cut_off[i] == pytest.approx(0.9**200)  # by the time limit
        assert score.returns[i] == pytest.approx(sum(rewards[200 * i : 200 * i + 200]), rel=1e-5)


def test_the_noise_that_is_reported_is_the_noise_that_is_played() -> None:
    config = Config(
        random_steps=2,
        exploration_noise=(0.5,),
        exploration_final=(0.1,),
        exploration_steps=10,
    )
    environments = Environments(EnvMaker("Pendulum-v1", config))
    environments.reset()
    collector, found = Collector(environments, config), []
    memory = ReplayBuffer(100, 3, 1)
    for _ in range(14):
        found.append(mean_noise(config, collector.steps))
        collector.step(lambda s: s[:, :1], memory)
    environments.close()
    assert found[:3] == pytest.approx([1, 1, 0.5])
    assert found[7] == pytest.approx(0.3)
    assert found[12:] == pytest.approx([0.1, 0.1])
