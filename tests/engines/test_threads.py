"""The number of threads of all engines."""

import os

import pytest
import torch

from clearhead.engines import threads


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_chosen", 0)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def test_threads_are_as_set_or_those_of_openmp_or_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads.num_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    assert threads.num_threads() == len(os.sched_getaffinity(0))
    threads.set_num_threads(5)
    assert threads.num_threads() == 5


def test_torch_is_told_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    threads.set_num_threads(7)
    threads.set_num_threads(0)
    assert told == [7]
