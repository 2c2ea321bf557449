import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import t3d
from helpers.runs import (
    metrics_without_time,
    read_json,
    same_bits,
    same_bits_and_records,
    t3d_process,
)
from helpers.sweeps import ENVS, KNOBS, toml
from t3d.cli.main import main
from t3d.study.job import STOPPED
from t3d.study.spec import Spec, runs_of
from t3d.study.sweep import assign_threads
from t3d.study.workers import job

# The uninterrupted sweep is trained once, so in one process.
pytestmark = pytest.mark.xdist_group("sweep")

NAN = "helpers.broken_envs-NanObservation-seed0"


def test_runs_divide_the_cores_unless_threads_are_set() -> None:
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 3})
    for cores, jobs, expected, threads in ((2, None, 2, 1), (8, None, 3, 2), (8, 1, 1, 8)):
        runs = runs_of(spec, Path("runs"))
        assert assign_threads(runs, spec, cores, jobs) == expected
        assert {run.config.threads for run in runs} == {threads}
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 9, "knobs": {"threads": 2}})
    runs = runs_of(spec, Path("runs"))
    assert assign_threads(runs, spec, 8, None) == 4
    assert {run.config.threads for run in runs} == {2}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of 2 environments x 2 seeds that nothing interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    spec = toml(folder / "spec.toml", env=ENVS, seeds=2)
    assert main(["sweep", spec, "--out", str(folder / "out"), "--jobs", "2"]) == 0
    return folder / "out"


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("*-seed*"))


def wait_until(is_so: Callable[[], object], sweep: "subprocess.Popen[str]") -> None:
    """Wait for what the files of a sweep are to show; one that ends before is a failure."""
    while not is_so():
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.01)


def in_the_middle(out: Path) -> list[Path]:
    """Runs that have a checkpoint and are not finished."""
    last = f"step-{KNOBS['steps']:012d}"
    started = {path.parents[1] for path in out.glob("*/checkpoints/step-*")}
    return [run for run in started if not (run / "checkpoints" / last).exists()]


def children(sweep: "subprocess.Popen[str]") -> list[int]:
    words = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(sweep.pid)]
    listed = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if "t3d.study.job" in line]


def wait_until_gone(processes: list[int]) -> None:
    until = time.monotonic() + 120
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until, f"still there: {processes}"
        time.sleep(0.01)


def stamps(run: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}


def test_a_sweep_that_is_killed_and_stopped_ends_with_the_same_bits(
    uninterrupted: Path, tmp_path: Path
) -> None:
    spec = toml(tmp_path / "spec.toml", env=ENVS, seeds=2)
    out = tmp_path / "runs" / "spec"  # named after the spec

    first = t3d_process("sweep", spec, "--jobs", "2", cwd=tmp_path)
    wait_until(lambda: in_the_middle(out), first)
    runs = children(first)
    assert runs
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=300)

    # At once, while runs of the first may still be saving.
    second = t3d_process("sweep", spec, "--jobs", "2", cwd=tmp_path)
    wait_until_gone(runs)
    wait_until(lambda: list(out.glob("*/score.json")) and in_the_middle(out), second)
    runs = children(second)
    assert runs
    second.send_signal(signal.SIGTERM)
    output, err = second.communicate(timeout=300)
    assert second.returncode == 143, err
    assert "Stopped and saved. Resume with: t3d sweep runs/spec --jobs 2" in output
    assert err == ""
    assert not any(Path(f"/proc/{process}").exists() for process in runs)
    assert len(list(out.glob("*/score.json"))) < 4
    done = next(out.glob("*/score.json")).parent
    before = stamps(done)

    assert main(["sweep", str(out)]) == 0
    assert names(out) == names(uninterrupted)
    for name in names(uninterrupted):
        assert same_bits_and_records(out / name, uninterrupted / name)
        assert t3d.inspect(out / name)["digest"] == t3d.inspect(uninterrupted / name)["digest"]
        assert read_json(out / name / "score.json") == read_json(
            uninterrupted / name / "score.json"
        )
    assert stamps(done) == before  # finished runs are not touched
    assert list(out.glob("*.log")) == []


def test_a_run_of_a_sweep_is_what_train_makes(uninterrupted: Path, tmp_path: Path) -> None:
    knobs = KNOBS | {"hidden": (8, 8)}
    t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, seed=1, **knobs)
    run = uninterrupted / "Pendulum-v1-seed1"
    assert same_bits(tmp_path / "run", run)
    again = read_json(run / "run.json")["command"].removeprefix("t3d ")
    assert main([*shlex.split(again), "--run", str(tmp_path / "again"), "--no-video"]) == 0
    assert same_bits(tmp_path / "again", run)
    ours = {path.name for path in (tmp_path / "run").iterdir()}
    pictures = {"curve.png", "curve.svg", "report.html"}  # a sweep has them for all its runs
    assert ours == {path.name for path in run.iterdir()} | pictures
    assert read_json(run / "score.json")["mean"] == t3d.evaluate(tmp_path / "run").mean


