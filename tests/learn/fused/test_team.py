"""The threads of the fused engine: when they start, when they end, and what they leave behind."""

import gc
import os
import subprocess
import sys
import threading
import time

import torch

from helpers.training import small_fused, small_memory
from t3d import FusedT3D, ReplayBuffer
from t3d.base.machine import cores


def helpers() -> int:
    return sum(thread.name.startswith("t3d update") for thread in threading.enumerate())


def wait_until(true: object, seconds: float = 30.0) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_threads_start_with_the_first_update_and_end_with_the_agent() -> None:
    gc.collect()
    wait_until(lambda: helpers() == 0)
    learner = small_fused(threads=3)
    assert helpers() == 0
    learner.train(small_memory(), 2)
    assert helpers() == 2
    del learner
    gc.collect()
    wait_until(lambda: helpers() == 0)


def test_a_team_is_no_larger_than_the_panels_of_a_batch() -> None:
    gc.collect()
    wait_until(lambda: helpers() == 0)
    learner = small_fused(threads=64, batch_size=20)
    learner.train(small_memory(), 1)
    assert helpers() == 1  # and this thread


def _exit_code(learner: FusedT3D, memory: ReplayBuffer, expected: FusedT3D) -> int:
    learner.train(memory, 4)
    one, two = learner.state_dict(), expected.state_dict()
    return 0 if all(torch.equal(one[name], two[name]) for name in one) else 1


def test_a_forked_process_starts_its_own_threads() -> None:
    learner, memory = small_fused(threads=2), small_memory()
    learner.train(memory, 4)
    expected = small_fused(threads=1)
    expected.train(memory, 8)
    child = os.fork()
    if child == 0:
        os._exit(_exit_code(learner, memory, expected))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def in_a_process(code: str) -> None:
    """Run code with an agent of two threads and a memory; it must end, and end well."""
    before = (
        "import os, signal, threading, t3d\n"
        "memory = t3d.ReplayBuffer(1, 2, 1)\n"
        "memory.add([0, 0], [0, 0], [0], 0, False)\n"
        "agent = t3d.FusedT3D(2, [-1], [1], t3d.Config(threads=2))\n"
    )
    subprocess.run([sys.executable, "-c", before + code], check=True, timeout=300)


def test_an_unfinished_update_does_not_keep_the_process_from_ending() -> None:
    in_a_process("assert agent.begin(memory)\n")


def test_an_interrupt_in_the_middle_of_training_costs_no_more_than_the_update() -> None:
    in_a_process(
        # Where a shell starts a program in the background, Python does not do this by itself.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "agent.train(memory, 2)\n"
        "for _ in range(5):\n"
        "    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try:\n"
        "        while True:\n"
        "            agent.train(memory, 100)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "agent.train(memory, 10)\n"
    )


def test_an_unfinished_update_is_finished_before_the_next() -> None:
    in_a_process(
        "agent.train(memory, 2)\n"
        "assert agent.begin(memory)\n"  # and an interrupt came
        "agent.train(memory, 10)\n"
    )


def test_cores_are_those_that_this_process_may_use() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    code = "import os; os.sched_setaffinity(0, {0})\n"
    code += "from t3d.base.machine import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
