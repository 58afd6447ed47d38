"""Ctrl-C and SIGTERM while a training runs.

Memory: kept from one update to the next, not given back to the system and asked for again; and what is said of none.

glibc gives back what a freed tensor leaves at the end of its memory, and all of a large one; the next update asks for
as much again, and the system fills every page of it with zeros. Inside `kept_memory` it keeps all, of the place that
`share_memory` makes the only one; where the C library is another one, it is left as it is.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from clearhead.training.distributed.process_group import ALONE, ProcessGroup
from clearhead.training.loop.callbacks import Callback


class GracefulStop:
    """Whether a signal asked for the end, and which one. Several processes stop together, once they agreed on it."""

    def __init__(self, processes: ProcessGroup = ALONE) -> None:
        self._processes = processes
        self._noted = self._agreed = 0

    @property
    def signal(self) -> int:
        """The signal, or 0."""
        return self._noted if self._processes.count == 1 else self._agreed

    def __bool__(self) -> bool:
        return bool(self.signal)

    def agree(self) -> None:
        """A signal that one process got counts for all; to be called by all of them at the same place."""
        self._agreed = int(self._processes.largest(self._noted))

    @contextmanager
    def listening(self, watcher: Callback) -> Iterator[None]:
        """A first signal is noted, so that the run ends after the current update; a second one ends it at once."""

        def stop(number: int, _: FrameType | None) -> None:
            if self._noted:
                signal.signal(number, before[signal.Signals(number)])
                signal.raise_signal(number)
                return
            self._noted = number
            watcher.message("stopping after this update; once more to stop at once")

        before: dict[signal.Signals, Any] = {}
        try:
            for name in (signal.SIGINT, signal.SIGTERM):
                before[name] = signal.signal(name, stop)
        except ValueError:  # not in the main thread: the caller has to deal with signals
            pass
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


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
    text = str(error)
    is_said = any(words in text for words in _WORDS) and "primitive descriptor" not in text  # that is not implemented
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_said


def share_memory() -> None:
    """All threads that begin from now on take their memory from one place, of which none is given back in between.

    It lasts as long as the process, for glibc looks at this only once; threads that began before, as those of
    tokenizers, have places of their own, which later ones may be given too. Whoever has said something else is obeyed.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "malloc.arena" not in os.environ.get("GLIBC_TUNABLES", ""):
        _set(_ARENA_MAX, 1)


@contextmanager
def no_malloc_trim() -> Iterator[None]:
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
            trim, mmap = (_KEPT, _KEPT) if _inside else (2 * _USUAL, _USUAL)
            _set(_TRIM_THRESHOLD, trim)
            if not _set(_MMAP_THRESHOLD, mmap):
                _set(_MMAP_THRESHOLD, _USUAL)  # the most that glibc before 2.35 takes


def _set(option: int, value: int) -> bool:
    """Bytes that may lie free at the end, from which on one stands alone, or how many places there are."""
    if sys.platform != "linux":
        return True
    library = ctypes.CDLL(None)
    return not hasattr(library, "mallopt") or bool(library.mallopt(option, value))  # of glibc, not of musl
