"""Two trainings in one process: one after the other, and at the same time in threads."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import t3d
from helpers.runs import TINY
from t3d.base import output, signals
from t3d.base.randomness import torch_random
from t3d.learn import agent as agents
from t3d.run import session


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TRIAL_SECONDS", 0.01)


def digest(run: Path, **knobs: Any) -> str:
    """Train a tiny run to its end; returns what its bits are."""
    t3d.train("Pendulum-v1", run=run, preset="default", quiet=True, **TINY | knobs)
    facts = t3d.inspect(run)
    assert facts["bit_exact"], facts["not_bit_exact"]
    return str(facts["digest"])


def test_runs_in_two_threads_are_the_runs_that_they_are_alone(tmp_path: Path) -> None:
    streams, filters = (sys.stdout, sys.stderr), list(warnings.filters)
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    engines = ("fused", "reference")
    alone = [digest(tmp_path / f"{engine} alone", engine=engine) for engine in engines]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda name: digest(tmp_path / name, engine=name), engines))
    assert together == alone
    assert (sys.stdout, sys.stderr) == streams
    assert list(warnings.filters) == filters
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads


def test_streams_are_set_back_in_whatever_order_threads_end() -> None:
    before = sys.stdout, sys.stderr
    first, second = output.guarded(essential=False), output.guarded(essential=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert isinstance(sys.stdout, output.Output)  # the other still needs it
    second.__exit__(None, None, None)
    assert (sys.stdout, sys.stderr) == before


def test_no_other_thread_sets_handlers_of_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(signals.HANDLERS, signals.STOP_SIGNALS[0], lambda *_: None)  # not the real
    with ThreadPoolExecutor(1) as pool:
        pool.submit(signals.set_handlers_again).result()  # signal.signal would raise ValueError


def test_a_seed_for_pytorch_is_set_by_one_thread_at_a_time() -> None:
    before = torch.get_rng_state()
    with ThreadPoolExecutor(1) as pool, agents._seeded_torch(1):
        assert torch.initial_seed() == 1
        assert not pool.submit(torch_random.acquire, blocking=False).result()
    assert torch.equal(torch.get_rng_state(), before)