def test_another_config_is_refused_and_more_steps_go_further(
    uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    spec = toml(tmp_path / "spec.toml", env=ENVS[0], knobs={"steps": 60})
    assert main(["sweep", spec, "--out", out]) == 0
    run = tmp_path / "out" / "Pendulum-v1-seed0"
    before = stamps(tmp_path / "out")
    for knobs, what in (
        ({"steps": 60, "tau": 0.5}, "tau is 0.01 there and 0.5 here"),
        ({"steps": 40}, "steps is 60 there and 40 here"),
    ):
        spec = toml(tmp_path / "spec.toml", env=ENVS[0], seeds=2, knobs=knobs)
        assert main(["sweep", spec, "--out", out]) == 2
        assert f"{run} holds another run: {what}; choose another" in capsys.readouterr().err
    assert stamps(tmp_path / "out") == before
    spec = toml(tmp_path / "spec.toml", env=ENVS[0])
    assert main(["sweep", spec, "--out", out]) == 0
    assert same_bits(run, uninterrupted / "Pendulum-v1-seed0")


def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    assert main(["sweep", "Pendulum-v1", "--out", str(tmp_path / "mine")]) == 2
    assert "exists and is not the folder of a sweep" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", ["resume", "check", "eval"])
def test_a_sweep_is_not_a_run(
    command: str, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(uninterrupted)]) == 2
    assert "is the folder of a sweep; name one of its runs, or take all" in capsys.readouterr().err


def test_a_run_that_is_stopped_as_it_starts_leaves_no_incomplete_folder(tmp_path: Path) -> None:
    (run,) = runs_of(Spec(["Pendulum-v1"], [0], "auto", KNOBS | {"threads": 1}), tmp_path / "out")
    (tmp_path / "out").mkdir()
    words = [sys.executable, "-m", "t3d.study.job"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(job(run).encode() + b"\n")
        process.stdin.flush()
        while not any((tmp_path / "out").iterdir()):  # its folder, or what will be it
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == STOPPED
    assert list((tmp_path / "out").iterdir()) == [run.path]
    assert t3d.inspect(run.path)["step"] is not None


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    knobs = {"steps": 60, "eval_every": 0}
    spec = toml(
        tmp_path / "s.toml", env=["helpers.broken_envs:NanObservation", ENVS[0]], knobs=knobs
    )
    sweep = t3d_process("sweep", spec, cwd=tmp_path)
    output, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 2
    assert err == ""
    why = "environment 0 (helpers.broken_envs:NanObservation)"
    assert re.search(rf"^{NAN} failed: {re.escape(why)}.* observation\[1\] is nan", output, re.M)
    assert "1 of 2 failed. Try again: t3d sweep runs/s" in output
    assert t3d.inspect(tmp_path / "runs" / "s" / "Pendulum-v1-seed0")["finished"]
    assert why in (tmp_path / "runs" / "s" / f"{NAN}.log").read_text()


def test_two_sweeps_in_one_folder_are_refused(tmp_path: Path) -> None:
    spec = toml(tmp_path / "s.toml", env=ENVS[0], knobs={"steps": 10**6})
    sweep = t3d_process("sweep", spec, cwd=tmp_path)
    wait_until(lambda: in_the_middle(tmp_path / "runs" / "s"), sweep)
    other = t3d_process("sweep", spec, cwd=tmp_path)
    _, err = other.communicate(timeout=300)
    assert other.returncode == 2
    assert f"runs/s is in use by process {sweep.pid}" in err
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 130
    assert "Stopped and saved" in output


def test_the_runs_can_be_tasks_of_ray_and_are_the_same(uninterrupted: Path, tmp_path: Path) -> None:
    spec = toml(tmp_path / "spec.toml", env=ENVS, seeds=2)
    out = tmp_path / "runs" / "spec"
    sweep = t3d_process("sweep", spec, "--ray", "local", cwd=tmp_path)
    wait_until(lambda: list(out.glob("*/score.json")) and in_the_middle(out), sweep)
    sweep.send_signal(signal.SIGINT)
    output, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 130, err
    assert "Resume with: t3d sweep runs/spec --ray local" in output
    finished = {path.parent.name for path in out.glob("*/score.json")}
    assert finished < set(names(uninterrupted))
    for run in {*in_the_middle(out), *(out / name for name in finished)}:
        # Its task saved, and nothing was lost. One that had just begun may have no record yet.
        recorded = [record["step"] for record in metrics_without_time(run)]
        assert t3d.inspect(run)["step"] >= max(recorded, default=0)

    # What Ray began can be finished without it.
    assert main(["sweep", str(out)]) == 0
    assert names(out) == names(uninterrupted)
    for name in names(uninterrupted):
        assert same_bits(out / name, uninterrupted / name)
        assert read_json(out / name / "score.json") == read_json(
            uninterrupted / name / "score.json"
        )
