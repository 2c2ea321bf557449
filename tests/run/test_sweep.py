import dataclasses
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers.runs import TINY, metrics_without_time, read_json, same_bits, t3d_process
from t3d.base.errors import T3DError
from t3d.cli.main import main
from t3d.study.cell import STOPPED
from t3d.study.sweep import Spec, cells_of, job, read_spec, share

ENVS = ["Pendulum-v1", "InvertedPendulum-v5"]
NAN = "helpers.broken_envs-NanObservation-seed0"
KNOBS: dict[str, Any] = TINY | {"hidden": [8, 8], "steps": 3000, "checkpoint_every": 100}


def toml(path: Path, text: str = "", **values: Any) -> str:
    """A spec of tiny runs as a file; JSON's values are TOML's."""
    knobs = KNOBS | values.pop("knobs", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    lines += ["[knobs]", *(f"{name} = {json.dumps(value)}" for name, value in knobs.items())]
    path.write_text(text or "\n".join(lines))
    return str(path)


def test_cells_are_environments_x_knobs_x_seeds(tmp_path: Path) -> None:
    knobs = {"tau": [0.005, 0.01], "hidden": [[64, 64], [256]]}
    path = toml(tmp_path / "spec.toml", env=ENVS, seeds=[0, 5], knobs=knobs)
    cells = cells_of(read_spec(Path(path)), tmp_path)
    assert len({cell.path for cell in cells}) == len(cells) == 2 * 2 * 2 * 2
    last = cells[-1]
    assert last.path == tmp_path / "InvertedPendulum-v5-hidden-256-tau-0.01-seed5"
    assert last.setting == "hidden 256, tau 0.01"
    assert (last.config.tau, last.config.hidden, last.config.seed) == (0.01, (256,), 5)
    assert last.preset == last.config.env == "InvertedPendulum-v5"
    assert last.config.learning_rate == 1e-3  # the preset's
    assert cells[0].path.name == "Pendulum-v1-hidden-64x64-tau-0.005-seed0"


def test_variants_are_knobs_that_differ_together(tmp_path: Path) -> None:
    text = """
        env = "Pendulum-v1"
        [knobs]
        tau = [0.1, 0.2]
        policy_freq = 3
        [variants.whole]
        [variants."no twins, no delay"]
        twins = false
        policy_freq = 1
    """
    cells = cells_of(read_spec(Path(toml(tmp_path / "spec.toml", text))), tmp_path)
    assert [cell.setting for cell in cells] == [
        *("whole, tau 0.1", "whole, tau 0.2"),
        *("no twins, no delay, tau 0.1", "no twins, no delay, tau 0.2"),
    ]
    assert [(c.config.twins, c.config.policy_freq, c.config.tau) for c in cells] == [
        *((True, 3, 0.1), (True, 3, 0.2)),
        *((False, 1, 0.1), (False, 1, 0.2)),
    ]
    assert cells[-1].path.name == "Pendulum-v1-no-twins--no-delay-tau-0.2-seed0"


def test_a_list_is_one_value_of_a_knob_that_takes_lists() -> None:
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 2, "knobs": {"hidden": [8, 8]}})
    assert spec.axes() == {}
    assert [cell.path.name for cell in cells_of(spec, Path("runs"))] == [
        "Pendulum-v1-seed0",
        "Pendulum-v1-seed1",
    ]


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    values = {"env": "Pendulum-v1", "seeds": [4], "knobs": {"tau": [0.1]}}
    spec = Spec.from_dict(values | {"variants": {"whole": {}, "one critic": {"twins": False}}})
    (tmp_path / "sweep.json").write_text(json.dumps(dataclasses.asdict(spec)))
    assert read_spec(tmp_path) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env =", "is not TOML: Invalid value"),
        ('env = "\\udc80"', "is not TOML"),
        ("seeds = 1", "env is None; expected the name of an environment, or a list"),
        ("env = []", "env is []; expected"),
        ('env = ["Pendulum-v1", 3]', "env is ['Pendulum-v1', 3]; expected"),
        ('env = "E"\nsead = 1', "a sweep has no 'sead'; did you mean 'seeds'?"),
        ('env = "E"\nseed = 1', "a sweep has no 'seed'; did you mean 'seeds'?"),
        ('env = "E"\ntau = 1', "a sweep has no 'tau'; knobs go under [knobs]"),
        ('env = "E"\n[knob]\ntau = 1', "a sweep has no 'knob'; did you mean 'knobs'?"),
        ('env = "E"\nknobs = 3', "knobs is 3; expected a table"),
        ('env = "E"\npreset = 3', "preset is 3; expected a name"),
        ('env = "E"\npreset = "papr-2018"', "did you mean 'paper-2018'?"),
        ('env = "E"\nseeds = 0', "seeds is 0; expected how many, at least 1"),
        ('env = "E"\nseeds = []', "seeds is []; expected"),
        ('env = "E"\nseeds = true', "seeds is True; expected"),
        ('env = "E"\nseeds = [1, -1]', "seeds is [1, -1]; expected"),
        ('env = "E"\nseeds = [7, 7]', "seeds is [7, 7]: one is there twice"),
        ('env = "E"\nseeds = 1000000000000', "cells or more; expected at most 10,000"),
        ('env = "E"\n[knobs]\nseed = 1', "seed is no knob of a sweep; say seeds"),
        ('env = "E"\n[knobs]\nenv = "F"', "env is no knob of a sweep; say env"),
        ('env = "E"\n[knobs]\ntua = 1', "unknown knob 'tua'; did you mean 'tau'?"),
        ('env = "E"\n[knobs]\ntau = []', "tau is an empty list"),
        ('env = "E"\n[knobs]\ntau = [0.1, 7]', "tau is 7; expected a number"),
        ('env = "E"\n[knobs]\ntau = 1979-05-27', "tau is datetime.date(1979, 5, 27); expected"),
        ('env = "E"\n[knobs]\ntau = [0.1, 0.1]', "two cells would be E-tau-0.1-seed0"),
        ('env = ["E", "E"]', "two cells would be E-seed0"),
        ('env = "E"\nvariants = 3', "variants is 3; expected tables, [variants.NAME]"),
        ('env = "E"\n[variants]\nv = 3', "variants.v is 3; expected a table, [variants.v]"),
        ('env = "E"\n[variants.v]\ntua = 1', "unknown knob 'tua'; did you mean 'tau'?"),
        ('env = "E"\n[variants.v]\ntau = [1, 2]', "tau is [1, 2]; expected a number"),
        ('env = "E"\n[variants.v]\nthreads = 2', "threads is shared out to all cells alike; take"),
        (
            'env = "E"\n[knobs]\ntau = [0.1, 0.2]\n[variants.v]\ntau = 1',
            "tau is an axis; take it out of [variants.v]",
        ),
        ('env = "E"\n[variants.a-b]\n[variants."a b"]', "two cells would be E-a-b-seed0"),
        ('env = "E"\n[knobs]\nhidden = [[8], ["x"]]', "hidden is 'x'; expected a whole number"),
    ],
)
def test_a_bad_spec_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = Path(toml(tmp_path / "spec.toml", text))
    with pytest.raises(T3DError) as refused:
        cells_of(read_spec(path), tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_cells_share_the_cores_unless_threads_are_set() -> None:
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 3})
    for cores, jobs, expected, threads in ((2, None, 2, 1), (8, None, 3, 2), (8, 1, 1, 8)):
        cells = cells_of(spec, Path("runs"))
        assert share(cells, spec, cores, jobs) == expected
        assert {cell.config.threads for cell in cells} == {threads}
    spec = Spec.from_dict({"env": "Pendulum-v1", "seeds": 9, "knobs": {"threads": 2}})
    cells = cells_of(spec, Path("runs"))
    assert share(cells, spec, 8, None) == 4
    assert {cell.config.threads for cell in cells} == {2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of 2 environments x 3 seeds that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    spec = toml(folder / "spec.toml", env=ENVS, seeds=3)
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
    """Cells with a checkpoint that are not at their end."""
    last = f"step-{KNOBS['steps']:012d}"
    found = {path.parents[1] for path in out.glob("*/checkpoints/step-*")}
    return [run for run in found if not (run / "checkpoints" / last).exists()]


def children(sweep: "subprocess.Popen[str]") -> list[int]:
    words = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(sweep.pid)]
    listed = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if "t3d.study.cell" in line]


