import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import t3d
from helpers.runs import TINY, resumed
from t3d.play.envs import EnvMaker
from t3d.run.folder import RunFolder
from t3d.run.lock import Lock, alone, is_locked
from t3d.run.loop import Run


def test_a_second_trainer_of_a_run_is_refused(tmp_path: Path) -> None:
    config = t3d.Config.from_dict({"env": "Pendulum-v1", **TINY})
    folder = RunFolder(tmp_path / "run")
    with closing(Run.start(EnvMaker(config.env, config), folder)):
        assert t3d.inspect(folder.path)["training"]
        with pytest.raises(t3d.BadInput, match=f"in use by process {os.getpid()} on"):
            t3d.resume(folder.path, quiet=True)
    assert not t3d.inspect(folder.path)["training"]
    resumed(folder.path)


def test_a_lock_is_free_after_its_release_which_may_come_twice(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not is_locked(folder)
    lock = Lock(folder)
    assert is_locked(folder)
    lock.release()
    lock.release()
    assert not is_locked(folder)
    Lock(folder).release()


def test_a_lock_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(t3d.CannotWrite, match=r"lock cannot be written: No such file"):
        Lock(RunFolder(tmp_path / "nowhere"))


def test_a_folder_keeps_its_id(tmp_path: Path) -> None:
    with alone(tmp_path) as first:
        assert len(first) == 32
    with alone(tmp_path / "." / "..") as other, alone(tmp_path) as again:
        assert again == first != other


def test_a_copy_of_the_folder_made_by_the_trainer_does_not_free_its_lock_for_long(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    lock = Lock(folder)
    try:
        (tmp_path / "lock").read_bytes()  # closes the file, which drops a lock of this process
        lock.renew()
        code = "from t3d.run.lock import *; print(is_locked(RunFolder('.')))"
        answer = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert answer.stdout == "True\n"
    finally:
        lock.release()
    lock.renew()
    assert not is_locked(folder)
