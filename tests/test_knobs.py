"""No dead knobs: change each one, and see what it changes."""

import ast
import inspect
import multiprocessing
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import t3d
from helpers.broken_envs import Calm, Stuck
from helpers.runs import TESTS, TINY, metrics_without_time, trained
from t3d import Config
from t3d.base.machine import cores
from t3d.config import SCOPES, knobs_of
from t3d.play.collect import Collector
from t3d.play.envs import EnvMaker, EnvSource
from t3d.play.vector import Environments
from t3d.play.workers import Workers
from t3d.run.finish import finish
from t3d.run.folder import RunFolder
from t3d.run.loop import Run

Numbers = dict[str, bytes]

SMALL = TINY | {"eval_every": 0, "checkpoint_every": 0, "steps": 40}
SEEN: dict[str, Any] = {"env": "helpers.seeing_envs:Camera", "steps": 25}

# Another value for every knob that changes what a run computes, and the knobs that it needs.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "env": ("MountainCarContinuous-v0", {}),
    "env_kwargs": ({"g": 5}, {}),
    "wrap": (("helpers.own_wrappers:Scale", "factor=0.5"), {}),
    "steps": (45, {}),
    "seed": (1, {}),
    "action_repeat": (2, {}),
    "max_episode_steps": (10, {}),
    "num_envs": (2, {}),
    "random_steps": (30, {}),
    "exploration": ("ou", {}),
    "exploration_noise": (0.3, {}),
    "exploration_final": (0.3, {"exploration_steps": 30}),
    "exploration_steps": (30, {"exploration_final": 0.0}),
    "exploration_pull": (0.5, {"exploration": "ou"}),
    "grey": (True, SEEN),
    "image_size": (36, SEEN),
    "frame_stack": (2, SEEN),
    "action_history": (2, {}),
    "image_shift": (2, SEEN),
    "image_channels": (9, SEEN),
    "features": (7, SEEN),
    "capacity": (25, {}),
    "agent": ("td7", {}),
    "body": ("layer_norm", {}),
    "normalize_observations": (True, {}),
    "reward_scale": (0.5, {}),
    "train_after": ("episode", {}),
    "updates_per_step": (0.5, {}),
    "batch_size": (9, {}),
    "hidden": ((8, 9), {}),
    "actor_hidden": ((8, 9), {}),
    "critic_hidden": ((8, 9), {}),
    "embedding": (7, {"agent": "td7", "embedding": 9}),
    "encoder_hidden": ((9,), {"agent": "td7"}),
    "activation": ("elu", {}),
    "layer_norm": ("critic", {}),
    "learning_rate": (1e-3, {}),
    "actor_learning_rate": (1e-3, {}),
    "critic_learning_rate": (1e-3, {}),
    "learning_rate_schedule": ("linear", {}),
    "learning_rate_final": (0.5, {"learning_rate_schedule": "cosine"}),
    "gradient_clip": (1e-3, {}),
    "weight_decay": (0.1, {}),
    "n_step": (3, {}),
    "discount": (0.9, {}),
    "tau": (0.1, {}),
    "target_every": (4, {}),
    "twins": (False, {}),
    "policy_noise": (0.1, {}),
    "noise_clip": (0.05, {}),
    "policy_freq": (3, {}),
    "sampling": ("lap", {}),
}
# Another value for every knob that changes what a run writes, and none of its numbers; and the
# knobs that it needs.
WRITES: dict[str, tuple[Any, dict[str, Any]]] = {
    "eval_every": (20, {}),
    "eval_episodes": (2, {}),
    "log_every": (7, {}),
    "log_info": ("cost", {"env": "helpers.telling_envs:Telling"}),
    "checkpoint_every": (0, {}),
    "keep_checkpoints": (3, {}),
}
# Where else a run is recorded: with trackers, and what they store.
TRACKS = {"track": "test_numbers_that_are_others_after_a_resume_are_logged_too"}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def numbers(source: EnvSource | None = None, **knobs: Any) -> Numbers:
    """What a run with these knobs has computed after its last step, without any evaluation."""
    config = Config(**(SMALL | knobs))
    with closing(Run.start(EnvMaker(source or config.env, config))) as run:
        return numbers_after_all_steps(run)


