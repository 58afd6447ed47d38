"""Loading a bundle, every checksum checked, also while another process saves into the same folder.

Never writes: a folder may be read-only, and may hold a save that a crash interrupted.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clearhead.bundle.checksums import FileRecord, read_checked
from clearhead.bundle.layout import CARD, CHECKED, CONFIG, MANIFEST, TOKENIZER, WEIGHTS, exists, open_file
from clearhead.bundle.manifest import Manifest, parse_manifest
from clearhead.bundle.tensors import parse_tensors
from clearhead.errors import BundleError

if TYPE_CHECKING:
    from torch import Tensor

_ATTEMPTS = 50
_PAUSE = 0.02  # seconds


@dataclass(frozen=True)
class Bundle:
    """A loaded model folder: arrays and JSON, before a model is built from them."""

    weights: dict[str, NDArray[Any]]
    """By name; tied names hold the same array. All are views of one buffer with the content of the file."""
    config: dict[str, object]
    tokenizer: str
    """The JSON text of the tokenizer."""
    manifest: Manifest

    def tensors(self) -> "dict[str, Tensor]":
        """Return the weights as torch tensors that share their memory; tied names hold the same tensor."""
        import torch

        by_array = {id(array): torch.from_numpy(array) for array in self.weights.values()}
        return {name: by_array[id(array)] for name, array in self.weights.items()}


def load(folder: Path) -> Bundle:
    """Load a model folder and check every file against the manifest."""
    for _ in range(_ATTEMPTS):
        content = _read_manifest_bytes(folder)
        try:
            return _load_once(folder, parse_manifest(content, folder))
        except BundleError:
            # The manifest changes in the same step as the files: if it is still the same, this is real damage.
            if _read_manifest_bytes(folder) == content:
                raise
        time.sleep(_PAUSE)
    raise BundleError(
        f"{folder} changed {_ATTEMPTS} times while it was being read; is more than one training writing it?"
    )


def read_manifest(folder: Path) -> Manifest:
    """Read only the manifest: quick, checks no other file."""
    return parse_manifest(_read_manifest_bytes(folder), folder)


def _load_once(folder: Path, manifest: Manifest) -> Bundle:
    config, tokenizer = (_read(folder, name, manifest.files[name]).tobytes() for name in (CONFIG, TOKENIZER))
    try:
        weights = parse_tensors(_read(folder, WEIGHTS, manifest.files[WEIGHTS]))
    except ValueError as error:
        raise BundleError(f"{folder / WEIGHTS} is not a safetensors file: {error}") from error
    for name, stored_as in manifest.tied.items():
        if stored_as not in weights:
            raise BundleError(f"{folder / MANIFEST} is damaged: {name} is tied to {stored_as}, which is not stored")
        weights[name] = weights[stored_as]
    try:
        settings = json.loads(config)
        json.loads(tokenizer)
        text = tokenizer.decode()
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{folder}: {CONFIG} or {TOKENIZER} is not valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise BundleError(f"{folder / CONFIG} must hold a JSON object, found {type(settings).__name__}")
    return Bundle(weights, settings, text, manifest)


def _read(folder: Path, name: str, expected: FileRecord) -> NDArray[np.uint8]:
    """Return the content of a file, which must be what the manifest says."""
    try:
        with open_file(folder, name) as file:
            return read_checked(file, folder / name, expected, "copy the folder again")
    except FileNotFoundError:
        raise BundleError(f"{folder / name} is missing; copy the whole folder again") from None


def _read_manifest_bytes(folder: Path) -> bytes:
    try:
        with open_file(folder, MANIFEST) as file:
            return file.read()
    except FileNotFoundError:
        raise BundleError(_why_not_a_bundle(folder)) from None
    except OSError as error:
        raise BundleError(f"cannot read {folder / MANIFEST}: {error.strerror or error}") from error


def _why_not_a_bundle(folder: Path) -> str:
    """The most helpful sentence about a folder without a manifest."""
    if not folder.exists():
        return f"there is no folder {folder}; expected a model folder, as `clearhead train ... --out {folder}` makes"
    if not folder.is_dir():
        return f"{folder} is a file; expected a model folder, as `clearhead train ... --out DIR` makes"
    if (folder / "training").is_dir() or (folder / "metrics.jsonl").is_file():
        return (
            f"{folder} holds a training that has not saved a model yet; let it run on, or add --resume to its command"
        )
    inside = sorted(child for child in folder.iterdir() if child.is_dir() and exists(child))
    if inside:
        return f"{folder} is not a model folder itself; did you mean {inside[0]}?"
    if any(next(folder.glob(pattern), None) for pattern in ("*.safetensors", "*.bin", "*.pt")):
        return f"{folder} has no {MANIFEST}; it may be a checkpoint of another toolkit"
    return f"{folder} is not a model folder: expected {', '.join(CHECKED)}, {MANIFEST} and {CARD}"
