"""numpy's products: on one thread, as torch's are while a batch is searched for, and as silent as torch's.

OpenBLAS, which numpy mostly brings along, would put every core on a product of one row: on two cores it gains nothing
there and takes the second one from whoever else computes. Its number of threads is one for the whole process. A numpy
that was built otherwise (on MKL, on Accelerate, on an OpenBLAS over OpenMP, whose threads have a number each) is left
as it is.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_lock = threading.Lock()
_before: list[int] = []  # threads of each library, while somebody is inside
_inside = 0


@cache
def _libraries() -> list[Any]:
    found = ThreadpoolController().select(internal_api="openblas").lib_controllers
    return [each for each in found if each.threading_layer == "pthreads"]


def _set_threads(library: Any, threads: int) -> None:
    """threadpoolctl listens to the first thread that asks, and not to others; who may ask is settled by the lock."""
    listen_to_anybody = getattr(library, "clear_controlling_thread", lambda force: None)
    listen_to_anybody(force=True)
    library.set_num_threads(threads)
    listen_to_anybody(force=True)


def unwarned() -> np.errstate:
    """Inside, numbers that overflow are told by what comes of them, and not by warnings."""
    return np.errstate(over="ignore", invalid="ignore")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, numpy multiplies on one thread; outside, when the last one has left, on as many as before."""
    global _inside
    with _lock:
        _inside += 1
        if _inside == 1:
            _before[:] = [each.num_threads for each in _libraries()]
            for each in _libraries():
                _set_threads(each, 1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for each, threads in zip(_libraries(), _before, strict=True):
                    _set_threads(each, threads)
