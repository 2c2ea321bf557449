import re
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers import broken_envs
from t3d import Config, T3DError
from t3d.base.extras import how_to_install
from t3d.play.envs import EnvMaker, GuardedEnv, env_name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("Pendlum-v1", "no environment is called 'Pendlum-v1'; did you mean 'Pendulum-v1'?"),
        ("HalfCheeta-v5", "did you mean 'HalfCheetah-v5'?"),
        ("Qwertyuiop", "no environment is called 'Qwertyuiop'; your own goes as module:EnvId"),
        ("nowhere_at_all:Env-v0", "no module 'nowhere_at_all'"),
        ("helpers.broken_envs:Clam", "neither has nor registers 'Clam'; did you mean 'Calm'?"),
        ("CartPole-v1", "has Discrete actions; T3D needs continuous ones (a Box)"),
        (broken_envs.DiscreteActions, "has Discrete actions"),
        (broken_envs.UnboundedActions, "has unbounded actions"),
        (broken_envs.EmptyRange, "has an empty action range"),
        (broken_envs.MatrixActions, "has actions of shape (2, 2)"),
        (broken_envs.WholeNumberActions, "has actions of type int64"),
        (broken_envs.NestedObservations, "has nested observations, 'a' is a Dict or Tuple"),
        (broken_envs.FloatImages, "has images of type float32; give uint8"),
        (broken_envs.MatrixObservations, "has observations of shape (3, 3)"),
        (broken_envs.RaisesWhenMade, "cannot be made: OSError: no robot on /dev/arm"),
        (broken_envs.not_an_environment, "made a int; expected a gymnasium.Env"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_one_line(source: object, message: str) -> None:
    with pytest.raises(T3DError) as caught:
        EnvMaker(source, Config()).make()  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (broken_envs.NanObservation, "step 3: observation[1] is nan"),
        (broken_envs.InfiniteReward, "step 3: reward is inf"),
        (broken_envs.WrongShape, "step 1: observation has shape (2,); expected (3,)"),
        (broken_envs.TextReward, "step 1: step() returned reward 'much'"),
        (broken_envs.FourValues, "step 1: step() must return (observation, reward, term"),
        (broken_envs.Raises, "step 3: step() raised ZeroDivisionError: the arm fell off"),
        (broken_envs.NanAtReset, "step 0: observation[0] is nan"),
        (broken_envs.BareReset, "step 0: reset() must return (observation, info)"),
    ],
)
def test_a_broken_answer_names_the_environment_the_episode_and_the_step(
    source: type[broken_envs.Calm], message: str
) -> None:
    env = EnvMaker(source, Config()).make(index=4)

    def play() -> None:
        env.reset(seed=11)
        for _ in range(5):
            env.step(np.zeros(2, np.float32))

    with pytest.raises(T3DError) as caught:
        play()
    assert f"environment 4 (helpers.broken_envs:{source.__name__}), episode seed 11" in str(
        caught.value
    )
    assert message in str(caught.value)


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise gym.error.DependencyNotInstalled('MuJoCo is not installed, "gymnasium[mujoco]"')

    # The extras are all installed where the tests run, so the library's refusal is played.
    monkeypatch.setattr(gym, "make", refuse)
    with pytest.raises(T3DError, match=re.escape(f"needs an extra: {how_to_install('mujoco')}")):
        EnvMaker("HalfCheetah-v5", Config()).make()


@pytest.mark.parametrize(
    "source",
    [
        "helpers.broken_envs:Calm-v0",
        "helpers.broken_envs:Calm",
        broken_envs.Calm,
        lambda: broken_envs.Calm(),
    ],
)
def test_users_bring_their_own_environment(source: object) -> None:
    env = EnvMaker(source, Config()).make()  # type: ignore[arg-type]
    state, _ = env.reset(seed=0)
    assert state.shape == (3,)
    assert state.dtype == np.float32


def test_a_callable_goes_by_its_import_path() -> None:
    assert env_name(broken_envs.Calm) == "helpers.broken_envs:Calm"
    assert env_name("Pendulum-v1") == "Pendulum-v1"


def test_actions_arrive_inside_the_range_in_the_environments_own_precision() -> None:
    seen = []

    class Strict(broken_envs.Calm):
        action_space = gym.spaces.Box(np.array([-0.1, 0.0]), np.array([0.1, 0.7]), dtype=np.float64)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            seen.append(action)
            return super().step(action)

    env = EnvMaker(Strict, Config()).make()
    env.reset(seed=0)
    env.step(np.array([0.1, 0.7], np.float32))  # 0.1 in float32 is above 0.1 in float64
    env.step(np.array([-5, 5], np.float32))
    assert np.array_equal(seen[1], [-0.1, 0.7])


def test_max_episode_steps_truncates_and_does_not_terminate() -> None:
    env = EnvMaker("Pendulum-v1", Config(max_episode_steps=3)).make()
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_with_a_new_environment_for_every_episode_box2d_carries_nothing_over() -> None:
    """Box2D's solver carries something over, so that the same episode may differ."""

    def played(env: GuardedEnv, seed: int, rng: np.random.Generator) -> bytes:
        seen = [env.reset(seed=seed)[0]]
        for action in rng.uniform(-1, 1, (150, 4)).astype(np.float32):
            state, _, terminated, *_ = env.step(action)
            seen.append(state)
            if terminated:
                break
        return np.concatenate(seen).tobytes()

    def differ(remake: bool) -> int:
        """In how many of ten cases an episode depends on those before it."""
        count = 0
        for case in range(10):
            rng = np.random.default_rng(case)
            old = EnvMaker("BipedalWalker-v3", Config(remake_envs=remake)).make()
            new = EnvMaker("BipedalWalker-v3", Config()).make()
            for episode in range(4):
                played(old, episode, rng)
            one, other = (played(env, 9, np.random.default_rng(case)) for env in (old, new))
            count += one != other
        return count

    assert differ(True) == 0
    assert differ(False) > 0


def test_envpool_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(T3DError) as caught:
        EnvMaker("Pendulum-v1", Config(env_backend="envpool")).make()
    needs = f"env_backend envpool needs an extra: {how_to_install('envpool')}"
    assert str(caught.value) == needs
