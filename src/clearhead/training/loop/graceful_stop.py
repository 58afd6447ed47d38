"""Ctrl-C and SIGTERM while a training runs."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

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
