"""Injection of disk errors at every step of a save, and processes that can be ended at any step."""

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
    """Counts the calls that change the disk, and calls `fault` before those whose number `hits` selects.

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
            content = path.read_bytes()
            os.truncate(path, len(content) // 2)
            with path.open("wb") as file:  # a counted call: a fault here leaves half a file
                file.write(content)

        return written


def disk_full() -> None:
    """Raise the error of a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fork(action: Callable[[], object]) -> int:
    """Return the id of a forked process that runs the action and ends; a fork needs no imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about forks of threaded processes
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
    """Wait for a process; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
