"""Bundles in which every file holds one number, and disks that fail when they are told to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import bundle
from clearhead.bundle import writer
from clearhead.bundle.writer import save as save_bundle
from tests import faults

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
    return save_bundle(folder, **(parts | changes))


def number_in(loaded: bundle.Bundle) -> int:
    """The number of the save that this is; fails when the files stem from different saves."""
    number = loaded.manifest.training["steps"]
    assert isinstance(number, int)
    assert torch.equal(loaded.tensors()["encoder"], torch.full((7, 5), float(number)))
    assert torch.equal(loaded.tensors()["decoder"], torch.arange(3) + number)
    assert loaded.config == {"task": "translate", "model": {"num_layers": number}}
    assert json.loads(loaded.tokenizer) == {"pieces": ["ä", str(number)]}
    return number


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


disk_full = faults.disk_full


class Faults(faults.Faults):
    """Faults while a bundle is saved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hits: Callable[[int], bool], fault: Callable[[], object]):
        super().__init__(monkeypatch, hits, fault, writer)
