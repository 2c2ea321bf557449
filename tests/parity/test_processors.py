"""The fused engine's bits are its own, whatever a processor makes of libraries and of loops."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from helpers.runs import TINY, metrics_without_time, same_bits

# The run to compare with is made once, so in one process.
pytestmark = pytest.mark.xdist_group("processors")

# What PyTorch, MKL, NumPy and OpenBLAS do on a processor that has little more than SSE.
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Prescott",
}
# What the compiler does for a processor whose vectors are half as wide.
NARROW = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+prefer-128-bit"}
SCRIPT = """
import sys, numba, numpy, torch, t3d
t3d.train("Hopper-v5", run=sys.argv[1], engine="fused", quiet=True, **{knobs})
numbers = numpy.random.default_rng(0).random((256, 256))
small = numbers.astype("float32")
product = (torch.from_numpy(small) @ torch.from_numpy(small)).numpy()

@numba.njit(fastmath={{"reassoc"}})
def sum_in_any_order(numbers):
    total = numbers[0]
    for i in range(1, numbers.size):
        total += numbers[i]
    return total

totals = numpy.array([sum_in_any_order(row) for row in small])
for array in (product, numpy.exp(small), numbers @ numbers, totals):
    print(hash(array.tobytes()))
"""


def train(run: Path, variables: dict[str, str]) -> list[str]:
    """Make a run in a process with these variables.

    Returns what each library makes of some numbers there, and what the compiler makes of sums whose
    order it may choose.
    """
    knobs = TINY | {"steps": 600, "hidden": (64, 48), "batch_size": 64, "eval_every": 200}
    usual = {name: value for name, value in os.environ.items() if name not in PLAIN | NARROW}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(knobs=knobs), str(run)],
        env=usual | variables | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The run on this processor as it is, and what its libraries make of some numbers."""
    run = tmp_path_factory.mktemp("usual") / "run"
    return run, train(run, {})


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables are for x86 alone")
@pytest.mark.parametrize(
    ("variables", "changed"),
    [
        pytest.param(PLAIN, [0, 1, 2], id="plain libraries"),
        pytest.param(
            NARROW,
            [3],
            marks=pytest.mark.skipif(
                not all(binding.get_host_cpu_features().get(name) for name in ("avx2", "fma")),
                reason="a Haswell's instructions are needed",
            ),
            id="narrow vectors",
        ),
    ],
)
def test_a_run_does_not_depend_on_the_kernels_of_libraries_or_the_width_of_vectors(
    variables: dict[str, str],
    changed: list[int],
    usual: tuple[Path, list[str]],
    tmp_path: Path,
) -> None:
    (one, here), other = usual, tmp_path / "other"
    there = train(other, variables)
    assert len(here) == len(there) == 4
    assert all(here[i] != there[i] for i in changed)  # the variables have an effect
    assert same_bits(one, other)
    for mine, theirs in zip(metrics_without_time(one), metrics_without_time(other), strict=True):
        # The one number that PyTorch measures, on its way to the page and to nothing else.
        close = mine.pop("estimated_Q", 0.0), theirs.pop("estimated_Q", 0.0)
        np.testing.assert_allclose(*close, rtol=1e-4, atol=1e-6)
        assert mine == theirs
