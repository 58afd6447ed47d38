"""Runs of seconds need no estimate of their time."""

import pytest

from clearhead.training import measure


@pytest.fixture(autouse=True)
def short_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few updates as possible before a run."""
    monkeypatch.setattr(measure, "SECONDS", 0.0)
