from typing import Any

import numpy as np
import pytest

from t3d.play.collecting import Episode, Event, Transition
from t3d.remote.messages import Chunk, Recorder

OTHERS: dict[str, Any] = {
    "generation": 2,
    "sequence": 7,
    "episode": np.array([1, 0]),
    "streams": (np.zeros(6), np.zeros(6)),
    "seconds": 0.5,
    "broken": None,
}


def rows(first: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """A state of two environments, with two numbers each."""
    return np.array([[first, 0], [first + 100, 1]], np.float32)


@pytest.fixture
def chunk() -> Chunk:
    """Two environments: the first ends an episode at step 0, the second does not play step 1."""
    recorder = Recorder(3, rows(0), dimensions=1)
    action, reward, no = np.array([[0.5], [0.25]]), np.array([1.0, 2.0]), np.zeros(2, bool)
    ends = np.array([True, False])
    episode, event = Episode(0, 0, 5, 3.5), Event("restart", {}, "")
    after = rows(1)
    after[0] = -1  # the first state of the next episode
    first = Transition(rows(0), rows(1), action, reward, no, ends)
    recorder.add(first, after, [episode], [])
    second = Transition(after, rows(2), 2 * action, 2 * reward, no, no).only(np.array([0]))
    recorder.add(second, rows(2), [], [event])
    return recorder.chunk(**OTHERS)


def test_a_chunk_holds_the_steps_that_were_recorded(chunk: Chunk) -> None:
    assert chunk.length == 2  # of the three that there was room for
    assert (chunk.generation, chunk.sequence) == (2, 7)
    assert [len(step) for step in chunk.episodes] == [1, 0]
    assert [len(step) for step in chunk.events] == [0, 1]
    step = chunk.transition(0, np.array([4, 5]))
    assert step.envs is not None
    assert step.envs.tolist() == [4, 5]
    assert np.array_equal(step.state, rows(0))
    assert step.action.tolist() == [[0.5], [0.25]]
    assert step.reward.tolist() == [1, 2]
    assert step.done.tolist() == [False, False]
    assert step.truncated.tolist() == [True, False]


def test_a_transition_ends_in_the_last_state_of_its_episode_not_in_the_next_ones_first(
    chunk: Chunk,
) -> None:
    assert np.array_equal(chunk.transition(0, np.arange(2)).next_state, rows(1))
    assert chunk.state[1, 0].tolist() == [-1, -1]


def test_an_environment_that_did_not_play_has_no_row(chunk: Chunk) -> None:
    step = chunk.transition(1, np.array([4, 5]))
    assert step.envs is not None
    assert step.envs.tolist() == [4]
    assert step.state.tolist() == [[-1, -1]]
    assert step.next_state.tolist() == [[2, 0]]
    assert step.reward.tolist() == [2]
