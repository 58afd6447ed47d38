"""Bundles in which every file contains the same number, and injected disk errors."""

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
    """Save a bundle in which every file contains the number."""
    parts: dict[str, Any] = {
        "weights": weights or {"encoder": torch.full((7, 5), float(number)), "decoder": torch.arange(3) + number},
        "config": {"task": "translate", "model": {"num_layers": number}},
        "tokenizer": json.dumps({"tokens": ["ä", str(number)]}, ensure_ascii=False),
        "weights_kind": "best",
        "data": {"pairs": number},
        "training": {"steps": number},
    }
    return save_bundle(folder, **(parts | changes))


def number_in(loaded: bundle.Bundle) -> int:
    """Return the number in the files of a bundle; fail if the files contain different numbers."""
    number = loaded.manifest.training["steps"]
    assert isinstance(number, int)
    assert torch.equal(loaded.tensors()["encoder"], torch.full((7, 5), float(number)))
    assert torch.equal(loaded.tensors()["decoder"], torch.arange(3) + number)
    assert loaded.config == {"task": "translate", "model": {"num_layers": number}}
    assert json.loads(loaded.tokenizer) == {"tokens": ["ä", str(number)]}
    return number


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


disk_full = faults.disk_full


class Faults(faults.Faults):
    """Injected faults while a bundle is saved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hits: Callable[[int], bool], fault: Callable[[], object]):
        super().__init__(monkeypatch, hits, fault, writer)
