"""Bundles in which every file holds one number, and disks that fail when they are told to."""

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead import bundle
from clearhead.bundle import writing

NAMES = {"model.safetensors", "config.json", "tokenizer.json", "manifest.json", "README.md"}


def save(folder: Path, number: int, weights: dict[str, Tensor] | None = None, **changes: Any) -> bundle.Manifest:
    """Save a bundle in which every file holds the number."""
    parts: dict[str, Any] = {
        "weights": weights or {"encoder": torch.full((7, 5), float(number)), "decoder": torch.arange(3) + number},
        "config": {"task": "translate", "model": {"num_layers": number}},
        "tokenizer": json.dumps({"pieces": ["ä", str(number)]}, ensure_ascii=False),
        "weights_kind": "best",
        "data": {"pairs": number},
        "training": {"steps": number},
    }
    return bundle.save(folder, **(parts | changes))


def number_in(loaded: bundle.Bundle) -> int:
    """The number of the save that this is; fails when the files stem from different saves."""
    number = loaded.manifest.training["steps"]
    assert isinstance(number, int)
    assert torch.equal(loaded.weights["encoder"], torch.full((7, 5), float(number)))
    assert torch.equal(loaded.weights["decoder"], torch.arange(3) + number)
    assert loaded.config == {"task": "translate", "model": {"num_layers": number}}
    assert json.loads(loaded.tokenizer) == {"pieces": ["ä", str(number)]}
    return number


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Faults:
    """Counts the calls that change the disk, and does something else in place of those that `hits` picks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hits: Callable[[int], bool], fault: Callable[[], object]):
        self.calls = 0
        self.hits, self.fault = hits, fault
        for name in ("mkdir", "fsync", "rename", "replace", "rmdir", "chmod"):
            monkeypatch.setattr(os, name, self.watch(getattr(os, name)))
        monkeypatch.setattr(io, "open", self.watch(io.open, lambda *args, **_: "b" in args[1] and "r" not in args[1]))
        monkeypatch.setattr(writing, "save_file", self.watch(self.write_in_two_steps(save_file)))

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
