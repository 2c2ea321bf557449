"""Every observation is stored once, and what is drawn is what a naive store would give."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from t3d import ReplayBuffer, T3DError

Array = NDArray[Any]
FRAME, VECTOR = 3, 2  # numbers in a frame, and in what stands beside the stack


@dataclasses.dataclass
class Step:
    """A transition in a store that knows nothing of the next one's state."""

    state: Array
    next_state: Array
    action: Array
    reward: float
    done: bool
    follows: list["Step"] = dataclasses.field(default_factory=list)  # the step after this, if any


class Player:
    """An environment whose observations repeat themselves often, to be mixed up if they can be."""

    def __init__(self, stack: int, images: bool, random: np.random.Generator) -> None:
        self.stack, self.images, self.random = stack, images, random
        self.reset()

    def look(self) -> tuple[Array, Array]:
        kind = np.uint8 if self.images else np.float32
        frame = self.random.integers(0, 2, FRAME).astype(kind)
        return frame, self.random.integers(0, 2, VECTOR).astype(kind)

    def reset(self) -> None:
        frame, self.beside = self.look()
        self.frames = [frame] * self.stack
        self.last: Step | None = None

    def state(self) -> Array:
        return np.concatenate([*self.frames, self.beside])

    def step(self, done: bool, truncated: bool) -> Step:
        before = self.state()
        frame, self.beside = self.look()
        self.frames = [*self.frames[1:], frame]
        action = self.random.normal(size=2).astype(np.float32)
        step = Step(before, self.state(), action, float(np.float32(self.random.normal())), done)
        if self.last:
            self.last.follows.append(step)
        self.last = step
        if done or truncated:
            self.reset()
        return step


def naive(step: Step, n_step: int, discount: float) -> tuple[Any, ...]:
    last, reward, count = step, np.float32(step.reward), 1
    while count < n_step and last.follows:
        last = last.follows[0]
        reward += np.float32(discount**count) * np.float32(last.reward)
        count += 1
    return step.state, last.next_state, step.action, reward, last.done, count


def agree(memory: ReplayBuffer, steps: list[Step], n_step: int) -> None:
    live = steps[-memory.capacity :]
    assert len(memory) == len(live)
    if not live:
        return
    batch = memory.batch(memory.newest(len(live)), n_step, discount=0.9)
    expected = zip(*(naive(step, n_step, 0.9) for step in live))
    for name, field, values in zip(batch._fields, batch, expected):
        np.testing.assert_array_equal(field.numpy(), np.array(values), err_msg=name)


outcomes = st.sampled_from(["on", "on", "on", "terminated", "truncated", "lost"])


