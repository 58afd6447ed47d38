"""Fixtures of all tests: one torch thread, for equal results on every machine, and shared trained models."""

from collections.abc import Iterator

import pytest
import torch

from tests.tasks.all_tasks import Models
from tests.trained_model import Trained, train_small


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Set one torch thread and a fixed seed."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a model trained once for all tests; no test may write to its folder."""
    torch.set_num_threads(1)
    return train_small(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Return a model of each task, trained for one step; no test may write to their folders."""
    torch.set_num_threads(1)
    return Models(tmp_path_factory.mktemp("models"))
