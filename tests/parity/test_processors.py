"""The fused engine's bits are its own, whatever the processor makes of the libraries' products."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

from conftest import TINY, metrics_without_time, same_bits

# What PyTorch, MKL, NumPy and OpenBLAS do on a processor that has nothing but SSE.
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "FMA3 AVX2",
    "OPENBLAS_CORETYPE": "Prescott",
}
SCRIPT = """
import sys, torch, t3d
t3d.train("Hopper-v5", run=sys.argv[1], engine="fused", **{knobs})
torch.manual_seed(0)
print((torch.rand(256, 256) @ torch.rand(256, 256)).double().sum().item())
"""


def train(run: Path, variables: dict[str, str]) -> str:
    """Make a run in a process with these environment variables; returns a product of PyTorch's."""
    knobs = TINY | {"steps": 600, "hidden": (64, 48), "batch_size": 64, "eval_every": 200}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(knobs=knobs), str(run)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_run_does_not_depend_on_the_kernels_of_the_libraries(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    usual, plain = train(one, {}), train(other, PLAIN)
    if platform.machine() == "x86_64":
        assert usual != plain  # the variables do what they are for
    assert same_bits(one, other)
    for mine, theirs in zip(metrics_without_time(one), metrics_without_time(other), strict=True):
        # The one number that PyTorch measures, on its way to the page and to nothing else.
        close = mine.pop("estimated_Q", 0.0), theirs.pop("estimated_Q", 0.0)
        np.testing.assert_allclose(*close, rtol=1e-4, atol=1e-6)
        assert mine == theirs
