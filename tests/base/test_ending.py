"""A program ends, whatever was started in it."""

import subprocess
import sys
from pathlib import Path

import pytest

LEFT = {
    "a thread": "threading.Thread(target=time.sleep, args=[60], name='sensor').start()",
    "an exit hook": "atexit.register(time.sleep, 60)",
    "a child": "multiprocessing.get_context('fork').Process(target=time.sleep, args=[60]).start()",
}


def program(line: str, folder: Path) -> tuple[int, str]:
    """Its exit code and all that it prints. A child that it leaves would keep a pipe open."""
    code = f"""
import atexit, multiprocessing, threading, time
from t3d.base import ending
ending.PATIENCE = 0.2
{line}
ending.leave(3)
"""
    with open(folder / "printed", "w") as printed:
        words = [sys.executable, "-c", code]
        ended = subprocess.run(words, stdout=printed, stderr=printed, timeout=30)
    return ended.returncode, (folder / "printed").read_text()


@pytest.mark.parametrize("name", LEFT)
def test_a_program_ends_without_what_does_not_end(name: str, tmp_path: Path) -> None:
    code, printed = program(LEFT[name], tmp_path)
    what = "threads sensor" if name == "a thread" else "a child process or an exit hook"
    assert code == 3
    assert printed.startswith(f"t3d: {what} did not end within 0.2 s;")
    assert printed.count("\n") == 1


def test_a_program_that_left_nothing_ends_in_silence(tmp_path: Path) -> None:
    assert program("", tmp_path) == (3, "")
