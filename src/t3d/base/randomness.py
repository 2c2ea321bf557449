"""Named random streams: every purpose draws from its own, so none disturbs another.

A stream is fixed by (run seed, purpose, indices). Nothing in T3D touches the global
generators of Python, NumPy or PyTorch, except t3d.notes, which draws its seed from NumPy's.
"""

import threading
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Purpose = Literal[
    "weights",
    "sampling",
    "smoothing",
    "augmentation",
    "random-actions",
    "exploration",
    "reset",
    "evaluation",
    "test",
    "bootstrap",
    "permutation",
    "search",
]


def _sequence(seed: int, purpose: Purpose, indices: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *indices))


def generator(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """The random stream of one purpose."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, indices)))


def derived_seed(seed: int, purpose: Purpose, *indices: int) -> int:
    """A 32-bit seed for something with a generator of its own, such as an episode's reset."""
    return int(_sequence(seed, purpose, indices).generate_state(1)[0])


# Held while PyTorch's global generator, which all threads share, is another than theirs.
torch_random = threading.RLock()

_WORD = 0xFFFFFFFFFFFFFFFF


def generator_state(stream: np.random.Generator) -> NDArray[np.uint64]:
    """The state of a stream as six 64-bit words: a plain array, like all saved state."""
    state = stream.bit_generator.state
    position, increment = state["state"]["state"], state["state"]["inc"]
    words = [position >> 64, position & _WORD, increment >> 64, increment & _WORD]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def set_generator_state(stream: np.random.Generator, words: NDArray[np.uint64]) -> None:
    """Set a stream to a state from `generator_state`."""
    high, low, increment_high, increment_low, has_uint32, uinteger = (int(w) for w in words)
    stream.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": increment_high << 64 | increment_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
