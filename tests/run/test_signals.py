import os
import signal
import threading

import pytest

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