def numbers_after_all_steps(run: Run) -> Numbers:
    while run.collector.steps < run.config.steps:
        run.step()
    return numbers_of(run)


@cache
def usual(*knobs: tuple[str, Any]) -> Numbers:
    """The same, computed once for each set of knobs."""
    return numbers(**dict(knobs))


def numbers_of(run: Run) -> Numbers:
    parts: dict[str, Any] = {
        "agent": run.agent.state_dict(),
        "memory": run.memory.state_dict(),
        "collector": run.collector.state_dict(),
    }
    return {
        f"{part}.{name}": np.asarray(array).tobytes()
        for part, arrays in parts.items()
        for name, array in arrays.items()
    }


def test_the_same_knobs_give_the_same_numbers() -> None:
    assert numbers() == usual()
    assert numbers(**SEEN) == usual(*SEEN.items())


@pytest.mark.parametrize("knob", CHANGES)
def test_a_changed_knob_changes_the_numbers(knob: str) -> None:
    other, needed = CHANGES[knob]
    assert numbers(**(needed | {knob: other})) != usual(*needed.items())


def test_pixels_are_another_state() -> None:
    config = Config(pixels=True, image_size=32)
    with closing(EnvMaker("Pendulum-v1", config).make()) as env:
        assert env.layout.images == ((3, 32, 32),)
    with closing(EnvMaker("Pendulum-v1", Config(pixels=False)).make()) as env:
        assert env.layout.images == ()


def written(**knobs: Any) -> tuple[Numbers, Any]:
    """The numbers of a run with a folder, and what is in the folder."""
    config = Config(**(SMALL | {"checkpoint_every": 15} | knobs))
    with TemporaryDirectory() as parent:
        folder = RunFolder(Path(parent) / "run")
        with closing(Run.start(EnvMaker(config.env, config), folder)) as run:
            run.loop()
            computed = numbers_of(run)
        checkpoints = sorted(file.name for file in folder.checkpoints.iterdir())
        return computed, (metrics_without_time(folder.path), checkpoints)


usually_written = cache(written)


@pytest.mark.parametrize("knob", WRITES)
def test_a_changed_knob_of_records_changes_what_is_written_and_no_number(knob: str) -> None:
    other, needed = WRITES[knob]
    computed, files = written(**(needed | {knob: other}))
    assert computed == usually_written(**needed)[0] == usual(*needed.items())
    assert files != usually_written(**needed)[1]


def test_the_score_is_of_as_many_episodes_as_test_episodes(tmp_path: Path) -> None:
    for count in (1, 3):
        run = trained(tmp_path / f"{count}", **SMALL | {"steps": 5}, test_episodes=count)
        score = finish(RunFolder(run)).score
        assert score is not None
        assert len(score.returns) == count


def test_another_environment_for_evaluations_changes_these_and_no_number() -> None:
    computed, files = written(eval_env_kwargs={"g": 1})
    same_task = written(eval_env="helpers.own_wrappers:pendulum", eval_env_kwargs={"g": 1})
    assert same_task == (computed, files)
    assert computed == usual()
    assert files != usually_written()[1]


def test_a_remade_environment_forgets_earlier_episodes() -> None:
    class Diary(Calm):
        episodes = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            observation, facts = super().reset(seed=seed)
            self.episodes += 1
            observation[0] = self.episodes / 100
            return observation, facts

    assert numbers(Diary, remake_envs=True) != numbers(Diary, remake_envs=False)


def test_one_environment_is_all_that_single_env_makes() -> None:
    class Counted(Calm):
        made = 0

        def __init__(self) -> None:
            Counted.made += 1

    numbers(Counted, single_env=True)
    assert Counted.made == 1
    numbers(Counted, single_env=False)
    assert Counted.made == 1 + 2


