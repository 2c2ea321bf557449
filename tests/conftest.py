"""What all tests share: one thread each, a config folder of their own, and a real browser."""

import os

import pytest
import torch

pytest_plugins = ["helpers.browsing"]


# Groups of tests that take a minute or more: they start first, so that none is left for the end.
_LONG = ("ray", "sweep")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long groups first."""

    def is_short(item: pytest.Item) -> bool:
        group = item.get_closest_marker("xdist_group")
        return group is None or group.args[0] not in _LONG

    items.sort(key=is_short)  # stable: otherwise in their usual order


@pytest.fixture(autouse=True, scope="session")
def _own_config_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the tests train is not remembered as trusted by the user."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run in parallel; PyTorch's threads would only compete for the cores."""
    torch.set_num_threads(1)
