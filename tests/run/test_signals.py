import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from helpers import rude_envs
from t3d import Config
from t3d.base import signals
from t3d.base.signals import STOP_SIGNALS, Ended
from t3d.play.envs import EnvMaker
from t3d.run.signals import StopSignal, exit_code, never, raised

BY_HAND = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]
BY_SYSTEMS = [number for number in STOP_SIGNALS if number not in BY_HAND]


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """As a program has them that was started from a terminal."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:  # a shell has a command in the background ignore SIGINT
        by_ctrl_c = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if by_ctrl_c else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", BY_HAND)
def test_a_signal_is_remembered_and_a_second_one_has_its_usual_effect(number: int) -> None:
    heard, usual = [], signal.getsignal(number)
    with StopSignal(lambda: heard.append("stopping")).caught() as stop:
        assert not stop()
        send(number)
        assert stop()
        assert stop.number == number
        assert heard == ["stopping"]
        assert signal.getsignal(number) is usual
    assert signal.getsignal(number) is usual


@pytest.mark.parametrize("number", BY_SYSTEMS)
def test_a_signal_that_systems_repeat_is_heard_once_and_ends_nothing(number: int) -> None:
    heard: list[str] = []
    with StopSignal(lambda: heard.append("stopping")).caught() as stop:
        send(number)
        send(number)
        assert stop.number == number
        assert heard == ["stopping"]
        send(signal.SIGTERM)  # a scheduler's next notice: not impatience yet
        assert stop.number == number
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_is_ignored_or_handled_by_the_program_is_left_alone() -> None:
    own: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    signal.signal(signal.SIGUSR1, lambda number, frame: own.append(number))
    with raised(), StopSignal().caught() as stop:
        send(signal.SIGHUP)
        send(signal.SIGUSR1)
        assert not stop()
    assert own == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_message_that_cannot_be_shown_does_not_lose_the_signal() -> None:
    def fail() -> None:
        raise OSError("the terminal is gone")

    with StopSignal(fail).caught() as stop:
        send(signal.SIGTERM)
        assert stop.number == signal.SIGTERM


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_outside_of_a_run_a_signal_interrupts_with_its_exit_code(number: int) -> None:
    with raised():
        with pytest.raises(KeyboardInterrupt) as interrupt:
            send(number)
        assert isinstance(interrupt.value, Ended) == (number != signal.SIGINT)
        assert exit_code(interrupt.value) == 128 + number
    with raised(), StopSignal().caught() as stop:  # a run catches what would interrupt
        send(number)
        assert stop.number == number


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


def test_a_process_is_started_deaf_and_the_starter_hears_again() -> None:
    ask = "import signal; print(*sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with signals.held():
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", ask], capture_output=True, text=True, check=True
        )
    blocked = [int(number) for number in child.stdout.split()]
    assert blocked == sorted({*STOP_SIGNALS, *before})
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_an_environment_forks_hears_signals_as_usual_and_stops_no_run(number: int) -> None:
    with StopSignal().caught() as stop:
        ready, begun = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(begun, b"x")
                time.sleep(60)
            except KeyboardInterrupt:
                os._exit(77)
            os._exit(0)
        os.read(ready, 1)
        os.kill(child, number)
        ended = os.waitpid(child, 0)[1]
        assert not stop()
    for end in (ready, begun):
        os.close(end)
    expected = (False, 77) if number == signal.SIGINT else (True, signal.SIGTERM)
    how = os.WIFSIGNALED(ended), os.WTERMSIG(ended) or os.WEXITSTATUS(ended)
    assert how == expected


def test_outside_of_a_run_a_second_signal_ends_code_that_catches_the_first() -> None:
    with raised():
        for number in (signal.SIGTERM, signal.SIGHUP):
            with pytest.raises(Ended):
                send(number)
        signals.set_handlers_again()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # systems repeat it
