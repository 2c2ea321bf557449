"""The fused engine's threads and its compiled code; its numbers are in parity/test_fused.py."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from t3d import Config, FusedT3D, ReplayBuffer, T3DError
from t3d.base.machine import cores
from t3d.learn.fused.agent import Pace, lay_out


def filled(rows: int = 64) -> ReplayBuffer:
    draw = np.random.default_rng(0)
    memory = ReplayBuffer(rows, 2, 1)
    states = draw.normal(size=(2, rows, 2))
    memory.add(
        states[0], states[1], draw.uniform(-1, 1, (rows, 1)), draw.normal(size=rows), np.zeros(rows)
    )
    return memory


def agent(**knobs: object) -> FusedT3D:
    return FusedT3D(2, [-1], [1], Config.from_dict({"hidden": (8,), "batch_size": 64, **knobs}))


def seconds_of(team: int) -> float:
    """A machine on which four threads are best, and eight are in each other's way."""
    return {1: 8.0, 2: 4.5, 4: 3.0, 8: 2.9, 16: 6.0}[team]


def test_the_pace_settles_on_the_smallest_team_that_is_about_as_fast_as_any() -> None:
    pace = Pace([1, 2, 4, 8, 16], policy_freq=2)
    tried = set()
    for _ in range(5 * 2 * 4):
        tried.add(pace.team)
        pace.took(seconds_of(pace.team))
    assert tried == {1, 2, 4, 8, 16}
    assert pace.team == 4


def test_the_pace_tries_again_after_a_while_and_follows_what_changed() -> None:
    pace = Pace([1, 2], policy_freq=1)
    while pace.team != 2 or pace._trials:
        pace.took({1: 0.02, 2: 0.01}[pace.team])
    for _ in range(3_000):  # now another program wants the second core
        pace.took({1: 0.02, 2: 0.05}[pace.team])
    assert pace.team == 1


def test_a_number_of_threads_that_was_asked_for_is_kept() -> None:
    pace = Pace([3], policy_freq=2)
    for seconds in (1.0, 100.0) * 50:
        pace.took(seconds)
    assert pace.team == 3


def helpers() -> int:
    return sum("_work" in t.name or "(work)" in t.name for t in threading.enumerate())


def test_threads_are_hired_when_they_are_needed_and_go_home_with_the_agent() -> None:
    gc.collect()
    wait_until(lambda: helpers() == 0)
    learner = agent(threads=3)
    assert helpers() == 0
    learner.train(filled(), 2)
    assert helpers() == 2
    del learner
    gc.collect()
    wait_until(lambda: helpers() == 0)


def wait_until(true: object, seconds: float = 30.0) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_team_is_no_larger_than_the_panels_of_a_batch() -> None:
    gc.collect()
    wait_until(lambda: helpers() == 0)
    learner = agent(threads=64, batch_size=20)
    learner.train(filled(), 1)
    assert helpers() == 1  # and this thread


def test_a_forked_process_hires_its_own_threads() -> None:
    learner, memory = agent(threads=2), filled()
    learner.train(memory, 4)
    expected = agent(threads=1)
    expected.train(memory, 8)
    child = os.fork()
    if child == 0:
        os._exit(_exit_code(learner, memory, expected))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_update_beside_something_else_gives_the_same_bits() -> None:
    memory, learner = filled(), agent(threads=2, policy_freq=3)
    expected = agent(threads=1, policy_freq=3)
    begun = 0
    for _ in range(9):
        finish = learner.begin(memory)
        if finish is None:
            measured = learner.train(memory, 1)
        else:
            begun += 1
            learner.select_action([0.0, 0.0])  # the actor is as it was
            measured = finish()
        assert measured == expected.train(memory, 1)
    assert begun == 6  # all but the actor's turns
    one, two = learner.state_dict(), expected.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_without_other_threads_nothing_is_begun() -> None:
    assert agent(threads=1).begin(filled()) is None


def in_a_process(code: str) -> None:
    """Run code with an agent of two threads and a memory; it must end, and end well."""
    before = (
        "import os, signal, threading, t3d\n"
        "memory = t3d.ReplayBuffer(1, 2, 1)\n"
        "memory.add([0, 0], [0, 0], [0], 0, False)\n"
        "agent = t3d.FusedT3D(2, [-1], [1], t3d.Config(threads=2))\n"
    )
    subprocess.run([sys.executable, "-c", before + code], check=True, timeout=300)


def test_an_update_that_nobody_finishes_holds_up_no_exit() -> None:
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


def test_an_update_that_was_left_is_finished_before_the_next() -> None:
    in_a_process(
        "agent.train(memory, 2)\n"
        "assert agent.begin(memory)\n"  # and an interrupt came
        "agent.train(memory, 10)\n"
    )


def _exit_code(learner: FusedT3D, memory: ReplayBuffer, expected: FusedT3D) -> int:
    learner.train(memory, 4)
    one, two = learner.state_dict(), expected.state_dict()
    return 0 if all(torch.equal(one[name], two[name]) for name in one) else 1


def test_cores_are_those_that_this_process_may_use() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    code = "import os; os.sched_setaffinity(0, {0})\n"
    code += "from t3d.base.machine import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_it_runs_on_the_cpu_alone() -> None:
    with pytest.raises(T3DError, match="engine fused runs on the CPU, not on meta; use --engine"):
        agent(device="meta")


def test_no_two_places_overlap() -> None:
    layout = lay_out(state_dim=5, action_dim=3, hidden=(7, 33), panels=2)
    for columns, end in (((4, 5), layout.panel), ((2,), None), ((3,), layout.gradients)):
        starts = sorted(int(layer[c]) for layer in layout.plan.reshape(-1, 7) for c in columns)
        assert len(set(starts)) == len(starts)
        assert end is None or starts[-1] < end


_COMPILE = """
from t3d.learn.fused import update as fused
from t3d.learn.fused.agent import compile_all
compile_all()
print(*(sum(f.stats.cache_misses.values()) for f in (fused.work, fused.act)))
"""


def test_a_later_start_compiles_nothing() -> None:
    for _ in range(2):
        words = [sys.executable, "-c", _COMPILE]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]


def test_it_works_where_compiled_code_cannot_be_kept() -> None:
    """As root nothing is read-only, so Numba is told that no folder can be written."""
    no_folder = (
        "from numba.core import caching\n"
        "def refuse(self): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "from t3d.learn.fused import update as fused\n"
        "from t3d import Config, FusedT3D\n"
        "agent = FusedT3D(2, [-1], [1], Config(hidden=(4,)))\n"
        "print(agent.select_action([0.0, 0.0]).shape, type(fused.act._cache).__name__)\n"
    )
    words = [sys.executable, "-c", no_folder]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1,) NullCache"


def test_compiled_code_depends_on_all_of_its_sources() -> None:
    """Numba looks at the file of the function that Python calls, and at what it closes over."""
    import hashlib

    from t3d.learn.fused import update as fused

    folder = Path(fused.__file__).parent
    sources = b"".join((folder / f"{name}.py").read_bytes() for name in ("threads", "tiles"))
    assert isinstance(fused.work, numba.core.dispatcher.Dispatcher)
    cells = fused.work.py_func.__closure__ or ()
    assert hashlib.sha256(sources).hexdigest() in [cell.cell_contents for cell in cells]
