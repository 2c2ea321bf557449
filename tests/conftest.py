"""What all tests share: one thread each, and a real browser."""

import pytest
import torch

pytest_plugins = ["helpers.browsing"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run in parallel; PyTorch's threads would only compete for the cores."""
    torch.set_num_threads(1)