def wait_until_gone(processes: list[int]) -> None:
    until = time.monotonic() + 120
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until, f"still there: {processes}"
        time.sleep(0.01)


def stamps(run: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}


def test_a_sweep_that_is_killed_and_stopped_ends_with_the_same_bits(
    whole: Path, tmp_path: Path
) -> None:
    spec = toml(tmp_path / "spec.toml", env=ENVS, seeds=3)
    out = tmp_path / "runs" / "spec"  # named after the spec

    first = t3d_process("sweep", spec, "--jobs", "2", cwd=tmp_path)
    wait_until(lambda: list(out.glob("*/score.json")) and in_the_middle(out), first)
    cells = children(first)
    assert cells
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=300)
    done = next(out.glob("*/score.json")).parent
    before, count = stamps(done), len(list(out.glob("*/score.json")))

    # At once, while cells of the first may still be saving.
    second = t3d_process("sweep", spec, "--jobs", "2", cwd=tmp_path)
    wait_until_gone(cells)
    wait_until(lambda: len(list(out.glob("*/score.json"))) > count and in_the_middle(out), second)
    cells = children(second)
    assert cells
    second.send_signal(signal.SIGTERM)
    said, err = second.communicate(timeout=300)
    assert second.returncode == 143, err
    assert "Stopped and saved. Go on with: t3d sweep runs/spec --jobs 2" in said
    assert err == ""
    assert not any(Path(f"/proc/{process}").exists() for process in cells)
    assert len(list(out.glob("*/score.json"))) < 6

    assert main(["sweep", str(out)]) == 0
    assert names(out) == names(whole)
    for name in names(whole):
        assert same_bits(out / name, whole / name)
        assert t3d.inspect(out / name)["digest"] == t3d.inspect(whole / name)["digest"]
        assert metrics_without_time(out / name) == metrics_without_time(whole / name)
        assert read_json(out / name / "score.json") == read_json(whole / name / "score.json")
    assert stamps(done) == before  # finished cells are not touched
    assert list(out.glob("*.log")) == []