@settings(max_examples=300, deadline=None)
@given(
    capacity=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 4),
    images=st.booleans(),
    rounds=st.lists(st.lists(outcomes, min_size=3, max_size=3), max_size=25),
    saved_at=st.integers(0, 25),
    seed=st.integers(0, 2**16),
)
def test_it_gives_what_a_naive_store_would(
    capacity: int,
    num_envs: int,
    stack: int,
    n_step: int,
    images: bool,
    rounds: list[list[str]],
    saved_at: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    players = [Player(stack, images, random) for _ in range(num_envs)]

    def make() -> ReplayBuffer:
        size, kind = stack * FRAME + VECTOR, np.uint8 if images else np.float32
        return ReplayBuffer(
            capacity, size, 2, kind, num_envs=num_envs, frame_stack=stack, frame_size=FRAME
        )

    memory, steps = make(), list[Step]()
    copy = memory
    for number, round_ in enumerate(rounds):
        if number == saved_at:  # and goes on here and there
            copy = make()
            copy.load_state_dict(
                {name: array.copy() for name, array in memory.state_dict().items()}
            )
        played, envs, truncated = [], [], []
        for env, (player, outcome) in enumerate(zip(players, round_)):
            if outcome == "lost":
                player.reset()
                memory.end(env)
                copy.end(env)
                continue
            played.append(player.step(outcome == "terminated", outcome == "truncated"))
            envs.append(env)
            truncated.append(outcome == "truncated")
        steps += played
        if played:
            fields = ("state", "next_state", "action", "reward", "done")
            columns = {name: np.array([getattr(step, name) for step in played]) for name in fields}
            for store in {memory, copy}:
                store.add(**columns, truncated=np.array(truncated), envs=envs)
        agree(memory, steps, n_step)
    one, other = memory.state_dict(), copy.state_dict()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def chain(memory: ReplayBuffer, states: list[int], ends: str = "") -> None:
    """Steps 0 -> 1 -> 2 ... with reward = where they lead; `ends` says how it ends."""
    for state, after in itertools.pairwise(states):
        last = after == states[-1]
        done, truncated = last and ends == "terminated", last and ends == "truncated"
        memory.add([state], [after], [0], after, done, truncated)


@pytest.mark.parametrize(
    ("ends", "row", "reward", "after", "done", "steps"),
    [
        # Three steps of discount 1/2 from the start: 1 + 2/2 + 3/4, and on from state 3.
        ("truncated", 0, 2.75, 3, 0, 3),
        ("terminated", 0, 2.75, 3, 0, 3),
        # 2 + 3/2 + 4/4 comes just to the end of the episode.
        ("truncated", 1, 4.5, 4, 0, 3),
        ("terminated", 1, 4.5, 4, 1, 3),
        # From the third state on, fewer steps are left: 3 + 4/2, and 4.
        ("truncated", 2, 5, 4, 0, 2),
        ("terminated", 2, 5, 4, 1, 2),
        ("truncated", 3, 4, 4, 0, 1),
        ("terminated", 3, 4, 4, 1, 1),
        # The episode still goes on: as many as there are.
        ("", 3, 4, 4, 0, 1),
        ("", 2, 5, 4, 0, 2),
    ],
)
def test_n_steps_by_hand(
    ends: str, row: int, reward: float, after: int, done: int, steps: int
) -> None:
    memory = ReplayBuffer(100, 1, 1)
    chain(memory, [0, 1, 2, 3, 4], ends)
    if ends:
        chain(memory, [4, 50, 60])  # begins where the other ended: not the same episode for that
    batch = memory.batch(np.array([row]), n_step=3, discount=0.5)
    found = [batch.reward, batch.next_state, batch.done, batch.steps]
    assert [field.item() for field in found] == [reward, after, done, steps]
    assert batch.state.item() == row


def test_an_observation_is_stored_once() -> None:
    memory = ReplayBuffer(1000, 1, 1)
    for _ in range(10):
        chain(memory, list(range(51)), "truncated")
    assert len(memory) == 500
    assert memory.facts()["ends"] == 10
    chain(memory, [7, 8])
    assert memory.facts()["ends"] == 11
    # A memory that has gone round many times needs no more places than its episodes have ends.
    for _ in range(100):
        chain(memory, list(range(51)), "truncated")
    assert memory.facts()["ends"] <= 22


def test_without_being_told_of_a_cut_it_sees_that_the_state_is_another() -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    chain(memory, [5, 6])
    batch = memory.batch(np.arange(3), n_step=3)
    assert batch.next_state.flatten().tolist() == [2, 2, 6]


def test_what_is_no_stack_of_frames_is_refused() -> None:
    memory = ReplayBuffer(10, 6, 1, np.uint8, frame_stack=3)
    a, b, c = np.eye(3, dtype=np.uint8)[:, :2].repeat(1, axis=0)
    good = np.concatenate([a, a, a]), np.concatenate([a, a, b])
    with pytest.raises(T3DError, match="state is not a stack of 3 frames; expected the first"):
        memory.add(np.concatenate([a, b, c]), np.concatenate([b, c, c]), [0], 0, False)
    with pytest.raises(T3DError, match="state is not a stack of 3 frames"):
        memory.add(good[0], np.concatenate([b, a, b]), [0], 0, False)
    assert len(memory) == 0
    memory.add(*good, [0], 0, False)
    assert memory.batch(np.array([0])).next_state.flatten().tolist() == good[1].tolist()


def test_a_stack_that_does_not_continue_must_begin() -> None:
    memory = ReplayBuffer(100, 2, 1, frame_stack=2)
    memory.add([1, 1], [1, 2], [0], 0, False)
    with pytest.raises(T3DError, match="state is not a stack of 2 frames"):
        memory.add([7, 9], [9, 10], [0], 0, False)
    memory.add([2, 2], [2, 3], [0], 0, False)  # begins with what the last ended with
    assert memory.batch(np.array([0, 1])).state.tolist() == [[1, 1], [2, 2]]
    assert memory.batch(np.array([0]), n_step=2).steps.item() == 1


def test_consecutive_steps_of_stacks_may_come_at_once() -> None:
    memory = ReplayBuffer(100, 2, 1, frame_stack=2)
    memory.add([[1, 1], [1, 2]], [[1, 2], [2, 3]], [[0], [0]], [0, 0], [False, False])
    assert memory.batch(np.array([1])).state.tolist() == [[1, 2]]
    assert memory.facts()["ends"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"changed": []},
        {"changed": {"rows": [float("inf")], "ends": []}},
        {"changed": {"other": [1]}},
        {"last": [0, 0]},
        {"last": [5]},
        {"last": [0]},
        {"last": 3},
        {"added": 2**64},
        {"added": True},
        {"added": -1},
        {"ends": 1.0},
        {"ends": 100},
        {"capacity": 7},
    ],
)
def test_facts_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    with pytest.raises(T3DError, match="the stored memory"):
        ReplayBuffer(10, 1, 1).restore(memory.facts() | change, memory.read)


