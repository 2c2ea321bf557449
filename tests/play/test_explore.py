import numpy as np
import pytest

from helpers.playing import played
from t3d import Config, ReplayBuffer, T3DError
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker
from t3d.play.explore import mean_noise
from t3d.play.vector import Environments


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


def test_ornstein_uhlenbeck_noise_drifts_and_begins_again_with_each_episode() -> None:
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


def test_the_noise_that_is_reported_is_the_noise_that_is_played() -> None:
    config = Config(
        random_steps=2,
        exploration_noise=(0.5,),
        exploration_final=(0.1,),
        exploration_steps=10,
    )
    environments = Environments(EnvMaker("Pendulum-v1", config))
    environments.reset()
    collector, reported = Collector(environments, config), []
    memory = ReplayBuffer(100, 3, 1)
    for _ in range(14):
        reported.append(mean_noise(config, collector.steps))
        collector.step(lambda s: s[:, :1], memory)
    environments.close()
    assert reported[:3] == pytest.approx([1, 1, 0.5])
    assert reported[7] == pytest.approx(0.3)
    assert reported[12:] == pytest.approx([0.1, 0.1])
