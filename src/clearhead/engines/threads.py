"""Number of threads that engines use. Does not import torch."""

import os
import sys

_chosen = 0


def set_num_threads(threads: int) -> None:
    """Set the number of threads of all engines; 0: all cores."""
    global _chosen
    _chosen = threads
    if sys.modules.get("torch") is not None:
        set_torch_threads()


def num_threads() -> int:
    """Return the number of threads: as set, or OMP_NUM_THREADS, or the cores that this process may use."""
    if _chosen:
        return _chosen
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_torch_threads() -> None:
    """Let torch use as many threads as were set."""
    if _chosen:
        import torch

        torch.set_num_threads(_chosen)
