"""Commands as they are typed, and how to wait for one that trains."""

import subprocess
import time
from pathlib import Path

from helpers.runs import TINY
from t3d.base.knobs import flag
from t3d.run.folder import RunFolder
from t3d.run.records import Training

# The words that type the knobs of TINY.
TINY_FLAGS = " ".join(flag(knob, value) for knob, value in TINY.items()).split()


def wait_for_step(run: Path, step: int, trainer: "subprocess.Popen[str]") -> None:
    """Until the run has logged that step; a trainer that ends before is a failure."""
    folder = RunFolder(run)
    while not folder.metrics_path.exists():
        assert trainer.poll() is None, trainer.communicate()
        time.sleep(0.01)
    while not any(record.step >= step for record in folder.records(Training)):
        assert trainer.poll() is None, trainer.communicate()
        time.sleep(0.01)
