"""The fused engine as an agent; its numbers are in parity/test_fused.py and test_panels.py."""

import pytest
import torch

from helpers.training import small_fused, small_memory
from t3d import T3DError


def test_an_update_beside_something_else_gives_the_same_bits() -> None:
    memory, learner = small_memory(), small_fused(threads=2, policy_freq=3)
    expected = small_fused(threads=1, policy_freq=3)
    begun = 0
    for _ in range(9):
        finish = learner.begin(memory)
        if finish is None:
            measures = learner.train(memory, 1)
        else:
            begun += 1
            learner.select_action([0.0, 0.0])  # the actor is as it was
            measures = finish()
        assert measures == expected.train(memory, 1)
    assert begun == 6  # all but those that update the actor
    one, two = learner.state_dict(), expected.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_without_other_threads_nothing_is_begun() -> None:
    assert small_fused(threads=1).begin(small_memory()) is None


def test_it_runs_on_the_cpu_alone() -> None:
    refusal = "engine fused runs on the CPU, not on meta; use --engine"
    with torch.device("meta"), pytest.raises(T3DError, match=refusal):
        small_fused(device="meta")


def test_there_are_no_td_errors_before_the_first_update() -> None:
    learner = small_fused()
    assert len(learner.td_errors) == 0
    learner.train(small_memory(), 1)
    assert (learner.td_errors > 0).all()
    assert len(learner.td_errors) == 64
