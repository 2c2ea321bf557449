"""Commands as they are typed: wait for one that trains, and check that bad input is refused."""

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.runs import TINY
from t3d.base.knobs import flag
from t3d.cli.main import main
from t3d.run.folder import RunFolder
from t3d.run.records import Training

# The words that type the knobs of TINY.
TINY_FLAGS = " ".join(flag(knob, value) for knob, value in TINY.items()).split()


def wait_for_step(run: Path, step: int, trainer: "subprocess.Popen[str]") -> None:
    """Until the run has logged that step; a trainer that ends before is a failure."""
    folder = RunFolder(run)
    while not folder.metrics_path.exists():
        assert trainer.poll() is None, trainer.communicate()
        time.sleep(0.03)
    while not any(record.step >= step for record in folder.records(Training)):
        assert trainer.poll() is None, trainer.communicate()
        time.sleep(0.03)  # the trainer needs the core more


def assert_refused(words: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command exits with code 2 and prints one line, with this message in it."""
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert message in error, error
    assert re.fullmatch(r"t3d: .+\n", error)
