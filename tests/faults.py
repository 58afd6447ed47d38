"""Faults of a disk at every step of a save, and processes that end at any moment."""

import errno
import io
import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import Tensor


class Faults:
    """Counts the calls that change the disk, and does something else in place of those that `hits` picks.

    `writer` is the module whose `save_file` writes tensors.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        hits: Callable[[int], bool],
        fault: Callable[[], object],
        writer: ModuleType,
        names: tuple[str, ...] = ("mkdir", "fsync", "rename", "replace", "rmdir", "chmod"),
    ):
        self.calls = 0
        self.hits, self.fault = hits, fault
        for name in names:
            monkeypatch.setattr(os, name, self.watch(getattr(os, name)))
        monkeypatch.setattr(io, "open", self.watch(io.open, lambda *args, **_: "b" in args[1] and "r" not in args[1]))
        monkeypatch.setattr(writer, "save_file", self.watch(self.write_in_two_steps(save_file)))

    def watch(self, function: Callable[..., Any], applies: Callable[..., bool] = lambda *_, **__: True) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if applies(*args, **kwargs):
                self.calls += 1
                if self.hits(self.calls):
                    self.fault()
            return function(*args, **kwargs)

        return watched

    def write_in_two_steps(self, function: Callable[..., Any]) -> Any:
        def written(tensors: dict[str, Tensor], path: Path) -> None:
            function(tensors, path)
            whole = path.read_bytes()
            os.truncate(path, len(whole) // 2)
            with path.open("wb") as file:  # a watched step: a fault here leaves half a file
                file.write(whole)

        return written


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fork(action: Callable[[], object]) -> int:
    """The number of a process that does this and ends; a fork, for it need not import everything again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child:
        return child
    try:
        action()
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    os._exit(0)


def end_of(child: int) -> int:
    """The exit code of a process, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
