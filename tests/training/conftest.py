"""Fixtures for short runs, which need no precise estimate of their time."""

import pytest

from clearhead.training.setup import auto_config


@pytest.fixture(autouse=True)
def short_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure as few updates as possible before a run."""
    monkeypatch.setattr(auto_config, "BENCHMARK_SECONDS", 0.0)
