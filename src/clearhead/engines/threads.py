"""Number of threads that engines use, and batches computed in several threads. Does not import torch."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clearhead.data.batching import length_batches

Result = TypeVar("Result")

_chosen = 0


def set_num_threads(threads: int) -> None:
    """Set the number of threads of all engines; 0: all cores."""
    global _chosen
    _chosen = threads
    if "torch" in sys.modules:
        set_torch_threads()


def num_threads() -> int:
    """Return the number of threads: as set, or OMP_NUM_THREADS, or the cores that this process may use."""
    if _chosen:
        return _chosen
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else len(os.sched_getaffinity(0))


def set_torch_threads() -> None:
    """Let torch use as many threads as were set."""
    if _chosen:
        import torch

        torch.set_num_threads(_chosen)


def map_batches(costs: Sequence[int], max_cost: int, compute: Callable[[list[int]], Sequence[Result]]) -> list[Result]:
    """Return one result per item; `compute` gets the indices of a batch of similar items and runs in several threads.

    The cost of a batch is that of its largest item times their number; it is at most `max_cost`, unless one item is
    larger.
    """
    threads = num_threads()
    fair = -(-sum(costs) // threads) if threads > 1 else max_cost
    batches = length_batches(costs, min(max_cost, max(1, fair)))
    if threads == 1 or len(batches) <= 1:
        found = [compute(batch) for batch in batches]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(compute, batches))
    results = {index: one for batch, some in zip(batches, found, strict=True)
               for index, one in zip(batch, some, strict=True)}  # fmt: skip
    return [results[index] for index in range(len(costs))]
