"""The fused engine's bits are its own, whatever the processor makes of the libraries' products."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import TINY, metrics_without_time, same_bits

# What PyTorch, MKL, NumPy and OpenBLAS do on a processor that has little more than SSE.
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Prescott",
}
SCRIPT = """
import sys, numpy, torch, t3d
t3d.train("Hopper-v5", run=sys.argv[1], engine="fused", quiet=True, **{knobs})
numbers = numpy.random.default_rng(0).random((256, 256))
small = numbers.astype("float32")
product = (torch.from_numpy(small) @ torch.from_numpy(small)).numpy()
print(*(hash(found.tobytes()) for found in (product, numpy.exp(small), numbers @ numbers)))
"""


def train(run: Path, variables: dict[str, str]) -> list[str]:
    """Make a run in a process with these variables; returns a number of each library there."""
    knobs = TINY | {"steps": 600, "hidden": (64, 48), "batch_size": 64, "eval_every": 200}
    usual = {name: value for name, value in os.environ.items() if name not in PLAIN}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(knobs=knobs), str(run)],
        env=usual | variables | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables are for x86 alone")
def test_a_run_does_not_depend_on_the_kernels_of_the_libraries(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    usual, plain = train(one, {}), train(other, PLAIN)
    assert len(usual) == len(plain) == 3
    assert all(a != b for a, b in zip(usual, plain)), (usual, plain)  # other kernels, all of them
    assert same_bits(one, other)
    for mine, theirs in zip(metrics_without_time(one), metrics_without_time(other), strict=True):
        # The one number that PyTorch measures, on its way to the page and to nothing else.
        close = mine.pop("estimated_Q", 0.0), theirs.pop("estimated_Q", 0.0)
        np.testing.assert_allclose(*close, rtol=1e-4, atol=1e-6)
        assert mine == theirs
