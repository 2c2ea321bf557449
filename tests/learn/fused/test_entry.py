"""The compiled code is kept, and used only as long as its sources are the same."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import pytest

from t3d.base.compiling import KeptCode
from t3d.learn.fused import entry
from t3d.learn.fused.td7 import entry as td7_entry

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
OF_TD7 = [*entry.FOLDERS, FUSED / "td7"]


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


@pytest.mark.parametrize("function", [td7_entry.work, td7_entry.act])
def test_the_key_of_td7_has_its_own_sources_too(
    function: "numba.core.dispatcher.Dispatcher",
) -> None:
    cells = [cell.cell_contents for cell in function.py_func.__closure__ or ()]
    assert entry.source_key(OF_TD7) in cells
    assert entry.source_key(OF_TD7) != entry.source_key(entry.FOLDERS)


KEY = ("signature", "processor")
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-1],
    "random": lambda content: bytes(len(content)),
    "a bit flipped": lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
    "longer": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_not_used_and_is_written_again(
    damage: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = KeptCode(tmp_path, "function")
    code.save(KEY, "data")
    assert code.load(KEY) == "data"
    (file,) = code.folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert code.load(KEY) is None
    folder = re.escape(str(code.folder))
    line = f"t3d: compiled code in {folder} is damaged: it is compiled again\n"
    assert re.fullmatch(line, capsys.readouterr().err)
    code.save(KEY, "data")
    assert code.load(KEY) == "data"


def test_a_damaged_file_is_not_unpickled(tmp_path: Path) -> None:
    code = KeptCode(tmp_path, "function")
    code.save(KEY, "data")
    (file,) = code.folder.iterdir()
    mark = tmp_path / "mark"
    file.write_bytes(f"cos\nsystem\n(S'touch {mark}'\ntR.".encode())
    assert code.load(KEY) is None
    assert not mark.exists()


def test_code_of_another_key_is_not_used(tmp_path: Path) -> None:
    code = KeptCode(tmp_path, "function")
    code.save(KEY, "data")
    (mine,) = code.folder.iterdir()
    mine.unlink()
    code.save(("other", "processor"), "data")
    (file,) = code.folder.iterdir()
    of_key, of_content = mine.name.split(".")[:2], file.name.split(".")[2:]
    file.rename(file.with_name(".".join(of_key + of_content)))
    assert code.load(KEY) is None


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("which", ["file", "folder"])
def test_code_that_others_can_write_is_neither_read_nor_written(
    which: str, mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = KeptCode(tmp_path, "function")
    code.save(KEY, "data")
    (file,) = code.folder.iterdir()
    (file if which == "file" else code.folder).chmod(mode)
    content = file.read_bytes()
    assert code.load(KEY) is None
    assert "can be written by other users" in capsys.readouterr().err
    code.save(KEY, "other data")
    assert file.read_bytes() == content


@pytest.mark.parametrize("made", ["before it is read", "before it is written"])
def test_nothing_is_written_into_an_empty_folder_that_others_can_write(
    made: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = KeptCode(tmp_path, "function")
    if made == "before it is written":
        assert code.load(KEY) is None
    code.folder.mkdir()
    code.folder.chmod(0o777)
    if made == "before it is read":
        assert code.load(KEY) is None
    code.save(KEY, "data")
    assert list(code.folder.iterdir()) == []
    assert "can be written by other users" in capsys.readouterr().err


def test_kept_code_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        code = KeptCode(tmp_path, "function")
        code.save(KEY, "data")
    finally:
        os.umask(before)
    assert code.load(KEY) == "data"
    (file,) = code.folder.iterdir()
    assert (code.folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
