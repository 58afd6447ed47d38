"""Runs of seconds need no estimate of their time."""

import pytest

from clearhead.training.setup import benchmark_step


@pytest.fixture(autouse=True)
def short_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few updates as possible before a run."""
    monkeypatch.setattr(benchmark_step, "SECONDS", 0.0)
