from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import t3d
from helpers import broken_envs, odd_envs, rude_envs
from helpers.runs import (
    TINY,
    Recorder,
    in_memory,
    metrics_without_time,
    resumed,
    same_bits,
    saved_arrays,
    trained,
)
from t3d.learn.engines import agent_name
from t3d.learn.networks import body_name, mlp
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.loop import Run


def updates(recorder: Recorder) -> dict[int, int]:
    return {line["step"]: line["updates"] for line in recorder.of("train")}


def test_a_run_evaluates_logs_and_ends_episodes_when_it_should() -> None:
    records = in_memory().records
    assert [line["step"] for line in records.of("evaluation")] == [0, 30, 60]
    assert [line["step"] for line in records.of("train")] == [10, 20, 30, 40, 50, 60]
    episodes = [(e["step"], e["episode"], e["length"]) for e in records.of("episode")]
    assert episodes == [(15, 0, 15), (30, 1, 15), (45, 2, 15), (60, 3, 15)]


def test_a_run_without_a_folder_computes_what_one_with_a_folder_does(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    run = in_memory()
    assert run.records.lines == metrics_without_time(tmp_path / "run")
    state = saved_arrays(tmp_path / "run")
    for name, tensor in run.agent.state_dict().items():
        assert tensor.numpy().tobytes() == state[f"agent.{name}"].tobytes()


def test_a_run_without_a_folder_says_so() -> None:
    run = Run(EnvMaker("Pendulum-v1", t3d.Config(**TINY)))
    with pytest.raises(t3d.BadInput, match="this run has no folder"):
        assert run.folder
    run.close()


def test_updates_begin_after_the_random_steps_one_per_step() -> None:
    assert updates(in_memory().records) == {10: 0, 20: 0, 30: 10, 40: 20, 50: 30, 60: 40}


@pytest.mark.parametrize(("ratio", "expected"), [(0.1, 4), (0.3, 12), (2.0, 80), (0.0, 0)])
def test_updates_per_step_holds_exactly(ratio: float, expected: int) -> None:
    assert in_memory(updates_per_step=ratio).agent.updates == expected


def test_updates_per_step_counts_the_steps_of_all_environments() -> None:
    assert in_memory(num_envs=4).agent.updates == 40


def test_in_bursts_the_agent_learns_after_each_episode() -> None:
    counts = updates(in_memory(train_after="episode", log_every=1).records)
    # Episodes end at 15, 30, 45 and 60; those after step 20 are played by the policy.
    changes = {step: n for step, n in counts.items() if n != counts.get(step - 1, 0)}
    assert changes == {30: 10, 45: 25, 60: 40}


def test_many_environments_overshoot_by_less_than_one_round() -> None:
    assert in_memory(num_envs=7).records.lines[-1]["step"] == 63


def test_the_best_agent_is_the_one_of_the_best_evaluation(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=200, eval_every=20, learning_rate=0.1, seed=5)
    evaluations = list(RunFolder(run).records(t3d.Evaluation))
    means = [each.mean for each in evaluations]
    winner = evaluations[int(np.argmax(means))]
    assert evaluations[-1].best_mean == winner.mean
    assert winner.mean > means[-1]  # else this test would show nothing
    assert t3d.load(run).updates == max(0, winner.step - 20)
    assert t3d.load(run, which="last").updates == 180


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not() -> None:
    one, again, other = (in_memory("Hopper-v5", seed=seed, num_envs=2) for seed in (5, 5, 6))
    assert one.state == again.state
    assert one.records.lines == again.records.lines
    assert one.state != other.state


@pytest.mark.parametrize("knobs", [{}, {"updates_per_step": 2.5, "policy_freq": 3}])
def test_updates_that_continue_during_the_next_step_change_nothing(knobs: dict[str, Any]) -> None:
    # One thread cannot learn while another plays; two can.
    one, two = (
        in_memory(engine="fused", threads=threads, batch_size=32, **knobs) for threads in (1, 2)
    )
    assert one.records.lines == two.records.lines
    assert one.state == two.state


def test_a_callable_of_the_users_own_trains(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", broken_envs.Calm)
    assert t3d.load(run).select_action(np.zeros(3)).shape == (2,)
    assert RunFolder(run).config().env == "helpers.broken_envs:Calm"
    assert len(t3d.evaluate(run, episodes=2).returns) == 2


def test_a_broken_environment_loses_nothing_that_was_played(tmp_path: Path) -> None:
    class BreaksLater(broken_envs.Calm):
        def __init__(self) -> None:
            self.steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            observation, *rest = super().step(action)
            return (observation * np.nan if self.steps == 27 else observation), *rest

    broken = r"step 2: observation\[0\] is nan.*saved at step 26, resume with: t3d resume"
    with pytest.raises(t3d.BrokenEnvironment, match=broken):
        trained(tmp_path / "run", BreaksLater)
    state = saved_arrays(tmp_path / "run")
    assert int(state["collector.steps"]) == 26
    assert all(np.isfinite(a).all() for a in state.values() if a.dtype.kind == "f")


def test_a_run_that_broke_resumes_to_the_same_end(tmp_path: Path) -> None:
    trained(tmp_path / "uninterrupted", broken_envs.Calm)

    class BreaksOnce(broken_envs.Calm):
        def step(self, action: Any) -> Any:
            if len(list(RunFolder(tmp_path / "run").records(t3d.Training))) == 4:
                raise OSError("the cable came loose")
            return super().step(action)

    with pytest.raises(t3d.T3DError, match=r"the cable came loose.*saved at step 40"):
        trained(tmp_path / "run", BreaksOnce)
    resumed(tmp_path / "run", broken_envs.Calm)
    assert same_bits(tmp_path / "uninterrupted", tmp_path / "run")


def test_an_endless_episode_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(broken_envs.Calm):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:3], False, {}

    monkeypatch.setattr("t3d.play.evaluate._ENDLESS", 500)
    with pytest.raises(t3d.T3DError, match=r"has 500 steps.*set --max-episode-steps"):
        in_memory(Endless, max_episode_steps=0)


def test_a_diverged_agent_is_not_blamed_on_the_environment(tmp_path: Path) -> None:
    with pytest.raises(t3d.Diverged, match=r"the agent diverged by step.*python -m t3d.run.health"):
        trained(tmp_path / "run", odd_envs.HugeReward)
    assert list(RunFolder(tmp_path / "run").records())  # no NaN, no Infinity: they are not JSON


def test_without_a_folder_a_diverged_agent_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(t3d.Diverged, match=r"lower --learning-rate, or scale the rewards down$"):
        in_memory(odd_envs.HugeReward)
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_the_disk_is_full_frees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise t3d.CannotWrite("metrics.jsonl cannot be written: No space left on device")

    monkeypatch.setattr("t3d.run.records.MetricsFile.write", full)
    with pytest.raises(t3d.CannotWrite, match="No space left"):
        trained(tmp_path / "run")
    monkeypatch.undo()
    assert not t3d.inspect(tmp_path / "run")["training"]
    resumed(tmp_path / "run")
    assert t3d.inspect(tmp_path / "run")["finished"]


class Clumsy(t3d.T3D):
    """Stumbles over its sixth update."""

    def update(self, batch: t3d.Batch, noise: Tensor) -> dict[str, SupportsFloat]:
        if self.updates == 5:
            raise IndexError("out of\nideas")
        return super().update(batch, noise)


def test_an_own_agent_that_raises_is_named_and_its_run_resumes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(t3d.BrokenAgent) as failure:
        trained(run, agent=agent_name(Clumsy))
    assert isinstance(failure.value.__cause__, IndexError)
    message = str(failure.value)
    assert message.startswith(f"{__name__}:Clumsy raised IndexError: out of ideas (test_loop.py:")
    assert message.endswith(f"; saved at step 20, resume with: t3d resume {run}")
    assert t3d.inspect(run)["step"] == 20
    with pytest.raises(t3d.BrokenAgent):
        resumed(run)


def test_an_error_of_ours_is_not_blamed_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise IndexError

    monkeypatch.setattr(t3d.T3D, "update", broken)
    with pytest.raises(IndexError):
        in_memory(engine="reference")


def drops_out(sizes: tuple[int, ...], stream: np.random.Generator, dtype: torch.dtype) -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), mlp(sizes, stream, dtype))