def test_a_cell_is_what_train_makes(whole: Path, tmp_path: Path) -> None:
    knobs = KNOBS | {"hidden": (8, 8)}
    t3d.train("Pendulum-v1", run=tmp_path / "run", quiet=True, seed=1, **knobs)
    cell = whole / "Pendulum-v1-seed1"
    assert same_bits(tmp_path / "run", cell)
    again = read_json(cell / "run.json")["command"].removeprefix("t3d ")
    assert main([*shlex.split(again), "--run", str(tmp_path / "again"), "--no-video"]) == 0
    assert same_bits(tmp_path / "again", cell)
    ours = {path.name for path in (tmp_path / "run").iterdir()}
    pictures = {"curve.png", "curve.svg", "report.html"}  # a sweep draws all its runs together
    assert {path.name for path in cell.iterdir()} == ours - pictures
    assert read_json(cell / "score.json")["mean"] == t3d.evaluate(tmp_path / "run").mean


def test_another_config_is_refused_and_more_steps_go_further(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
        assert f"{run} holds another run: {what}; take another" in capsys.readouterr().err
    assert stamps(tmp_path / "out") == before
    spec = toml(tmp_path / "spec.toml", env=ENVS[0])
    assert main(["sweep", spec, "--out", out]) == 0
    assert same_bits(run, whole / "Pendulum-v1-seed0")


def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    assert main(["sweep", "Pendulum-v1", "--out", str(tmp_path / "mine")]) == 2
    assert "is there and is not the folder of a sweep" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", ["resume", "check", "eval"])
def test_a_sweep_is_no_run(command: str, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(whole)]) == 2
    assert "is the folder of a sweep; name one of its runs, or take all" in capsys.readouterr().err


def test_a_cell_that_is_stopped_as_it_begins_leaves_no_half_of_a_folder(tmp_path: Path) -> None:
    (cell,) = cells_of(Spec(["Pendulum-v1"], [0], "auto", KNOBS | {"threads": 1}), tmp_path / "out")
    (tmp_path / "out").mkdir()
    words = [sys.executable, "-m", "t3d.study.cell"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(job(cell).encode() + b"\n")
        process.stdin.flush()
        while not any((tmp_path / "out").iterdir()):  # its folder, or what will be it
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == STOPPED
    assert list((tmp_path / "out").iterdir()) == [cell.path]
    assert t3d.inspect(cell.path)["step"] is not None


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    knobs = {"steps": 60, "eval_every": 0}
    spec = toml(
        tmp_path / "s.toml", env=["helpers.broken_envs:NanObservation", ENVS[0]], knobs=knobs
    )
    sweep = t3d_process("sweep", spec, cwd=tmp_path)
    said, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 2
    assert err == ""
    why = "environment 0 (helpers.broken_envs:NanObservation)"
    assert re.search(rf"^{NAN} failed: {re.escape(why)}.* observation\[1\] is nan", said, re.M)
    assert "1 of 2 failed. Try again: t3d sweep runs/s" in said
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
    said, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 130
    assert "Stopped and saved" in said


def test_the_cells_can_be_tasks_of_ray_and_are_the_same(whole: Path, tmp_path: Path) -> None:
    spec = toml(tmp_path / "spec.toml", env=ENVS[0], seeds=2)
    out = tmp_path / "runs" / "spec"
    # Stopped in the middle, its tasks save; it goes on with Ray or without.
    longer = toml(tmp_path / "longer.toml", env=ENVS[0], knobs={"steps": 10**6})
    sweep = t3d_process("sweep", longer, "--ray", "local", cwd=tmp_path)
    wait_until(lambda: in_the_middle(tmp_path / "runs" / "longer"), sweep)
    sweep.send_signal(signal.SIGINT)
    said, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 130, err
    assert "Go on with: t3d sweep runs/longer --ray local" in said
    stopped = t3d.inspect(tmp_path / "runs" / "longer" / "Pendulum-v1-seed0")
    *_, last = metrics_without_time(stopped["run"])
    assert stopped["step"] >= last["step"]  # it saved, and nothing was lost

    sweep = t3d_process("sweep", spec, "--ray", "local", cwd=tmp_path)
    said, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, err
    for name in ("Pendulum-v1-seed0", "Pendulum-v1-seed1"):
        assert same_bits(out / name, whole / name)
        assert read_json(out / name / "score.json") == read_json(whole / name / "score.json")