def test_environments_that_do_not_exist_are_refused() -> None:
    memory = ReplayBuffer(10, 1, 1, num_envs=2)
    rows = [[0], [1]], [[1], [2]], [[0], [0]], [0, 0], [False, False]
    for envs in ([0, 2], [-1, 0], [0]):
        with pytest.raises(T3DError, match="expected 2 numbers below num_envs, 2"):
            memory.add(*rows, envs=envs)
    with pytest.raises(T3DError, match=r"truncated has shape \(3,\); expected \(2,\)"):
        memory.add(*rows, truncated=[False] * 3)
    assert len(memory) == 0


def test_room_that_nobody_has_is_refused() -> None:
    with pytest.raises(T3DError, match=r"no room for a memory of .*; lower --capacity"):
        ReplayBuffer(10**9, 10**9, 1, np.uint8)


def test_environments_that_do_not_take_turns_cannot_be_stacked() -> None:
    memory = ReplayBuffer(10, 4, 1, np.uint8, num_envs=2, frame_stack=2)
    same = np.zeros(4, np.uint8)
    for _ in range(2):
        memory.add(same[None], same[None], [[0]], [0], [False], envs=[0])
    memory.add(same[None], same[None], [[0]], [0], [False], envs=[1])
    memory.add(same[None], same[None], [[0]], [0], [False], envs=[1])
    with pytest.raises(T3DError, match="all environments must add a row in each round"):
        memory.add(same[None], same[None], [[0]], [0], [False], envs=[0])


def test_a_memory_in_a_file_holds_the_same(tmp_path: Path) -> None:
    with (tmp_path / "memory").open("w+b") as file:
        here, there = ReplayBuffer(20, 1, 1), ReplayBuffer(20, 1, 1, file=file)
    for memory in (here, there):
        for start in range(5):
            chain(memory, list(range(start, start + 7)), "truncated")
    one, two = (memory.batch(np.arange(20), n_step=3) for memory in (here, there))
    assert all(np.array_equal(a, b) for a, b in zip(one, two))
    assert (tmp_path / "memory").stat().st_size == 2 * 20 * 4


def test_blocks_say_when_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t3d.learn.replay.memory._BLOCK", 10 * 24)
    memory = ReplayBuffer(40, 1, 1)
    assert memory.row_bytes == 20
    before: dict[tuple[str, int], tuple[int, dict[str, Array]]] = {}
    random = np.random.default_rng(0)
    for _ in range(30):
        chain(memory, list(range(int(random.integers(2, 12)))), "truncated")
        for block in memory.blocks():
            arrays = {name: array.copy() for name, array in memory.read(block).items()}
            changed, old = before.get((block.table, block.low), (-1, {}))
            if changed == block.changed and len(arrays) == len(old):
                assert all(
                    np.array_equal(array, old[name])
                    for name, array in arrays.items()
                    if len(array) == len(old[name])
                )
            before[block.table, block.low] = block.changed, arrays


@pytest.mark.parametrize(("name", "value"), [("next_at", 1000), ("next_at", -1)])
def test_a_stored_memory_that_points_outside_is_refused(name: str, value: int) -> None:
    memory = ReplayBuffer(10, 1, 1)
    chain(memory, [0, 1, 2])
    stored = {key: array.copy() for key, array in memory.state_dict().items()}
    stored[name][0] = value
    with pytest.raises(T3DError, match=f"stored {name} points outside of the memory"):
        ReplayBuffer(10, 1, 1).load_state_dict(stored)