def test_a_run_that_draws_from_pytorchs_global_random_state_says_so(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", body=body_name(drops_out), steps=30)
    reasons = t3d.inspect(run)["not_bit_exact"]
    assert reasons == ["PyTorch's global random numbers were used, which no checkpoint holds"]
    resumed(run, steps=40)
    assert t3d.inspect(run)["not_bit_exact"] == reasons


def test_what_a_step_changes_for_good_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = np.geterr(), torch.get_float32_matmul_precision()
    try:
        for name in ("numpy raises", "sets PyTorch's precision"):
            run = tmp_path / name
            trained(run, rude_envs.doing(rude_envs.HARMLESS[name], "step"))
    finally:
        np.seterr(**before[0])
        torch.set_float32_matmul_precision(before[1])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", which stays so")[0].partition(" changed ")[2] for line in lines] == [
        "NumPy's error handling",
        "PyTorch's precision of products",
    ]
    assert t3d.inspect(tmp_path / "numpy raises")["bit_exact"]
    (why,) = t3d.inspect(tmp_path / "sets PyTorch's precision")["not_bit_exact"]
    assert why.startswith("at step 0 while ")


class RaisesLater(rude_envs.Doing):
    """Has NumPy raise, which T3D then does somewhere else."""

    def __init__(self) -> None:
        super().__init__(rude_envs.HARMLESS["numpy raises"], "step")


def test_an_error_after_such_a_change_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: Any) -> None:
        np.float32(3e38) * np.float32(10)

    monkeypatch.setattr(Run, "log", overflow)
    before = np.geterr()
    try:
        with pytest.raises(t3d.BrokenEnvironment, match="NumPy's error handling") as raised:
            in_memory(RaisesLater, log_every=7)
    finally:
        np.seterr(**before)
    assert "FloatingPointError" in str(raised.value)
