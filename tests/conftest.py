"""What all tests share: one thread each, and a real browser."""

import pytest
import torch

pytest_plugins = ["helpers.browsing"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; PyTorch's threads would only fight over the cores."""
    torch.set_num_threads(1)
