"""Ctrl-C and SIGTERM while a training runs."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from clearhead.training.events import Watcher


class Stop:
    """Whether a signal asked for the end, and which one."""

    def __init__(self) -> None:
        self.signal = 0

    def __bool__(self) -> bool:
        return bool(self.signal)

    @contextmanager
    def listening(self, watcher: Watcher) -> Iterator[None]:
        """A first signal is noted, so that the run ends after the current update; a second one ends it at once."""

        def stop(number: int, _: FrameType | None) -> None:
            if self.signal:
                signal.signal(number, before[signal.Signals(number)])
                signal.raise_signal(number)
                return
            self.signal = number
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
