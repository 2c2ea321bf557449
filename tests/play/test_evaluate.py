from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t3d import Config
from t3d.base.errors import BadInput, BrokenEnvironment
from t3d.base.machine import cores
from t3d.base.numbers import Array
from t3d.play.envs import EnvMaker
from t3d.play.evaluate import Score, evaluate, evaluation_env
from t3d.play.workers import WorkerEnv


def equal(one: Score, other: Score) -> bool:
    starts = np.array_equal(one.starts, other.starts)
    return starts and one._replace(starts=[]) == other._replace(starts=[])


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


def test_episodes_played_together_are_those_played_in_turn() -> None:
    def erratic(states: Array) -> Array:
        return np.asarray(np.sin(1000 * states[:, :3]))

    with closing(evaluation_env(EnvMaker("Hopper-v5", Config()))) as env:
        in_turn = evaluate(erratic, env, range(7), seed=5, discount=0.9)
    assert len(set(in_turn.lengths)) > 1  # so that processes begin their next at different times
    for backend in ("inline", "processes"):
        config = Config(env_backend=backend, eval_envs=3)
        with closing(evaluation_env(EnvMaker("Hopper-v5", config))) as env:
            assert isinstance(env, WorkerEnv)
            assert env.count == 3
            together = evaluate(erratic, env, range(7), seed=5, discount=0.9)
            assert equal(in_turn, together)
            few = evaluate(erratic, env, range(2), seed=5, discount=0.9)
            assert few.returns == in_turn.returns[:2]


def test_an_evaluation_that_is_stopped_leaves_nothing_for_the_next() -> None:
    def policy(states: Array) -> Array:
        return states[:, :1]

    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 50

    config = Config(eval_envs=2, max_episode_steps=20)
    with closing(evaluation_env(EnvMaker("Pendulum-v1", config))) as env:
        broken_off = evaluate(policy, env, range(9), seed=5, stop=stop)
        assert len(broken_off.returns) < 9
        whole = evaluate(policy, env, range(9), seed=5)
    with closing(evaluation_env(EnvMaker("Pendulum-v1", Config(max_episode_steps=20)))) as env:
        assert equal(whole, evaluate(policy, env, range(9), seed=5))


def test_a_process_that_dies_or_hangs_plays_its_episode_again(tmp_path: Path) -> None:
    def policy(states: Array) -> Array:
        return states[:, :1]

    def score(name: str, **knobs: Any) -> tuple[Score, list[str]]:
        folder = tmp_path / name
        folder.mkdir()
        config = Config(max_episode_steps=30, env_kwargs={"folder": str(folder)}, **knobs)
        with closing(evaluation_env(EnvMaker(f"helpers.odd_envs:{name}", config))) as env:
            played = evaluate(policy, env, range(4), seed=5)
            return played, env.take_restarts() if isinstance(env, WorkerEnv) else []

    usual, _ = score("one_is_slow")
    died, restarts = score("one_dies", eval_envs=2)
    assert equal(usual, died)
    assert restarts == ["died (exit code 3)"]
    hung, restarts = score("one_hangs", eval_envs=2, env_deadline=1.0)
    assert equal(usual, hung)
    assert restarts == ["did not answer within 1 s"]


def test_an_environment_that_breaks_beside_others_ends_the_evaluation(tmp_path: Path) -> None:
    config = Config(eval_envs=2, env_kwargs={"folder": str(tmp_path)})
    with closing(evaluation_env(EnvMaker("helpers.odd_envs:one_breaks", config))) as env:
        broken = pytest.raises(BrokenEnvironment, match=r"evaluation environment .* out of order")
        with broken:
            evaluate(lambda states: states[:, :1], env, range(4), seed=5)


def test_as_many_episodes_at_the_same_time_as_are_useful() -> None:
    def count(**knobs: Any) -> int:
        with closing(evaluation_env(EnvMaker("Pendulum-v1", Config(**knobs)))) as env:
            return env.count if isinstance(env, WorkerEnv) else 0

    assert count() == count(eval_envs=1) == 0  # in this process
    assert count(env_backend="processes") == min(10, cores() + 1)
    assert count(env_backend="processes", eval_episodes=1) == 1
    assert count(env_backend="processes", eval_envs=1) == 1
    assert count(eval_envs=9, eval_episodes=2) == 2
    with pytest.raises(BadInput, match=r"with --collectors, these play .*; leave out --eval-envs"):
        Config(collectors=2, eval_envs=2)
    with pytest.raises(BadInput, match="--single-env does not go with --eval-envs 2; leave out"):
        Config(single_env=True, eval_envs=2)
