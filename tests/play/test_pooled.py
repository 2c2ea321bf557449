from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers.runs import needs_envpool
from t3d import Config, T3DError
from t3d.play.envs import EnvMaker
from t3d.play.pooled import PooledEnv
from t3d.play.vector import Environments

pytestmark = needs_envpool
POOLED = Config(env="Pendulum-v1", env_backend="envpool")


def test_it_is_the_pendulum_of_gymnasium() -> None:
    """From the state that EnvPool shows, Gymnasium's pendulum goes where EnvPool's goes."""
    pooled = EnvMaker("Pendulum-v1", POOLED).make()
    true: Any = gym.make("Pendulum-v1").unwrapped
    true.reset(seed=0)
    (cosine, sine, speed), _ = pooled.reset(seed=1)
    true.state = np.array([np.arctan2(sine, cosine), speed])
    draw = np.random.default_rng(0)
    for _ in range(50):
        action = draw.uniform(-2, 2, 1).astype(np.float32)
        expected, cost, *_ = true.step(action)
        shown, reward, *_ = pooled.step(action)
        assert np.allclose(shown, expected, atol=1e-3)
        assert reward == pytest.approx(cost, abs=1e-2)


def test_the_time_limit_truncates_and_the_last_observation_is_the_episodes_own() -> None:
    env = EnvMaker("Pendulum-v1", POOLED).make()
    before, _ = env.reset(seed=3)
    for _ in range(199):
        before, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
        assert not terminated
        assert not truncated
    shown, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert truncated
    assert not terminated
    assert np.abs(shown - before)[:2].max() < 0.5  # a step of physics, not a new start


@pytest.mark.parametrize("repeat", [1, 3])
def test_in_parallel_they_play_as_each_plays_alone(repeat: int) -> None:
    config = Config(env="Hopper-v5", env_backend="envpool", num_envs=3, action_repeat=repeat)
    together = Environments(EnvMaker("Hopper-v5", config))
    together.reset()
    alone = [EnvMaker("Hopper-v5", config).make() for _ in range(3)]
    for index, env in enumerate(alone):
        env.reset(seed=together.episode_seed(index))
    draw, ended = np.random.default_rng(0), 0
    for _ in range(60):
        action = draw.uniform(together.low, together.high, (3, 3)).astype(np.float32)
        steps = together.step(action)
        for index, env in enumerate(alone):
            shown, reward, terminated, truncated, _ = env.step(action[index])
            assert np.array_equal(shown, steps.next_state[index])
            assert reward == steps.reward[index]
            assert terminated == steps.terminated[index]
            assert truncated == steps.truncated[index]
            if terminated or truncated:
                ended += 1
                shown, _ = env.reset(seed=together.episode_seed(index))
            assert np.array_equal(shown, together.state[index])
    assert ended > 3


def test_images_and_asymmetric_bounds_come_through() -> None:
    seen: dict[str, Any] = {"grey": True, "image_size": 42, "frame_stack": 3, "action_repeat": 4}
    env = EnvMaker("CarRacing-v3", Config(env_backend="envpool", **seen)).make()
    assert env.layout.images[0] == (1, 42, 42)
    assert env.low.tolist() == [-1, 0, 0]
    first, _ = env.reset(seed=0)
    for _ in range(20):
        shown, *_ = env.step(np.array([0, 1, 0], np.float32))
    assert (shown != first).any()


def test_the_task_must_be_one_of_envpools() -> None:
    for name, message in (
        ("Pendlum-v1", "EnvPool has no task 'Pendlum-v1'; did you mean 'Pendulum-v1'?"),
        (
            "helpers.broken_envs:Calm",
            "EnvPool has no task 'helpers.broken_envs:Calm'; play it with --env-backend",
        ),
        ("CartPole-v1", "has Discrete actions; T3D needs continuous ones"),
    ):
        with pytest.raises(T3DError) as caught:
            EnvMaker(name, Config(env=name, env_backend="envpool")).make()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Pendulum-v1", "BipedalWalker-v3"])
def test_envpool_renders_its_own_environments(name: str) -> None:
    config = Config(env=name, env_backend="envpool")
    env, plain = EnvMaker(name, config).make(render_mode="rgb_array"), EnvMaker(name, config).make()
    assert isinstance(env.unwrapped, PooledEnv)
    assert np.array_equal(env.reset(seed=3)[0], plain.reset(seed=3)[0])
    first: Any = env.render()
    assert first.dtype == np.uint8
    assert first.ndim == 3
    for _ in range(20):  # rendering changes nothing
        steps = [one.step(np.ones(len(env.low), np.float32)) for one in (env, plain)]
        assert np.array_equal(steps[0][0], steps[1][0])
    assert (env.render() != first).any()


def test_pixels_are_the_pictures_of_envpool() -> None:
    seen: dict[str, Any] = {"pixels": True, "grey": True, "image_size": 48, "num_envs": 2}
    config = Config(env="Pendulum-v1", env_backend="envpool", **seen)
    environments = Environments(EnvMaker("Pendulum-v1", config))
    environments.reset()
    before = environments.state.copy()
    environments.step(np.full((2, 1), 2, np.float32))
    assert before.std(axis=1).min() > 5
    assert (environments.state != before).any(axis=1).all()
    assert not np.array_equal(before[0], before[1])


def test_mujocos_pictures_are_gymnasiums() -> None:
    """EnvPool may end the process when it renders these."""
    config = Config(env="HalfCheetah-v5", env_backend="envpool")
    env = EnvMaker("HalfCheetah-v5", config).make(render_mode="rgb_array")
    assert not isinstance(env.unwrapped, PooledEnv)
    pixels = replace(config, pixels=True)
    with pytest.raises(T3DError, match="EnvPool does not render 'HalfCheetah-v5' reliably; use --"):
        EnvMaker("HalfCheetah-v5", pixels).make()
