"""A collector's side of the exchange, here and without Ray."""

from typing import Any

import numpy as np
import pytest

from helpers import broken_envs
from t3d import T3D, Config
from t3d.play.envs import EnvMaker, EnvSource, Spaces
from t3d.remote.actor import CollectorActor
from t3d.remote.messages import Chunk, Request

NEW = {"environments.episode": np.zeros(2, np.int64)}


def actor(env: EnvSource = "Pendulum-v1", index: int = 1, **knobs: Any) -> CollectorActor:
    few: dict[str, Any] = {"collectors": 2, "num_envs": 2, "random_steps": 0, "hidden": (8,)}
    config = Config(env="-", max_episode_steps=4, **few | knobs)

    def player(spaces: Spaces) -> T3D:
        return T3D(*spaces, config)

    return CollectorActor(EnvMaker(env, config), index, player)


def weights() -> Any:
    return T3D(3, [-2], [2], Config(hidden=(8,), seed=5)).weights()


def play(one: CollectorActor, **fields: Any) -> Chunk:
    request = Request(generation=0, policy=1, at=0, length=3)._replace(**fields)
    chunk = one.play(request, weights())
    assert chunk is not None
    return chunk


def test_chunks_are_numbered_in_the_order_of_their_steps() -> None:
    one = actor()
    one.begin(0, NEW)
    first, second = play(one), play(one, length=2)
    assert [chunk.sequence for chunk in (first, second)] == [0, 3]
    assert np.array_equal(first.state[-1], second.state[0])
    assert [episode.env for episode in second.episodes[0]] == [2, 3]  # its own: 2 and 3 of 4
    assert second.episode.tolist() == [1, 1]


def test_collectors_play_with_arguments_wrappers_and_histories() -> None:
    knobs: dict[str, Any] = {"env_kwargs": {"mass": 2}}
    wrap = ("helpers.own_wrappers:Scale", "factor=0", "plus=3")
    one = actor("helpers.own_wrappers:Robot", wrap=wrap, action_history=1, staleness=0, **knobs)
    one.begin(0, NEW)
    agent = T3D(5, [-1, -1], [1, 1], Config(hidden=(8,)))
    chunk = one.play(Request(generation=0, policy=1, at=0, length=3), agent.weights())
    assert chunk is not None
    assert (chunk.state[..., 2] == 2).all()
    assert np.array_equal(chunk.state[1, :, 3:], chunk.action[0])
    assert (chunk.reward == 3).all()


def test_a_request_for_another_generation_is_not_played() -> None:
    one = actor()
    assert one.play(Request(0, 1, 0, 3), weights()) is None  # it has not begun
    one.begin(1, NEW)
    assert one.play(Request(0, 1, 0, 3), weights()) is None
    assert play(one, generation=1).sequence == 0


def test_a_policy_is_loaded_once() -> None:
    one = actor(exploration_noise=0.0)
    one.begin(0, NEW)
    before = play(one)
    assert before.action.any()
    still = one.play(Request(0, 1, 0, 1), np.zeros_like(weights()))
    other = one.play(Request(0, 2, 0, 1), np.zeros_like(weights()))
    assert still is not None
    assert other is not None
    assert still.action.any()
    assert not other.action.any()


@pytest.mark.parametrize("staleness", [0, 8])
def test_free_running_each_generation_has_random_streams_of_its_own(staleness: int) -> None:
    one, two = actor(staleness=staleness), actor(staleness=staleness)
    one.begin(0, NEW)
    two.begin(3, NEW)
    mine, theirs = play(one, length=1), play(two, length=1, generation=3)
    assert np.array_equal(mine.action, theirs.action) == (staleness == 0)


def test_a_request_may_say_where_the_random_streams_stand() -> None:
    one, two = actor(index=0), actor(index=0)
    one.begin(0, NEW)
    two.begin(0, NEW)
    ahead, _ = play(one), play(two, length=1)
    mine, theirs = play(one, length=1), play(two, length=1, streams=ahead.streams)
    assert not np.array_equal(mine.streams[1], ahead.streams[1])
    assert np.array_equal(mine.streams[1], theirs.streams[1])


def test_a_broken_environment_gives_its_good_steps_and_the_reason() -> None:
    one = actor(broken_envs.Raises, random_steps=100)
    one.begin(0, NEW)
    chunk = one.play(Request(0, 1, 0, 5), T3D(3, [-1] * 2, [1] * 2, Config(hidden=(8,))).weights())
    assert chunk is not None
    assert chunk.length == 2
    assert chunk.played.all()
    assert "step 3: step() raised ZeroDivisionError" in str(chunk.broken)
