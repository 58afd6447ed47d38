"""Settings of the operating-system process during a training: signal handlers and glibc's allocator.

By default, glibc returns freed memory at the end of its heap, and every large block, to the system. The next update
requests the same amount again, and the system fills each page with zeros. Inside `no_malloc_trim`, freed memory stays
in the process, in the single arena that `use_single_arena` selects. Other C libraries are left unchanged.
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

from clearhead.training.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from clearhead.training.loop.callbacks import Callback

# Options of mallopt, from malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST_THRESHOLD = 2**31 - 1  # bytes
_USUAL_THRESHOLD = 32 * 2**20  # the value that glibc's dynamic threshold reaches after it has freed tensors
# Messages of torch's CPU allocator, of C++, and of oneDNN, which does not mention memory.
_OUT_OF_MEMORY = ("DefaultCPUAllocator", "bad_alloc", "could not create a primitive", "could not create a memory")

_lock = threading.Lock()
_active = 0  # number of open `no_malloc_trim` blocks in all threads


class GracefulStop:
    """Signal that requested the end of a run, if any. Several processes agree on it in order to stop together."""

    def __init__(self, group: ProcessGroup = SINGLE_PROCESS) -> None:
        self._group = group
        self._received = self._agreed = 0

    @property
    def signal(self) -> int:
        """Number of the signal, or 0. With several processes it is 0 until they have agreed."""
        return self._received if self._group.world_size == 1 else self._agreed

    def __bool__(self) -> bool:
        return bool(self.signal)

    def agree(self) -> None:
        """Send the signal of one process to all; all processes must call this after the same update."""
        self._agreed = int(self._group.max(self._received))

    @contextmanager
    def listening(self, callback: Callback) -> Iterator[None]:
        """Handle SIGINT and SIGTERM: the first ends the run after the current update, the second at once."""

        def stop(number: int, _: FrameType | None) -> None:
            if self._received:
                signal.signal(number, original[signal.Signals(number)])
                signal.raise_signal(number)
                return
            self._received = number
            callback.message("stopping after this update; send the signal again to stop at once")

        original: dict[signal.Signals, Any] = {}
        try:
            for name in (signal.SIGINT, signal.SIGTERM):
                original[name] = signal.signal(name, stop)
        except ValueError:  # not in the main thread: the caller has to handle signals
            pass
        try:
            yield
        finally:
            for name, handler in original.items():
                signal.signal(name, handler)


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return whether memory was exhausted.

    torch has an exception class for GPUs; on CPUs only the message distinguishes the error.
    """
    text = str(error)
    # a "primitive descriptor" that cannot be created is an unsupported operation
    has_message = any(message in text for message in _OUT_OF_MEMORY) and "primitive descriptor" not in text
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or has_message


def use_single_arena() -> None:
    """Let all threads that start after this call allocate from one malloc arena, for the rest of the process.

    glibc reads this option only once. Threads that started earlier, such as those of tokenizers, have separate arenas,
    which later threads may share. An arena setting in the environment takes precedence.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "malloc.arena" not in os.environ.get("GLIBC_TUNABLES", ""):
        _mallopt(_ARENA_MAX, 1)


@contextmanager
def no_malloc_trim() -> Iterator[None]:
    """Keep freed memory in the process; after the last open block of this kind, glibc returns it step by step."""
    _change_active(1)
    try:
        yield
    finally:
        _change_active(-1)


def _change_active(difference: int) -> None:
    """Count the open blocks; set the thresholds when the first block opens or the last one closes."""
    global _active
    with _lock:
        _active += difference
        if _active == max(difference, 0):  # the first block opened, or the last closed
            trim, mmap = (
                (_LARGEST_THRESHOLD, _LARGEST_THRESHOLD) if _active else (2 * _USUAL_THRESHOLD, _USUAL_THRESHOLD)
            )
            _mallopt(_TRIM_THRESHOLD, trim)
            if not _mallopt(_MMAP_THRESHOLD, mmap):
                _mallopt(_MMAP_THRESHOLD, _USUAL_THRESHOLD)  # the largest value that glibc before 2.35 accepts


def _mallopt(option: int, value: int) -> bool:
    """Set an allocator option; return False only if glibc refuses the value, True also where there is no mallopt."""
    if sys.platform != "linux":
        return True
    library = ctypes.CDLL(None)
    return not hasattr(library, "mallopt") or bool(library.mallopt(option, value))  # musl has no mallopt
