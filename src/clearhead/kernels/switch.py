"""Switch between the kernels and plain torch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_disabled = 0
_lock = threading.Lock()


@contextmanager
def disabled() -> Iterator[None]:
    """Use torch's operators and padded layouts inside the block, in all threads of the process."""
    global _disabled
    with _lock:
        _disabled += 1
    try:
        yield
    finally:
        with _lock:
            _disabled -= 1


def is_enabled() -> bool:
    """Return whether the kernels are in use; graphs are exported and compiled without them, with torch's operators."""
    return not _disabled and not torch.compiler.is_compiling()
