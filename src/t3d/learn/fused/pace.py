"""How many threads an update is worth."""

import itertools
import math


class TeamSize:
    """Tunes the size of a team: tries all sizes at the start, and again from time to time.

    The best one depends on the networks, the machine, and what else the machine is doing.
    Since any team gives the same bits, the answer may come from a clock.
    """

    # Seconds of updates between trials: after a change, and when nothing changes any more.
    SHORT_HOLD, LONG_HOLD = 2.0, 20.0
    TOLERANCE = 1.15  # how much slower a smaller team may be before a larger one replaces it

    def __init__(self, sizes: list[int], policy_freq: int) -> None:
        """Choose among teams of these sizes, the smallest first."""
        self.current = self._choice = sizes[0]
        self._sizes = sizes
        # A trial is a multiple of policy_freq updates, so that all trials do equal work.
        self._length = policy_freq * math.ceil(4 / policy_freq) if policy_freq <= 32 else 4
        self._trials: list[int] = []
        self._best: dict[int, float] = {}
        self._updates = 0
        self._seconds = 0.0
        self._hold = self.SHORT_HOLD
        if len(sizes) > 1:
            self._start_trials()

    @property
    def settled(self) -> bool:
        """Whether no trials are running."""
        return not self._trials

    def record(self, seconds: float) -> None:
        """Take note of how long an update by the current team took."""
        self._updates += 1
        self._seconds += seconds
        if len(self._sizes) == 1 or self._updates < self._length:
            return
        if self._trials:
            self._end_trial()
        elif self._seconds < self._hold:
            return
        else:
            self._start_trials()
        self._updates, self._seconds = 0, 0.0

    def _start_trials(self) -> None:
        self._best = {}
        self._trials = 2 * self._sizes  # each twice: the first may include waking up
        self.current = self._trials[0]

    def _end_trial(self) -> None:
        size = self._trials.pop(0)
        self._best[size] = min(self._seconds, self._best.get(size, math.inf))
        if self._trials:
            self.current = self._trials[0]
            return
        limit = self.TOLERANCE * min(self._best.values())
        before = self._choice
        self._choice = next(size for size in self._sizes if self._best[size] <= limit)
        self.current = self._choice
        # Something else may have had the cores just then: do not stay wrong for long.
        same = self.current == before
        self._hold = min(2 * self._hold, self.LONG_HOLD) if same else self.SHORT_HOLD


def doubling(largest: int) -> list[int]:
    """1, 2, 4 ... up to a number, and that number itself."""
    return [*itertools.takewhile(lambda size: size < largest, (2**i for i in range(32))), largest]
