import json
import os
from pathlib import Path
from typing import Any

import pytest

import t3d
from helpers import broken_envs
from helpers.runs import TINY, read_json, trained
from t3d.run.folder import RunFolder, safe_name


def test_the_run_folder_holds_what_it_says(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", seed=3)
    assert read_json(run / "config.json")["seed"] == 3
    assert t3d.Config.from_dict(read_json(run / "config.json")) == RunFolder(run).config()
    about = read_json(run / "run.json")
    assert about["preset"] == "default"
    assert {"t3d", "torch", "gymnasium", "numpy", "python"} <= about["versions"].keys()
    checkpoints = sorted(p.name for p in (run / "checkpoints").iterdir())
    assert checkpoints == ["step-000000000040", "step-000000000060"]
    assert (run / "best.safetensors").is_file()


@pytest.mark.parametrize(
    "bad",
    [
        {"env": "CartPole-v1"},
        {"device": "nonsense"},
        {"tau": 9},
        {"capacity": 10**10},
        {"env": 123},
        {"env": broken_envs.Calm()},
    ],
)
def test_bad_input_leaves_no_folder_behind(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(t3d.T3DError):
        trained(tmp_path / "run", **bad)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(
        t3d.BadInput, match=r"exists; choose another with --run \(in Python, run=\)$"
    ):
        t3d.train("Pendulum-v1", run=tmp_path, quiet=True, **TINY)
    with pytest.raises(
        t3d.BadInput, match=r"exists; choose another with --run \(in Python, run=\)$"
    ):
        trained(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_another_run_takes_at_the_last_moment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def too_late(draft: Path, path: Path) -> None:
        (tmp_path / "run" / "checkpoints").mkdir(parents=True)
        rename(draft, path)

    monkeypatch.setattr(os, "rename", too_late)
    with pytest.raises(t3d.BadInput, match=r"run folder .* exists; choose another with --run"):
        RunFolder(tmp_path / "run").create(t3d.Config(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_existing_run_is_not_resumed_by_train(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=30)
    before = t3d.inspect(run)
    with pytest.raises(t3d.BadInput, match=rf"exists; .* or resume it: t3d resume {run}"):
        t3d.train("Pendulum-v1", run=run, quiet=True, **TINY)
    assert t3d.inspect(run) == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(t3d.CannotWrite, match=r"run folder .* cannot be written: Not a directory$"):
        trained(tmp_path / "file" / "run")


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(t3d.BadInput, match="no run folder at"):
        t3d.load(tmp_path / "nowhere")
    with pytest.raises(t3d.BadInput, match=r"is not a run folder: it has no config\.json"):
        t3d.load(tmp_path)
    (tmp_path / "config.json").write_text("[1, 2")
    with pytest.raises(t3d.BadInput, match=r"config\.json cannot be read"):
        t3d.evaluate(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"tua": 1}))
    with pytest.raises(t3d.BadInput, match="no best agent yet"):
        t3d.load(tmp_path)
    with pytest.raises(t3d.BadInput, match="unknown knob 'tua'; did you mean 'tau'"):
        RunFolder.open(tmp_path).config()


def test_default_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        RunFolder.free_path("Pendulum-v1", 0).mkdir(parents=True)
    names = sorted(os.listdir("runs"))
    assert names == ["Pendulum-v1-seed0", "Pendulum-v1-seed0-2", "Pendulum-v1-seed0-3"]


def test_a_long_name_becomes_a_folder_that_every_file_system_allows() -> None:
    assert safe_name("my_robot:Robot-v0") == "my_robot-Robot-v0"
    long = [safe_name(letter * 300 + end) for letter in "xé" for end in "12"]
    assert len(set(long)) == 4
    assert all(150 < len(name.encode()) <= 200 for name in long)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 300, "x{300} cannot be used: File name too long$"),
        ("x/" * 3000, "cannot be used: File name too long$"),
        ("", "^a path is ''; expected the path of a file or a folder$"),
        ("a\0b", "cannot be used: embedded null byte$"),
    ],
)
def test_a_path_that_no_system_takes_is_one_line(path: str, message: str) -> None:
    for use in (RunFolder, RunFolder.open, t3d.inspect, t3d.load, t3d.evaluate):
        with pytest.raises(t3d.BadInput, match=message):
            use(path)


def test_the_longest_name_that_a_file_system_allows_is_a_run(tmp_path: Path) -> None:
    run = trained(tmp_path / ("x" * 255), steps=10)
    assert os.listdir(tmp_path) == [run.name]


def test_a_folder_that_looks_like_an_option_can_be_typed(tmp_path: Path) -> None:
    assert str(RunFolder("-rf")) == "./-rf"
    assert str(RunFolder("-r f")) == "'./-r f'"
    assert str(RunFolder(tmp_path / "-rf")) == f"{tmp_path}/-rf"
