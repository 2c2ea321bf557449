"""Does an environment repeat an episode, given its seed and its actions? Resuming depends on it.

It is tried with random episodes, which two environments play in different order.
"""

import dataclasses
import time
from contextlib import closing
from typing import Literal, NamedTuple

import numpy as np

from t3d.base.errors import T3DError
from t3d.play.envs import EnvMaker, checksum
from t3d.play.vector import Vector, make_vector

_STEPS = 150  # of an episode, at most
_EPISODES = 8  # after the first, at most
_FEWEST = 6  # of them, if a busy machine takes up to four times as long


class Trial(NamedTuple):
    """Whether an environment repeats its episodes, as far as it was tried."""

    # "when new": only in a new environment, as an old one carries state over.
    repeats: Literal["always", "when new", "never", "unknown"]
    episodes: int = 0  # that were played twice; or the number of the first that differed
    why: str = ""  # why it is unknown

    def in_words(self) -> str:
        """What was tried."""
        count = f"{self.episodes} random episodes of up to {_STEPS} steps"
        return {
            "always": f"{count} were the same in two environments with different pasts",
            "when new": "a random episode was the same only in new environments",
            "never": "a random episode was not the same when it was played again",
            "unknown": f"whether the environment repeats its episodes is not known: {self.why}",
        }[self.repeats]


def try_to_repeat(maker: EnvMaker, seconds: float) -> Trial:
    """Play random episodes twice, for about this many seconds.

    The environments are made for this, where those of a run will be: here or in processes.
    """
    once = dataclasses.replace(maker.config, env_restarts=0, rate=0.0)
    maker = dataclasses.replace(maker, config=once)
    try:
        with (
            closing(make_vector(maker, range(1))) as one,
            closing(make_vector(maker, range(1))) as other,
        ):
            trial = _compare(one, other, seconds)
        if trial.repeats == "when new" and not _repeats_when_new(maker, trial.episodes, seconds):
            trial = trial._replace(repeats="never")
    except T3DError as error:  # training will meet it too, report it and save
        return Trial("unknown", why=str(error))
    return trial


def _compare(one: Vector, other: Vector, seconds: float) -> Trial:
    """Whether two environments play the same, at first and later; "when new" if only at first."""
    began, limit = time.perf_counter(), seconds / 4
    if not _agree(_episode(one, 0, limit), _episode(other, 0, limit)):
        return Trial("never", 1)
    if time.perf_counter() - began > seconds:
        return Trial("unknown", why="it is too slow")
    now = time.perf_counter()
    until, latest = now + seconds / 2, now + 2 * seconds
    played: dict[int, list[int]] = {}
    while len(played) < _EPISODES:
        now = time.perf_counter()
        if len(played) >= 2 and now > (latest if len(played) < _FEWEST else until):
            break
        number = 1 + len(played)
        played[number] = _episode(one, number, limit)
    for number in reversed(played):
        if not _agree(played[number], _episode(other, number, limit)):
            return Trial("when new", number)
    return Trial("always", len(played))


def _repeats_when_new(maker: EnvMaker, number: int, seconds: float) -> bool:
    """Whether two new environments play the same in an episode in which used ones do not."""
    always_new = dataclasses.replace(
        maker, config=dataclasses.replace(maker.config, remake_envs=True)
    )
    if maker.config.remake_envs:  # they were new already
        return False
    with closing(make_vector(always_new, range(1))) as new:
        return _agree(_episode(new, number, seconds), _episode(new, number, seconds))


def _episode(vector: Vector, number: int, seconds: float) -> list[int]:
    """A checksum after each step of a random episode, which its number determines."""
    random = np.random.default_rng(number)
    low, high = (bound.astype(np.float64) for bound in (vector.spaces.low, vector.spaces.high))
    checksums = [checksum(0, vector.reset({0: number})[0])]
    until = time.perf_counter() + seconds
    for _ in range(_STEPS):
        (answer,) = vector.step(random.uniform(low, high).astype(np.float32)[None])
        assert answer is not None  # a process that is lost is not restarted, but raises
        checksums.append(checksum(checksums[-1], *answer[:4]))
        if answer[2] or answer[3] or time.perf_counter() > until:
            break
    return checksums


def _agree(one: list[int], other: list[int]) -> bool:
    """Whether two episodes are the same, as far as both were played."""
    last = min(len(one), len(other)) - 1
    return one[last] == other[last]
