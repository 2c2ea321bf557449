"""What all tests share: one thread each, a config folder of their own, and a real browser."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import torch

from t3d.run import doctor

pytest_plugins = ["helpers.browsing"]

# Groups of tests that take long: they start first, so that none is left for the end.
_LONG = ("ray", "tune", "sweep", "processors", "trackers", "pages")
_MEMORY = Path("/dev/shm")  # files there are in memory
_PLACE = "PYTEST_DEBUG_TEMPROOT"  # where pytest puts its temporary folders
_ROOM = 4 * 2**30  # bytes; the files of all tests take a tenth of it


def pytest_configure(config: pytest.Config) -> None:
    """Files of tests go to memory where there is room: a disk is waited for at every save.

    They are removed at the end. `pytest --basetemp=FOLDER` has them there, and keeps them.
    """
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    if has_room and os.access(_MEMORY, os.W_OK) and _PLACE not in os.environ:
        place = os.environ[_PLACE] = tempfile.mkdtemp(prefix="t3d-tests-", dir=_MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long groups first, the longest before the others."""

    def place(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        name = group.args[0] if group else ""
        return _LONG.index(name) if name in _LONG else len(_LONG)

    items.sort(key=place)  # stable: otherwise in their usual order


@pytest.fixture(autouse=True, scope="session")
def _compiled_once(request: pytest.FixtureRequest) -> None:
    """Before all tests, each of two workers compiles some forms of the fused engine for both.

    They are kept on the disk. Otherwise, both workers and the first commands would compile the
    same form at the same time.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or len(request.session.items) < 1000:  # some tests: what they need
        return
    from helpers.training import Case
    from t3d import FusedT3D
    from t3d.learn.fused.agent import compile_all
    from t3d.learn.fused.td7.agent import FusedTD7

    if worker == "gw0":
        compile_all()
        compile_all(kind=FusedTD7)
    elif worker == "gw1":
        compile_all(torch.float64)
        case = Case()  # its batches are not from a memory, which is of float32
        for kind in (FusedT3D, FusedTD7):
            case.agent(kind, torch.float64).update(*next(case.batches(torch.float64)))


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """A shell without job control has what it starts in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _short_glance() -> None:
    """Each command that trains plays half a second at random first. Here, less shows the same."""
    doctor._GLANCE_SECONDS = 0.05


@pytest.fixture(autouse=True, scope="session")
def _own_config_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the tests train is not remembered as trusted by the user."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run in parallel; PyTorch's threads would only compete for the cores."""
    torch.set_num_threads(1)
