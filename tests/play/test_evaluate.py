import numpy as np
import pytest

from t3d import Config
from t3d.base.numbers import Array
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import evaluate


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
