"""One torch thread for every test: two fight with whatever else runs, and results stay the same anywhere."""

from collections.abc import Iterator

import pytest
import torch

from tests.tasks.all_tasks import Models
from tests.whole import Trained, train_small


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One torch thread, and a fixed seed."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model trained once for all tests; no test may write into its folder."""
    torch.set_num_threads(1)
    return train_small(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A model of each task, hardly trained; no test may write into their folders."""
    torch.set_num_threads(1)
    return Models(tmp_path_factory.mktemp("models"))
