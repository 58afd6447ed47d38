"""The number of threads of all engines."""

import os
from threading import Event

import pytest
import torch

from clearhead.engines import threads


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_num_threads", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
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


def test_there_are_at_most_four_threads_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", thread_counts.append)
    threads.set_num_threads(100_000)
    assert (threads.num_threads(), thread_counts) == (8, [8])
    threads.set_num_threads(0)
    for value in ("9", "5000", "1" * 5000):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert threads.num_threads() == 8


def test_torch_gets_the_number_of_threads_if_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", thread_counts.append)
    threads.set_num_threads(7)
    threads.set_num_threads(0)
    assert thread_counts == [7]


def test_an_interrupt_stops_running_batches_and_drops_waiting_ones() -> None:
    started: list[int] = []
    second_started = Event()

    def run(batch: int, stop: Event) -> None:
        started.append(batch)
        if batch == 0:
            second_started.wait()
            raise KeyboardInterrupt
        second_started.set()
        assert stop.wait(60)

    with pytest.raises(KeyboardInterrupt):
        threads.run_in_threads(run, range(9), 2)
    assert started[:2] == [0, 1] and len(started) <= 3  # the first thread may take one more before it is stopped
