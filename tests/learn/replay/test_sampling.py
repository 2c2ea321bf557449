"""Which rows are drawn, and what a batch holds: what a naive store would give."""

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.memories import chain, filled_memory, frames, numbered, numbered_memory
from t3d import T3D, Config, FusedT3D, ReplayBuffer, T3DError
from t3d.learn.replay.sampling import Rows, Sampler, Transitions, Uniform, fast, walk

Array = NDArray[Any]
FRAME, VECTOR = 3, 2  # numbers in a frame, and in the vector


def sampled(buffer: ReplayBuffer, count: int, seed: int = 0) -> Transitions:
    return buffer.sample(count, np.random.default_rng(seed))


def test_a_sample_has_complete_transitions_and_only_stored_ones() -> None:
    numbers = [3, 4, 5, 6, 7]
    batch = sampled(numbered_memory(100, numbers), 500)
    drawn = [round(float(reward) / 10) for reward in batch.reward]
    assert set(drawn) == set(numbers)
    for name, expected in numbered(drawn).items():
        np.testing.assert_array_equal(getattr(batch, name), expected)


def test_a_sample_of_a_wrapped_memory_has_no_overwritten_transition() -> None:
    batch = sampled(numbered_memory(4, list(range(10))), 200)
    assert set(batch.reward.tolist()) == {60, 70, 80, 90}


def test_a_sample_does_not_change_when_the_memory_does() -> None:
    buffer = numbered_memory(2, [1, 2])
    batch = sampled(buffer, 10)
    before = batch.state.clone()
    buffer.add(**numbered([3, 4]))
    assert torch.equal(batch.state, before)


@pytest.mark.parametrize("stored", [20, 33])
def test_every_stored_transition_is_equally_likely(stored: int) -> None:
    rows, draws = 20, 100_000
    batch = sampled(numbered_memory(rows, list(range(stored))), draws)
    _, counts = np.unique(batch.reward.numpy(), return_counts=True)
    assert len(counts) == rows
    chi_square = float(((counts - draws / rows) ** 2).sum() / (draws / rows))
    # Chi-square with 19 degrees of freedom: one fair draw in a thousand is above 43.8, and
    # one in a thousand below 5.4, as a memory that deals its rows out in turn would be.
    assert 5.4 < chi_square < 43.8


