"""Stacks of frames: each frame is stored once, and states come back as they were."""

import numpy as np
import pytest

from helpers.memories import frames
from t3d import ReplayBuffer, T3DError


def stack(*frames: int) -> np.ndarray:
    return np.array(frames, np.uint8)


def stacks(*states: list[int]) -> np.ndarray:
    return np.array(states, np.uint8)


def test_what_is_no_stack_of_frames_is_refused() -> None:
    memory = ReplayBuffer(10, frames(2, stack=3), 1)
    a, b, c = np.eye(3, dtype=np.uint8)[:, :2]
    good = np.concatenate([a, a, a]), np.concatenate([a, a, b])
    with pytest.raises(T3DError, match="state is not a stack of 3 frames; expected the first"):
        memory.add(np.concatenate([a, b, c]), np.concatenate([b, c, c]), [0], 0, False)
    with pytest.raises(T3DError, match="state is not a stack of 3 frames"):
        memory.add(good[0], np.concatenate([b, a, b]), [0], 0, False)
    assert len(memory) == 0
    memory.add(*good, [0], 0, False)
    assert memory.batch(np.array([0])).next_state.flatten().tolist() == good[1].tolist()


def test_a_stack_that_does_not_continue_must_begin() -> None:
    memory = ReplayBuffer(100, frames(1, stack=2), 1)
    memory.add(stack(1, 1), stack(1, 2), [0], 0, False)
    with pytest.raises(T3DError, match="state is not a stack of 2 frames"):
        memory.add(stack(7, 9), stack(9, 10), [0], 0, False)
    memory.add(stack(2, 2), stack(2, 3), [0], 0, False)  # begins with what the last ended with
    assert memory.batch(np.array([0, 1])).state.tolist() == [[1, 1], [2, 2]]
    assert memory.batch(np.array([0]), n_step=2).steps.item() == 1


def test_consecutive_steps_of_stacks_may_come_at_once() -> None:
    memory = ReplayBuffer(100, frames(1, stack=2), 1)
    memory.add(stacks([1, 1], [1, 2]), stacks([1, 2], [2, 3]), [[0], [0]], [0, 0], [False, False])
    assert memory.batch(np.array([1])).state.tolist() == [[1, 2]]
    assert memory.facts()["ends"] == 1


def test_after_the_end_of_an_episode_a_stack_must_begin_also_within_a_batch() -> None:
    memory = ReplayBuffer(100, frames(1, stack=2), 1)
    actions, rewards, done = [[0], [0]], [0, 0], [True, False]
    with pytest.raises(T3DError, match="state is not a stack of 2 frames"):
        memory.add(stacks([1, 1], [1, 2]), stacks([1, 2], [2, 3]), actions, rewards, done)
    assert len(memory) == 0
    memory.add(stacks([1, 1], [2, 2]), stacks([1, 2], [2, 3]), actions, rewards, done)
    assert memory.batch(np.arange(2)).state.tolist() == [[1, 1], [2, 2]]


def test_several_steps_of_several_environments_may_come_at_once() -> None:
    memory = ReplayBuffer(100, frames(1, stack=2), 1, num_envs=2)
    states = stacks([1, 1], [7, 7], [1, 2], [7, 8])
    nexts = stacks([1, 2], [7, 8], [2, 3], [8, 9])
    memory.add(states, nexts, np.zeros((4, 1)), np.zeros(4), np.zeros(4), envs=[0, 1, 0, 1])
    batch = memory.batch(np.arange(4))
    assert batch.state.tolist() == states.tolist()
    assert batch.next_state.tolist() == nexts.tolist()
    assert memory.facts()["ends"] == 2


def test_environments_that_do_not_take_turns_cannot_be_stacked() -> None:
    memory = ReplayBuffer(10, frames(2, stack=2), 1, num_envs=2)
    same = np.zeros(4, np.uint8)
    for _ in range(2):
        memory.add(same[None], same[None], [[0]], [0], [False], envs=[0])
    memory.add(same[None], same[None], [[0]], [0], [False], envs=[1])
    memory.add(same[None], same[None], [[0]], [0], [False], envs=[1])
    with pytest.raises(T3DError, match="all environments must add a row in each round"):
        memory.add(same[None], same[None], [[0]], [0], [False], envs=[0])


def test_environments_may_be_max_row_gap_rows_apart() -> None:
    memory = ReplayBuffer(10, frames(2, stack=2), 1, num_envs=2, max_row_gap=4)
    same = np.zeros((1, 4), np.uint8)
    for env in (0, 1, 1, 1, 0):
        memory.add(same, same, [[0]], [0], [False], envs=[env])
    assert memory.batch(np.array([0]), n_step=2).steps.item() == 2


def test_no_rows_give_no_states() -> None:
    for layout in (frames(2, stack=2), frames(2, stack=2, vector=1)):
        memory = ReplayBuffer(10, layout, 1)
        assert memory.batch(np.zeros(0, np.int64)).state.shape == (0, layout.size)
