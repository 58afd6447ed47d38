"""Number of threads of the engines, and execution of batches in parallel. Does not import torch."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_PER_CORE = 4
"""Maximum number of threads per core: more would only wait for each other, and systems limit their number."""

_num_threads = 0


def set_num_threads(threads: int) -> None:
    """Set the number of threads of all engines; 0: all cores."""
    global _num_threads
    _num_threads = threads
    if sys.modules.get("torch") is not None:
        set_torch_threads()


def num_threads() -> int:
    """Return the number of threads: the value set, else OMP_NUM_THREADS, else the cores that this process may use.

    At most MAX_PER_CORE per core of this machine.
    """
    limit = MAX_PER_CORE * (os.cpu_count() or 1)
    if _num_threads:
        return min(_num_threads, limit)
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if variable.isascii() and variable.isdecimal() and int(variable[:9]):
        return min(int(variable[:9]), limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_torch_threads() -> None:
    """Apply the number of threads that was set, if any, to torch."""
    if _num_threads:
        import torch

        torch.set_num_threads(num_threads())


def run_in_threads(
    run: Callable[[T, Event], R],
    batches: Sequence[T],
    threads: int,
    initialize: Callable[[], object] | None = None,
) -> list[R]:
    """Return run(batch, stop) for each batch, several at a time; `initialize` is called in each new thread.

    After an exception, such as KeyboardInterrupt, waiting batches are dropped and `stop` is set, at which `run` has to
    return soon; the exception is raised when all threads have ended.
    """
    stop = Event()
    with ThreadPoolExecutor(max(1, threads), initializer=initialize) as pool:
        futures = [pool.submit(run, batch, stop) for batch in batches]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop.set()
            raise
