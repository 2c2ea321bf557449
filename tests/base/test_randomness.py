import itertools
from typing import get_args

import numpy as np

from t3d.base.randomness import (
    Purpose,
    derived_seed,
    generator,
    generator_state,
    set_generator_state,
)


def test_every_seed_and_purpose_has_a_stream_of_its_own() -> None:
    keys = itertools.product((0, 1, 2**32 - 1), get_args(Purpose))
    draws = [tuple(generator(seed, purpose).integers(2**63, size=4)) for seed, purpose in keys]
    assert len(set(draws)) == len(draws)


def test_the_same_key_gives_the_same_stream() -> None:
    assert generator(3, "sampling").random() == generator(3, "sampling").random()


def test_reset_seeds_differ_by_run_environment_and_episode() -> None:
    keys = itertools.product(range(5), range(5), range(40))
    seeds = [derived_seed(run, "reset", env, episode) for run, env, episode in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_stream_resumes_from_its_saved_state() -> None:
    stream = generator(0, "smoothing")
    stream.standard_normal(7, np.float32)
    stream.integers(10, size=3, dtype=np.uint32)  # leaves half a word in the generator
    saved = generator_state(stream)
    expected = stream.integers(2**32, size=9, dtype=np.uint32)
    other = generator(99, "smoothing")
    set_generator_state(other, saved)
    assert np.array_equal(other.integers(2**32, size=9, dtype=np.uint32), expected)