def test_rate_lets_steps_wait_and_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment that waits for it; hardware goes on meanwhile."""
    waits: list[float] = []
    monkeypatch.setattr("t3d.play.pacing.clock", lambda: len(waits) / 64)
    monkeypatch.setattr("t3d.play.pacing.sleep", waits.append)
    assert numbers(rate=64.0) == usual()
    assert waits == [1 / 64] * (40 - 3)  # the first step of an episode does not wait


def test_ray_gets_its_address_and_the_cpus_of_each_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray, connect = MagicMock(), MagicMock()
    ray.cluster_resources.return_value = {"CPU": 1.5}
    connect.return_value = ray, lambda: None
    monkeypatch.setattr("t3d.remote.cluster.connect", connect)

    def build(cpus: float) -> None:
        config = Config(**SMALL, collectors=3, collector_cpus=cpus, ray="there:1")
        Run(EnvMaker("Pendulum-v1", config))

    build(0.5)
    connect.assert_called_with("there:1", 1.5)
    assert ray.remote.call_args.kwargs["num_cpus"] == 0.5
    assert ray.remote.return_value.return_value.remote.call_count == 3
    with pytest.raises(t3d.T3DError, match=r"^3 collectors of 0\.6 CPUs need 1\.8; the cluster"):
        build(0.6)


def test_env_backend_moves_the_environments_and_keeps_the_numbers() -> None:
    config = Config(**SMALL, num_envs=2, env_backend="processes")
    with closing(Run.start(EnvMaker("Pendulum-v1", config))) as run:
        evaluating = min(cores() + 1, config.eval_episodes)
        assert len(multiprocessing.active_children()) == 2 + evaluating
        assert isinstance(run.collector, Collector)
        assert isinstance(run.collector.environments.vector, Workers)
        assert numbers_after_all_steps(run) == numbers(num_envs=2)
    assert multiprocessing.active_children() == []


def test_eval_envs_play_episodes_at_the_same_time_and_keep_the_numbers() -> None:
    before = numbers(eval_episodes=3)
    config = Config(**(SMALL | {"eval_episodes": 3}), eval_envs=2)
    with closing(Run.start(EnvMaker("Pendulum-v1", config))) as run:
        assert len(multiprocessing.active_children()) == 2
        assert numbers_after_all_steps(run) == before
    assert multiprocessing.active_children() == []


def test_env_deadline_and_env_restarts_end_an_environment_that_hangs() -> None:
    assert numbers(env_deadline=5.0, env_restarts=0) == usual()
    config = Config(env_backend="processes", env_deadline=0.3, env_restarts=0)
    with closing(Environments(EnvMaker(Stuck, config))) as environments:
        environments.reset()
        environments.step(np.zeros((1, 2), np.float32))
        with pytest.raises(t3d.T3DError, match=r"environment 0 did not answer within 0\.3 s$"):
            environments.step(np.zeros((1, 2), np.float32))


def test_a_memory_on_disk_changes_nothing_but_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    before = usual()
    files = MagicMock(wraps=t3d.base.files.scratch)
    monkeypatch.setattr("t3d.base.files.scratch", files)
    assert numbers(replay_on_disk=True) == before
    assert files.call_count == 1
    assert numbers(replay_on_disk=False) == before
    assert files.call_count == 1


def test_device_places_the_networks() -> None:
    with torch.device("meta"):
        agent = t3d.T3D(3, [-1], [1], Config(device="meta"))
    networks = (agent.actor, agent.critic, agent.actor_target, agent.critic_target)
    assert all(p.device.type == "meta" for network in networks for p in network.parameters())


@pytest.mark.parametrize(("threads", "expected"), [(2, 2), (0, 1)])
def test_threads_are_set_while_a_run_is_open(threads: int, expected: int) -> None:
    """0 is 1 for networks so small that more threads would only wait for each other."""
    torch.set_num_threads(3)
    config = Config(threads=threads, hidden=(8,), engine="reference")
    with closing(Run.start(EnvMaker("Pendulum-v1", config))):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 3


def test_threads_do_not_change_the_numbers_of_the_fused_engine() -> None:
    assert numbers(threads=2, engine="fused") == numbers(threads=1, engine="fused")


def test_overlap_plays_with_the_policy_before_the_last_update() -> None:
    """The one knob of the machine that changes numbers; it does so in the same way every time."""
    overlapped = numbers(overlap=True)
    assert overlapped == numbers(overlap=True)
    assert overlapped != numbers(overlap=False)


def test_engine_auto_is_fused_and_gives_the_numbers_of_the_reference() -> None:
    fused, reference = numbers(engine="fused"), numbers(engine="reference")
    assert numbers(engine="auto") == fused
    assert reference != fused  # in their last bits
    assert reference.keys() == fused.keys()
    for name in (name for name in fused if name.startswith("agent.") and "actor" in name):
        one, other = (np.frombuffer(each[name], np.float32) for each in (fused, reference))
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-4, err_msg=name)
    with pytest.raises(t3d.T3DError, match="engine is 'warp'; expected one of: auto, reference"):
        Config(engine="warp")  # type: ignore[arg-type]


# The tests of the knobs of the machine: they leave the numbers alone, as far as they can.
MACHINE: dict[str, Callable[..., None]] = {
    "collector_cpus": test_ray_gets_its_address_and_the_cpus_of_each_collector,
    "ray": test_ray_gets_its_address_and_the_cpus_of_each_collector,
    "env_backend": test_env_backend_moves_the_environments_and_keeps_the_numbers,
    "eval_envs": test_eval_envs_play_episodes_at_the_same_time_and_keep_the_numbers,
    "env_deadline": test_env_deadline_and_env_restarts_end_an_environment_that_hangs,
    "env_restarts": test_env_deadline_and_env_restarts_end_an_environment_that_hangs,
    "replay_on_disk": test_a_memory_on_disk_changes_nothing_but_the_place,
    "device": test_device_places_the_networks,
    "threads": test_threads_do_not_change_the_numbers_of_the_fused_engine,
    "overlap": test_overlap_plays_with_the_policy_before_the_last_update,
    "engine": test_engine_auto_is_fused_and_gives_the_numbers_of_the_reference,
}
# The tests of knobs that change the numbers, and need more than another value for it.
OWN_TESTS: dict[str, Callable[..., None]] = {
    "pixels": test_pixels_are_another_state,
    "eval_env": test_another_environment_for_evaluations_changes_these_and_no_number,
    "eval_env_kwargs": test_another_environment_for_evaluations_changes_these_and_no_number,
    "remake_envs": test_a_remade_environment_forgets_earlier_episodes,
    "single_env": test_one_environment_is_all_that_single_env_makes,
    "rate": test_rate_lets_steps_wait_and_changes_nothing_else,
    "collectors": test_ray_gets_its_address_and_the_cpus_of_each_collector,
}
# The test of the knob of the score, which comes after training.
SCORES: dict[str, Callable[..., None]] = {
    "test_episodes": test_the_score_is_of_as_many_episodes_as_test_episodes,
}
# A test on a real Ray cluster, wherever it is.
ELSEWHERE = {"staleness": "test_nothing_is_older_than_staleness_allows"}


def test_every_knob_has_a_test_that_fits_its_scope() -> None:
    tested = [*CHANGES, *OWN_TESTS, *ELSEWHERE]
    assert sorted(tested) == sorted(knobs_of(*(set(SCOPES) - {"records", "machine"})))
    assert {*WRITES, *SCORES, *TRACKS} == knobs_of("records")
    assert set(MACHINE) == knobs_of("machine")


@pytest.mark.parametrize("knob", [*MACHINE, *OWN_TESTS, *SCORES, *ELSEWHERE, *TRACKS])
def test_a_named_test_sets_its_knob(knob: str) -> None:
    elsewhere = ELSEWHERE | TRACKS
    if knob not in elsewhere:
        source = inspect.getsource((MACHINE | OWN_TESTS | SCORES)[knob])
    else:
        (source,) = [
            ast.unparse(node)
            for path in TESTS.rglob("test_*.py")
            if f"def {elsewhere[knob]}(" in path.read_text("utf-8")
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name == elsewhere[knob]
        ]
    assert f"{knob}=" in source or f"'{knob}':" in source
