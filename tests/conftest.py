"""One torch thread for every test: two fight with whatever else runs, and results stay the same anywhere."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One torch thread, and a fixed seed."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(1)
