from collections.abc import Callable
from typing import SupportsFloat

import numpy as np
import pytest
import torch

import t3d
from t3d.run.learning import Learning

Measures = dict[str, SupportsFloat]


class Slow(t3d.T3D):
    """An agent whose updates wait to be finished; it counts them when they are."""

    loss = 1.0

    def begin(self, replay_buffer: t3d.ReplayBuffer) -> Callable[[], Measures]:
        return self._count

    def train(self, replay_buffer: t3d.ReplayBuffer, iterations: int) -> Measures:
        for _ in range(iterations):
            measures = self._count()
        return measures

    def _count(self) -> Measures:
        self.updates += 1
        return {"critic_loss": self.loss}


def learning(**knobs: object) -> Learning:
    config = t3d.Config.from_dict({"random_steps": 10, "hidden": (4,), **knobs})
    agent = Slow(3, [-1], [1], config)
    return Learning(agent, t3d.ReplayBuffer(10, 3, 1), config)


def test_whoever_asks_for_the_agent_gets_it_with_all_updates() -> None:
    learner = learning()
    learner.learn(steps=13)
    unfinished = learner.policy.__self__  # type: ignore[attr-defined]
    assert unfinished.updates == 2  # the third waits
    assert learner.measures == {"critic_loss": 1.0}
    assert learner.agent.updates == 3
    assert learner.due(13) == 0
    assert learner.due(15) == 2


def test_an_update_is_finished_while_the_next_step_is_played() -> None:
    learner = learning()
    learner.learn(steps=11)
    with learner.meanwhile(steps=11):
        pass
    assert learner.policy.__self__.updates == 1  # type: ignore[attr-defined]


def test_with_overlap_the_updates_of_a_step_are_done_during_the_next() -> None:
    learner = learning(overlap=True)
    learner.open()
    learner.learn(steps=12)
    assert learner.agent.updates == 0
    with learner.meanwhile(steps=12):
        pass
    assert learner.agent.updates == 2
    learner.close()


def test_a_measure_that_is_not_finite_is_noticed_once_when_the_update_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = learning()
    monkeypatch.setattr(Slow, "loss", np.nan)
    learner.learn(steps=11)
    with pytest.raises(t3d.Diverged, match="critic_loss is nan"):
        assert learner.agent
    assert learner.agent.updates == 1


def test_a_closed_run_gives_pytorch_its_threads_back() -> None:
    torch.set_num_threads(3)
    learner = learning(threads=2)
    learner.open()
    assert torch.get_num_threads() == 2
    learner.close()
    assert torch.get_num_threads() == 3
