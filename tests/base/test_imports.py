import importlib
import sys
from pathlib import Path

import pytest

from t3d.base.imports import source_of

MARKS = "from pathlib import Path\nPath('mark').touch()\n"


def test_where_a_module_would_come_from_is_known_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("alone_x.py", "outer_x/__init__.py", "outer_x/inner.py", "bare_x/deep/inner.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MARKS)
    before = list(sys.path)
    assert source_of("alone_x") == str(tmp_path / "alone_x.py")
    assert source_of("outer_x") == str(tmp_path / "outer_x/__init__.py")
    assert source_of("outer_x.inner") == str(tmp_path / "outer_x/inner.py")
    assert source_of("bare_x.deep.inner") == str(tmp_path / "bare_x/deep/inner.py")
    assert source_of("bare_x") == str(tmp_path / "bare_x")
    for name in ("outer_x.nothing", "outer_x..inner", "alone_x.inner", "", ".", "no_x", "a/b"):
        assert source_of(name) is None
    assert source_of("sys") == source_of("builtins") == "a part of Python"
    assert source_of("antigravity") == str(Path(importlib.__path__[0]).parent / "antigravity.py")
    assert not {"alone_x", "outer_x", "bare_x", "antigravity"} & sys.modules.keys()
    assert sys.path == before
    assert not (tmp_path / "mark").exists()


def test_a_module_that_is_imported_already_is_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t3d.py").write_text(MARKS)  # not what an import would give
    import t3d

    assert source_of("t3d") == t3d.__file__
    assert source_of("t3d.api") == str(Path(str(t3d.__file__)).with_name("api.py"))
    assert source_of(__name__) == __file__
