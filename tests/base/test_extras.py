import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from t3d.base import extras
from t3d.base.extras import how_to_install


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a virtual environment that is not on the PATH."""
    clone = tmp_path / "my clone"
    (clone / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(clone / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    return clone


def install(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    """As if pip had noted this about where T3D came from."""
    package = SimpleNamespace(read_text=lambda name: noted)
    monkeypatch.setattr(extras, "distribution", lambda name: package)


def test_from_a_clone_an_extra_is_installed_from_the_clone(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = {"url": installed.as_uri(), "dir_info": {"editable": True}}
    install(monkeypatch, json.dumps(noted))
    monkeypatch.chdir(installed)
    assert how_to_install("ray") == ".venv/bin/python -m pip install -e '.[ray]'"
    (installed / "constraints.txt").touch()
    expected = ".venv/bin/python -m pip install -c constraints.txt -e '.[ray]'"
    assert how_to_install("ray") == expected
    monkeypatch.chdir(installed.parent)
    assert how_to_install("ray") == (
        f"'my clone/.venv/bin/python' -m pip install -c '{installed}/constraints.txt'"
        f" -e '{installed}[ray]'"
    )
    install(monkeypatch, json.dumps({"url": installed.as_uri(), "dir_info": {}}))
    assert " -e " not in how_to_install("ray")


@pytest.mark.parametrize("noted", [None, "", "{}", "[]", "no JSON"])
def test_without_a_clone_it_is_installed_by_name(
    noted: str | None, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, noted)
    pip = installed / ".venv" / "bin" / "pip"
    assert how_to_install("ray") == f"{pip.parent}/python -m pip install 't3d[ray]'".replace(
        str(pip.parent / "python"), f"'{pip.parent}/python'"
    )
    pip.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    assert how_to_install("ray") == "pip install 't3d[ray]'"
