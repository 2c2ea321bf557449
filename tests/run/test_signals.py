import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from helpers import rude_envs
from t3d import Config
from t3d.play.envs import EnvMaker
from t3d.run.signals import StopSignal, never


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_remembered_and_a_second_one_has_its_usual_effect(number: int) -> None:
    heard, usual = [], signal.getsignal(number)
    with StopSignal(lambda: heard.append("stopping")).caught() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert stop.number == number
        assert heard == ["stopping"]
        assert signal.getsignal(number) is usual
    assert signal.getsignal(number) is usual


def test_outside_of_the_main_thread_nothing_is_caught() -> None:
    usual, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with StopSignal().caught() as stop:
            seen.append((signal.getsignal(signal.SIGINT) is usual, stop()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, False)]
    assert not never()


@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("make", rude_envs.ignore_signals),
        ("make", rude_envs.ignore_signals_in_c),
        ("reset", rude_envs.ignore_signals),
        ("reset", rude_envs.ignore_signals_in_c),
        ("step", rude_envs.ignore_signals),
    ],
)
def test_an_environment_that_ignores_signals_does_not_keep_them_from_the_run(
    when: str, how: Callable[[], None]
) -> None:
    with StopSignal().caught() as stop:
        env = EnvMaker(rude_envs.doing(how, when), Config()).make()
        env.reset(seed=1)
        env.step(np.zeros(2, np.float32))
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.number == signal.SIGTERM


def test_a_second_signal_has_its_usual_effect_also_after_a_signal_in_a_reset() -> None:
    usual = signal.getsignal(signal.SIGINT)
    interrupt = rude_envs.doing(lambda: os.kill(os.getpid(), signal.SIGINT), "reset")
    with StopSignal().caught() as stop:
        EnvMaker(interrupt, Config()).make().reset(seed=1)
        assert stop()
        assert signal.getsignal(signal.SIGINT) is usual
