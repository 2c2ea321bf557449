"""Step 1: rows with large errors are drawn more often.

LAP, from Fujimoto, Meger and Precup, "An Equivalence between Loss Functions and Non-Uniform
Sampling in Experience Replay", 2020. The priority of a row is max(|TD error|, 1)^0.4, and rows are
drawn in proportion to it. With Huber's loss instead of the squared one, no weights are needed.
"""

from typing import TYPE_CHECKING

import numpy as np

from t3d.base.errors import BadInput
from t3d.base.numbers import Array
from t3d.learn.replay.sampling import Rows, Sampler, count_inside, fast

if TYPE_CHECKING:
    from t3d.learn.replay.memory import ReplayBuffer

ALPHA = 0.4  # the exponent of the paper
LIMIT = 1e30  # of errors: the sum of all priorities must stay finite


class Prioritized(Sampler):
    """Draws rows in proportion to their priorities; a new row gets the largest one so far.

    Priorities are the leaves of a binary tree, in which each other node is the sum of the two below
    it. To draw a row, or to change a priority, takes as many steps as the tree is deep.

              1              the sum of all
           2     3
          4 5   6 7          leaves: the priorities of rows 0, 1, 2, 3
    """

    wants_td_errors = True

    def __init__(self) -> None:
        self.largest = 1.0  # priority so far
        self._added = 0  # transitions that the memory had at the last draw
        self._live = 0  # rows that were live then
        self._stored = np.zeros(0, np.float32)  # priorities from a file, until the next draw
        self._tree, self._room = np.zeros(0), 0  # and how many rows it is for

    def draw(self, memory: "ReplayBuffer", count: int, stream: np.random.Generator) -> Rows:
        """Choose `count` rows of a memory, as int64."""
        if memory.added == 0:
            raise BadInput("the replay memory is empty; add transitions before sampling")
        if count < 1:
            raise BadInput(f"batch_size is {count}; expected at least 1")
        self._follow(memory)
        rows = np.empty(count, np.int64)
        fast(find_leaves)(self._tree, stream.random(count), rows)
        return rows

    def learned(self, rows: Rows, td_errors: Array) -> None:
        """Give rows the priorities of their errors. Of a row that stands twice, the last counts."""
        inside = fast(count_inside)(rows, min(self._added, self._room))
        if inside < len(rows):  # compiled code does not check its indices
            raise BadInput(f"row {rows[inside]} has no priority; learn from rows that were drawn")
        errors = np.fmin(np.fmax(td_errors, 1), LIMIT)  # nan becomes 1: the run ends by itself
        priorities = (errors**ALPHA).astype(np.float32)
        self.largest = max(self.largest, float(priorities.max()))
        fast(set_leaves)(self._tree, rows, priorities)

    def forget_largest(self) -> None:
        """Let the largest priority be that of the rows now, instead of that of all time."""
        self.largest = float(self._priorities().max(initial=1.0))

    def _follow(self, memory: "ReplayBuffer") -> None:
        """Prioritise the rows that were added since the last draw, and drop those that are lost."""
        leaves = 1 << (memory.room - 1).bit_length()
        if self._room != memory.room:
            if len(self._stored) != min(self._added, memory.room):
                what = f"the sampler has priorities of {len(self._stored)} rows of another memory"
                raise BadInput(f"{what}; make a new agent for this one")
            self._tree, self._room = np.zeros(2 * leaves), memory.room
            fast(set_leaves)(self._tree, np.arange(len(self._stored)), self._stored)
        if memory.added < self._added:
            raise BadInput("the sampler has the priorities of another memory; make a new agent")
        if memory.added > self._added:
            first, added, room = memory.added - memory.size, memory.added, memory.room
            lost = np.arange(max(self._added - self._live, added - room), first)
            fresh = np.arange(max(self._added, first), added)
            for numbers, priority in ((lost, 0.0), (fresh, self.largest)):
                values = np.full(len(numbers), priority, np.float32)
                fast(set_leaves)(self._tree, numbers % room, values)
            self._added, self._live = added, memory.size

    def _priorities(self) -> Array:
        """The priority of each stored row, from row 0 on."""
        if not self._room:
            return self._stored
        leaves = self._tree[len(self._tree) // 2 :]
        return leaves[: min(self._added, self._room)].astype(np.float32)

    def state_dict(self) -> dict[str, Array]:
        """The priorities, the largest of all time, and the rows that have one."""
        counts = np.array([self._added, self._live])
        priorities = self._priorities()
        return {"priority": priorities, "largest": np.array(self.largest), "counts": counts}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Restore what `state_dict` returned, from a file that is not trusted."""
        priority, largest, counts = (arrays[name] for name in ("priority", "largest", "counts"))
        kinds = [array.dtype.name for array in (priority, largest, counts)]
        shapes = priority.ndim, largest.shape, counts.shape
        if kinds != ["float32", "float64", "int64"] or shapes != (1, (), (2,)):
            raise BadInput("the priorities of the replay memory are of another type or shape")
        added, live = counts.tolist()
        limit = LIMIT**ALPHA * 1.001
        if not ((priority >= 0) & (priority <= limit)).all() or not 1 <= largest <= limit:
            raise BadInput("the priorities of the replay memory are not from 1 to their limit")
        if not 0 <= live <= len(priority) <= added < 2**62:
            counted = f"{added} added, {len(priority)} stored, {live} live"
            raise BadInput(f"the priorities of the replay memory do not fit: {counted}")
        self._stored, self.largest = priority.copy(), float(largest)
        self._added, self._live, self._room = added, live, 0


def find_leaves(tree: Array, shares: Array, rows: Rows) -> None:
    """For each share of the sum of all leaves, find the leaf that this much of the sum leads to."""
    leaves = len(tree) // 2
    for i in range(len(shares)):
        rest, node = shares[i] * tree[1], 1
        while node < leaves:
            node *= 2
            # Rounding must not lead to a leaf of 0.
            if rest >= tree[node] and tree[node + 1] > 0:
                rest -= tree[node]
                node += 1
        rows[i] = node - leaves


def set_leaves(tree: Array, rows: Rows, priorities: Array) -> None:
    """Set some leaves, and all sums above them."""
    leaves = len(tree) // 2
    for i in range(len(rows)):
        node = leaves + rows[i]
        tree[node] = priorities[i]
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]
