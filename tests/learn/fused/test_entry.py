"""The compiled code is kept, and used only as long as its sources are the same."""

import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from t3d.learn.fused import entry

_COMPILE = """
from t3d.learn.fused import entry
from t3d.learn.fused.agent import compile_all
compile_all()
print(*(sum(f.stats.cache_misses.values()) for f in (entry.begin, entry.work, entry.act)))
"""


def run(code: str) -> str:
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_later_start_compiles_nothing() -> None:
    run(_COMPILE)
    assert run(_COMPILE) == "0 0 0"


def test_it_works_where_compiled_code_cannot_be_kept() -> None:
    """As root nothing is read-only, so Numba is told that no folder can be written."""
    no_folder = (
        "from numba.core import caching\n"
        "def refuse(self): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "from t3d.learn.fused import entry\n"
        "from t3d import Config, FusedT3D\n"
        "agent = FusedT3D(2, [-1], [1], Config(hidden=(4,)))\n"
        "print(agent.select_action([0.0, 0.0]).shape, type(entry.act._cache).__name__)\n"
    )
    assert run(no_folder) == "(1,) NullCache"


FUSED = Path(entry.__file__).parent
COMPILED = [*sorted(FUSED.glob("*.py")), FUSED.with_name("replay") / "sampling.py"]


@pytest.mark.parametrize("source", COMPILED, ids=lambda path: path.stem)
def test_the_key_changes_with_every_source(source: Path, tmp_path: Path) -> None:
    folders = [tmp_path / folder.name for folder in entry.FOLDERS]
    for folder, copy in zip(entry.FOLDERS, folders):
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = entry.source_key(folders)
    assert before == entry.source_key(entry.FOLDERS)
    copy = tmp_path / source.parent.name / source.name
    copy.write_text(copy.read_text().replace("0", "1", 1) + "\n")
    assert entry.source_key(folders) != before


@pytest.mark.parametrize("function", [entry.begin, entry.work, entry.act])
def test_numba_sees_the_key(function: "numba.core.dispatcher.Dispatcher") -> None:
    """Numba looks at the file of a function that Python calls, and at what it closes over."""
    cells = [cell.cell_contents for cell in function.py_func.__closure__ or ()]
    assert entry.source_key(entry.FOLDERS) in cells
