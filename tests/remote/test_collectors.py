"""Collectors as Ray actors, on a real cluster of two nodes on this machine."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import t3d
from helpers import odd_envs
from helpers.runs import TESTS, TINY, metrics_without_time, resumed, same_bits, trained
from t3d.api import inspect
from t3d.base.errors import T3DError
from t3d.base.extras import how_to_install
from t3d.config import Config
from t3d.play.envs import EnvMaker, EnvSource, env_name
from t3d.remote import cluster as clusters
from t3d.remote.collectors import Collectors
from t3d.remote.messages import Started
from t3d.run.folder import RunFolder
from t3d.run.loop import Run
from t3d.run.records import CollectorChange, Episode, Evaluation, Training

# One cluster for all of this file, in one process.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    # Ray leaves sockets and files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with room for four collectors, and a node with room for two."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), before or ""])
    head = {"num_cpus": 4, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def at(cluster: Any) -> Iterator[str]:
    """Its address; a run connects and leaves by itself."""
    yield cluster.address
    assert not ray.is_initialized()


def tiny(run: Path, **knobs: Any) -> None:
    t3d.train(knobs.pop("env", "Pendulum-v1"), run=run, quiet=True, **TINY | knobs)


@pytest.mark.parametrize(
    "knobs",
    [
        {
            **{"engine": "fused", "overlap": True},
            **{"env_backend": "processes", "env": "Hopper-v5"},
        },
        {
            **{"engine": "reference", "normalize_observations": True, "exploration": "ou"},
            **{"env": "helpers.seeing_envs:Robot", "frame_stack": 2, "features": 6},
        },
        {"agent": "td7", "target_every": 3},
    ],
)
def test_in_lock_step_it_is_the_local_run_to_the_bit(
    tmp_path: Path, at: str, knobs: dict[str, Any]
) -> None:
    trained(tmp_path / "here", **(knobs | {"num_envs": 4, "env_backend": "inline"}))
    # Stopped in between: what is played before and after must both be the same.
    remote: dict[str, Any] = {"num_envs": 2, "collectors": 2, "staleness": 0, "ray": at}
    config = Config.from_dict({"env": "Pendulum-v1"} | TINY | remote | knobs)
    with closing(
        Run.start(EnvMaker(config.env, config), RunFolder(tmp_path / "there"), about={})
    ) as run:
        assert not run.loop(lambda: run.collector.steps >= 28)
    assert resumed(tmp_path / "there") == []
    assert same_bits(tmp_path / "here", tmp_path / "there")


def test_a_run_in_lock_step_has_the_digest_of_the_local_one(tmp_path: Path, at: str) -> None:
    tiny(tmp_path / "here", num_envs=2)
    tiny(tmp_path / "there", collectors=2, staleness=0, ray=at)
    here, there = inspect(tmp_path / "here"), inspect(tmp_path / "there")
    assert here["digest"] == there["digest"]
    assert there["bit_exact"]


class Counts:
    """Passed to a loop as its `stop`: keeps, after every step, the steps and updates so far."""

    def __init__(self, run: Run, last_step: float = float("inf")) -> None:
        self.run, self.last_step = run, last_step
        self.steps: list[int] = []
        self.updates: list[int] = []

    def __call__(self) -> bool:
        self.steps.append(self.run.collector.steps)
        self.updates.append(self.run.agent.updates)
        return self.steps[-1] > self.last_step


def collectors_of(run: Run) -> Collectors:
    assert isinstance(run.collector, Collectors)
    return run.collector


def start(folder: Path, env: EnvSource = "Pendulum-v1", **knobs: Any) -> Run:
    knobs = {"steps": 3000, "random_steps": 100, "hidden": (8, 8), "batch_size": 8} | knobs
    knobs = {"max_episode_steps": 50, "eval_every": 0, "eval_episodes": 1, "threads": 1} | knobs
    return Run.start(EnvMaker(env, Config(env=env_name(env), **knobs)), RunFolder(folder), about={})


@pytest.mark.parametrize("ratio", [1.0, 0.3, 2.5])
def test_the_limiter_keeps_the_ratio_over_any_thousand_steps(
    tmp_path: Path, at: str, ratio: float
) -> None:
    knobs: dict[str, Any] = {"collectors": 2, "num_envs": 2, "ray": at, "steps": 2000}
    with closing(start(tmp_path / "run", **knobs, updates_per_step=ratio)) as run:
        counts = Counts(run)
        assert run.loop(counts)
        steps, updates = np.array(counts.steps), np.array(counts.updates)
    assert updates[-1] == int((2000 - 100) * ratio + 1e-9)
    first = np.searchsorted(steps, 100)
    ends = np.searchsorted(steps, steps + 1000)
    windows = [(i, j) for i, j in enumerate(ends) if i >= first and j < len(steps)]
    assert len(windows) > 400
    for i, j in windows:
        got = (updates[j] - updates[i]) / (steps[j] - steps[i])
        assert got == pytest.approx(ratio, rel=0.01)


def test_nothing_is_older_than_staleness_allows(tmp_path: Path, at: str) -> None:
    """Though one collector is ten times as slow as the others."""
    (tmp_path / "made").mkdir()
    env = partial(odd_envs.one_is_slow, str(tmp_path / "made"))
    knobs = {"collectors": 3, "staleness": 8, "ray": at, "steps": 1000, "log_every": 100}
    with closing(start(tmp_path / "run", env, **knobs)) as run:
        assert run.loop()
        received = collectors_of(run).exchange.received
        assert received.sum() == run.collector.steps >= 1000
        assert received.max() > received.min()  # the others did not wait for it at every step
    measures = [record.measures for record in RunFolder(tmp_path / "run").records(Training)]
    assert 8 <= max(each["staleness_max"] or 0 for each in measures) <= 8 * 3


def pids(collectors: Collectors) -> list[int]:
    refs = [a.__ray_call__.remote(lambda _: os.getpid()) for a in collectors.members.actors]
    processes: list[int] = ray.get(refs)
    return processes


def test_a_killed_collector_and_a_killed_node_cost_no_more_than_their_episodes(
    tmp_path: Path, at: str, cluster: Any
) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    preset = t3d.presets.resolve("Pendulum-v1")[1]
    knobs = {"collectors": 6, "ray": at, "env_restarts": 3, "threads": 1, "steps": 100_000}
    config = Config(**vars(preset) | knobs)
    with closing(
        Run.start(EnvMaker(config.env, config), RunFolder(tmp_path / "run"), about={})
    ) as run:
        collectors = collectors_of(run)
        members, counts = collectors.members, Counts(run, last_step=2000)
        assert not run.loop(counts)
        generation = members.generations[0]
        os.kill(pids(collectors)[0], signal.SIGKILL)
        # However long that takes, and however many steps the others make meanwhile.
        assert not run.loop(
            lambda: counts() and members.generations[0] > generation and 0 in members.playing
        )
        cluster.remove_node(node, allow_graceful=False)
        counts.last_step = collectors.steps + 6000
        assert not run.loop(counts)
        assert collectors.exchange.received.sum() == collectors.steps
        assert run.memory.added == collectors.steps
        assert run.agent.updates == collectors.steps - config.random_steps
        assert (np.diff(counts.steps) <= 1).all()
        assert run.progress.best_mean is not None
        assert run.progress.best_mean > -300
    events = list(RunFolder(tmp_path / "run").records(CollectorChange))
    dead = [record for record in events if "was lost" in record.why]
    assert dead[0].collector == 0
    assert any(record.collector == 0 and record.why == "is back" for record in events)
    assert any(record.playing is not None and record.playing <= 4 for record in dead)
    assert len(dead) >= 3  # one, and those of the node
    # No episode of a dead collector is counted twice or joined with the next.
    episodes = list(RunFolder(tmp_path / "run").records(Episode))
    assert len({(r.env, r.episode) for r in episodes}) == len(episodes)
    assert all(r.length == 200 for r in episodes)
    reasons = inspect(tmp_path / "run")["not_bit_exact"]
    assert reasons[0] == "collectors play at their own speed"


@pytest.mark.parametrize("staleness", [0, 40])
def test_an_environment_that_breaks_stops_the_run_and_loses_nothing(
    tmp_path: Path, at: str, staleness: int
) -> None:
    (tmp_path / "made").mkdir()
    env = partial(odd_envs.one_breaks, str(tmp_path / "made"))
    knobs = {"collectors": 2, "staleness": staleness, "ray": at, "steps": 400}
    with closing(start(tmp_path / "run", env, **knobs)) as run:
        with pytest.raises(T3DError, match=r"raised .*out of order.*resume with: t3d resume"):
            run.loop()
        # All its good steps, whoever is slow.
        assert 30 in collectors_of(run).exchange.received.tolist()
        assert inspect(tmp_path / "run")["step"] == run.memory.added == run.collector.steps
    t3d.resume(tmp_path / "run", env=env, quiet=True)
    assert inspect(tmp_path / "run")["step"] >= 400


def test_the_last_collector_that_goes_stops_the_run(tmp_path: Path, at: str) -> None:
    run = start(tmp_path / "run", collectors=1, ray=at, env_restarts=0)
    with closing(run):
        run.step()
        os.kill(pids(collectors_of(run))[0], signal.SIGKILL)
        with pytest.raises(T3DError, match=r"no collector is left; saved at step .*t3d resume"):
            run.loop()
    t3d.resume(tmp_path / "run", steps=300, quiet=True)


def test_an_evaluation_is_played_here_if_a_collector_dies_in_it(tmp_path: Path, at: str) -> None:
    with closing(start(tmp_path / "run", collectors=2, ray=at, eval_episodes=4)) as run:
        run.step()
        run.evaluate()
        os.kill(pids(collectors_of(run))[1], signal.SIGKILL)
        run.evaluate()
        assert run.loop()
    first, second, *_ = RunFolder(tmp_path / "run").records(Evaluation)
    assert first.returns == second.returns


def test_steps_that_are_lost_on_the_way_are_noticed(tmp_path: Path, at: str) -> None:
    with closing(start(tmp_path / "run", collectors=1, ray=at)) as run:
        run.step()
        collectors_of(run).exchange.ask(0, 3)  # and nobody takes the answer
        with pytest.raises(T3DError, match=r"collector 0 sent step .* lost or doubled"):
            run.loop()


def test_a_collector_that_hangs_is_restarted(tmp_path: Path, at: str) -> None:
    with closing(start(tmp_path / "run", collectors=2, ray=at, env_deadline=5.0)) as run:
        run.step()
        os.kill(pids(collectors_of(run))[1], signal.SIGSTOP)
        assert run.loop()
        assert collectors_of(run).exchange.received.sum() == run.collector.steps >= 3000
    events = RunFolder(tmp_path / "run").records(CollectorChange)
    assert 1 in {record.collector for record in events}


def test_a_killed_learner_resumes_with_new_collectors(tmp_path: Path, at: str) -> None:
    folder = tmp_path / "run"
    script = (
        "import t3d; t3d.train(run='run', collectors=2, steps=10**6, capacity=1000, eval_every=0,"
        f"hidden=(8, 8), batch_size=8, checkpoint_every=500, random_steps=100, ray={at!r})"
    )
    learner = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    while not list(folder.glob("checkpoints/step-*")):
        assert learner.poll() is None
        threading.Event().wait(0.1)
    learner.kill()
    learner.wait()
    done = inspect(folder)["step"]
    t3d.resume(folder, steps=done + 500, quiet=True)
    resumed = inspect(folder)
    assert resumed["step"] == done + 500
    assert resumed["updates"] == done + 500 - 100
    episodes = [(r["env"], r["episode"]) for r in metrics_without_time(folder) if "episode" in r]
    assert len(set(episodes)) == len(episodes)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"ray": "127.0.0.1:1"}, r"no Ray cluster at 127.0.0.1:1: .*refused; start one with"),
        ({"ray": "nonsense"}, "no Ray cluster at nonsense: "),
        ({"collectors": 50}, "50 collectors of 1 CPUs need 50; the cluster has 4: take fewer"),
        ({"collectors": 0}, "collectors is 0; expected a whole number at least 1"),
        ({"env": "only_here:env"}, "cannot begin: no module 'only_here' .*; every node needs"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    at: str,
    knobs: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "only_here.py").write_text(
        "import gymnasium\ndef env(): return gymnasium.make('Pendulum-v1')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(T3DError, match=message) as refused:
        tiny(tmp_path / "run", **{"collectors": 2, "ray": at} | knobs)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not there
    with pytest.raises(T3DError, match=re.escape(f"need an extra: {how_to_install('ray')}")):
        tiny(tmp_path / "run", collectors=2)
    assert not (tmp_path / "run").exists()


def test_other_versions_are_refused(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(start(tmp_path / "run", collectors=1, ray=at)) as run:
        members = collectors_of(run).members
        with pytest.raises(T3DError, match=r"collector 0 has T3D 0\.0\.0, and this is .*same on"):
            members.admit(0, Started("0.0.0", members.spaces, []))
        wider = members.spaces._replace(high=2 * members.spaces.high)
        with pytest.raises(T3DError, match="collector 0 makes an environment with other spaces"):
            members.admit(0, Started(t3d.__version__, wider, []))

    # A cluster of another Ray cannot exist here.
    def mismatch(*_: Any, **__: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\n")

    monkeypatch.setattr(ray, "init", mismatch)
    with pytest.raises(T3DError, match=r"has another version: Version mismatch: .* Ray: 1.0"):
        clusters.connect(at, 1)