def test_the_same_generator_state_gives_the_same_sample() -> None:
    buffer = numbered_memory(50, list(range(50)))
    first, again, other = (sampled(buffer, 30, seed).reward for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_empty_memory_cannot_be_sampled() -> None:
    with pytest.raises(T3DError, match="empty"):
        sampled(numbered_memory(3), 1)


def test_a_batch_of_no_rows_is_not_drawn() -> None:
    with pytest.raises(T3DError, match="batch_size is 0; expected at least 1"):
        sampled(numbered_memory(3, [1]), 0)


class Newest(Sampler):
    """The rows that were added last."""

    def draw(self, memory: ReplayBuffer, count: int, stream: np.random.Generator) -> Rows:
        return memory.newest(count)


@pytest.mark.parametrize("engine", [T3D, FusedT3D])
def test_an_agent_learns_from_the_rows_that_its_sampler_draws(engine: type[T3D]) -> None:
    config = Config(hidden=(8,), batch_size=20, n_step=3, discount=0.9)
    agent, memory = engine(3, [-1], [1], config), filled_memory(100)
    assert type(agent.sampler) is Uniform
    agent.sampler = Newest()
    agent.train(memory, 1)
    last = agent.last_batch(memory)
    assert last is not None
    expected = memory.batch(np.arange(80, 100), n_step=3, discount=0.9)
    assert all(torch.equal(one, other) for one, other in zip(last[0], expected))


class Wrong(Sampler):
    def __init__(self, row: int) -> None:
        self.row = row

    def draw(self, memory: ReplayBuffer, count: int, stream: np.random.Generator) -> Rows:
        return np.full(count, self.row)


@pytest.mark.parametrize("row", [-1, 50, 2**40])
@pytest.mark.parametrize("engine", [T3D, FusedT3D])
def test_rows_that_are_not_stored_are_refused(engine: type[T3D], row: int) -> None:
    """Compiled code would read whatever is there."""
    agent, memory = (
        engine(2, [-1] * 3, [1] * 3, Config(hidden=(8,))),
        numbered_memory(100, [1] * 50),
    )
    agent.sampler = Wrong(row)
    with pytest.raises(T3DError, match=f"row {row} is not stored; expected rows from 0 to 49"):
        agent.train(memory, 1)
    assert agent.updates == 0


ODD_DRAWS: list[tuple[Any, str]] = [
    ([0, 1, 2], r"sampler Fixed drew int64 of shape \(3,\); expected 4 whole numbers"),
    ([[0, 1], [2, 3]], r"sampler Fixed drew int64 of shape \(2, 2\); expected 4 whole numbers"),
    ([0.5, 1.5, 2.5, 3.5], r"sampler Fixed drew float64 of shape \(4,\); expected 4 whole"),
]


@pytest.mark.parametrize("engine", [T3D, FusedT3D])
@pytest.mark.parametrize(("rows", "message"), ODD_DRAWS)
def test_a_draw_of_other_than_as_many_whole_numbers_is_refused(
    engine: type[T3D], rows: Any, message: str
) -> None:
    class Fixed(Sampler):
        def draw(self, memory: ReplayBuffer, count: int, stream: np.random.Generator) -> Rows:
            return np.array(rows)

    memory = filled_memory(10, 3, [-1.0], [1.0])
    agent = engine(3, [-1.0], [1.0], Config(hidden=(8,), batch_size=4))
    agent.sampler = Fixed()
    with pytest.raises(T3DError, match=message):
        agent.train(memory, 1)


def test_a_uniform_sampler_has_no_state() -> None:
    sampler = Uniform()
    assert sampler.state_dict() == {}
    sampler.load_state_dict({})
    assert not sampler.wants_td_errors
    with pytest.raises(T3DError, match="the state of a sampler has priority; Uniform has none"):
        sampler.load_state_dict({"priority": np.ones(3)})


@pytest.mark.parametrize("stack", [1, 3])
def test_a_uniform_draw_is_a_share_of_the_stream(stack: int) -> None:
    """The bits of a run depend on it: one number per row, the oldest transition first."""
    memory = ReplayBuffer(10, frames(1, stack), 1)
    nothing = np.zeros(stack, np.uint8)
    for i in range(23):
        memory.add(nothing, nothing, [0], i, False)
    drawn = Uniform().draw(memory, 50, np.random.default_rng(3))
    shares = (np.random.default_rng(3).random(50) * 10).astype(np.int64)
    assert drawn.dtype == np.int64
    rows = shares if stack == 1 else memory.live_rows()[shares]
    assert drawn.tolist() == rows.tolist()


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
        frame = self.random.integers(0, 2, FRAME)
        vector = self.random.integers(0, 2, VECTOR).astype(np.float32)
        if self.images:
            return frame.astype(np.uint8), vector.view(np.uint8)
        return frame.astype(np.float32), vector

    def reset(self) -> None:
        frame, self.vector = self.look()
        self.frames = [frame] * self.stack
        self.last: Step | None = None

    def state(self) -> Array:
        return np.concatenate([*self.frames, self.vector])

    def step(self, done: bool, truncated: bool) -> Step:
        before = self.state()
        frame, self.vector = self.look()
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
    batch = memory.batch(memory.live_rows(), n_step, discount=0.9)
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
    stack = stack if images else 1
    random = np.random.default_rng(seed)
    players = [Player(stack, images, random) for _ in range(num_envs)]

    def make() -> ReplayBuffer:
        layout = frames(FRAME, stack, VECTOR) if images else FRAME + VECTOR
        return ReplayBuffer(capacity, layout, 2, num_envs=num_envs)

    memory, steps = make(), list[Step]()
    copy = memory
    for number, round_ in enumerate(rounds):
        if number == saved_at:  # and continues in both
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
        # The episode continues: as many steps as there are.
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
    fields = [batch.reward, batch.next_state, batch.done, batch.steps]
    assert [field.item() for field in fields] == [reward, after, done, steps]
    assert batch.state.item() == row


chains = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(leaps=chains, n_step=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_a_walk_is_a_naive_walk_compiled_or_not(leaps: list[int], n_step: int, seed: int) -> None:
    random, room = np.random.default_rng(seed), len(leaps)
    # A leap of 0 leads to an end; otherwise so many rows on, around the end of the memory.
    following = [(row + leap) % room if leap else room + row for row, leap in enumerate(leaps)]
    next_at = np.array(following, np.int32)
    reward = random.normal(size=room).astype(np.float32)
    discounts = (0.9 ** np.arange(n_step)).astype(np.float32)
    rows = random.integers(0, room, 10)
    last, total, steps = (np.zeros((2, 10), kind) for kind in (np.int64, np.float32, np.float32))
    for i, function in enumerate((walk, fast(walk))):
        function(rows, next_at, reward, discounts, last[i], total[i], steps[i])
    for i, row in enumerate(rows.tolist()):
        path = [row]
        while len(path) < n_step and following[path[-1]] < room:
            path.append(following[path[-1]])
        expected = reward[row]
        for discount, later in zip(discounts[1:], path[1:]):
            expected = np.float32(expected + np.float32(discount * reward[later]))
        assert last[:, i].tolist() == [path[-1]] * 2
        assert steps[:, i].tolist() == [len(path)] * 2
        assert total[:, i].tobytes() == np.array([expected] * 2).tobytes()


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # an import fails, as if it were not installed
import numpy as np
from t3d import ReplayBuffer
memory = ReplayBuffer(10, 1, 1)
for state in range(4):
    memory.add([state], [state + 1], [0], state, False)
print(memory.batch(np.arange(4), n_step=3, discount=0.5).reward.tolist())
"""


def test_without_numba_a_batch_is_the_same() -> None:
    command = [sys.executable, "-c", WITHOUT_NUMBA]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # 0 + 1/2 + 2/4, 1 + 2/2 + 3/4, 2 + 3/2, 3
    assert out == "[1.0, 2.75, 3.5, 3.0]\n"
