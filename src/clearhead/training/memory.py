"""Memory: kept from one update to the next, not given back to the system and asked for again; and what is said of none.

glibc gives back what a freed tensor leaves at the end of its memory, and all of a large one; the next update asks for
as much again, and the system fills every page of it with zeros. Inside `kept_memory` it keeps all, and all replicas
take theirs from one place. Where the C library is another one, it is left as it is.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# From malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT = 2**31 - 1  # bytes, the most that can be said
_USUAL = 32 * 2**20  # what glibc has after it has seen tensors come and go: it raises its own thresholds so far

_lock = threading.Lock()
_inside = 0


# Torch's own allocator, C++, and oneDNN, which says no more when it has no memory for a kernel.
_WORDS = ("DefaultCPUAllocator", "bad_alloc", "could not create a primitive", "could not create a memory")


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Torch says so on a GPU by a class of its own, on a CPU only by its words."""
    is_said = any(words in str(error) for words in _WORDS)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_said


@contextmanager
def kept_memory() -> Iterator[None]:
    """Inside, memory that is freed stays with the process; when the last one has left, it is given back bit by bit."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(one: int) -> None:
    """One more is inside, or one less."""
    global _inside
    with _lock:
        _inside += one
        if _inside == max(one, 0):  # the first one, or the last
            trim, mmap, arenas = (_KEPT, _KEPT, 1) if _inside else (2 * _USUAL, _USUAL, 0)
            _set({_TRIM_THRESHOLD: trim, _MMAP_THRESHOLD: mmap, _ARENA_MAX: arenas})


def _set(options: dict[int, int]) -> None:
    """Bytes that may lie free at the end, from which on one stands alone, and how many places there are (0: any)."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # of glibc, not of musl
        for option, value in options.items():
            library.mallopt(option, value)
