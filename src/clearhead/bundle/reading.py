"""Loading a bundle, every checksum checked, also while another process saves into the same folder.

Never writes: a folder may be read-only, and may hold a save that a crash interrupted.
"""

import json
import os
import time
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from clearhead.bundle.checksums import FileRecord, check_content
from clearhead.bundle.layout import CARD, CHECKED, CONFIG, MANIFEST, TOKENIZER, WEIGHTS, exists, open_file
from clearhead.bundle.manifest import Manifest, parse_manifest
from clearhead.errors import BundleError

_ATTEMPTS = 50
_PAUSE = 0.02  # seconds


@dataclass(frozen=True)
class Bundle:
    """A loaded model folder: tensors and JSON, before anything is built from them."""

    weights: dict[str, Tensor]
    """By name; tied names hold the very same tensor. Backed by the file until copied into a model."""
    config: dict[str, object]
    tokenizer: str
    """The JSON text of the tokenizer."""
    manifest: Manifest


class _MovedError(Exception):
    """A save moved the file that was being read."""


def load(folder: Path) -> Bundle:
    """Load a model folder and check every file against the manifest."""
    for _ in range(_ATTEMPTS):
        content = _read_manifest_bytes(folder)
        try:
            return _load_once(folder, parse_manifest(content, folder))
        except _MovedError:
            pass
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
    texts = {}
    for name in (CONFIG, TOKENIZER):
        with _open_checked(folder, name, manifest.files[name]) as file:
            texts[name] = file.read()
    with _open_checked(folder, WEIGHTS, manifest.files[WEIGHTS]) as file:
        weights = _map_weights(folder, file)
    for name, stored_as in manifest.tied.items():
        if stored_as not in weights:
            raise BundleError(f"{folder / MANIFEST} is damaged: {name} is tied to {stored_as}, which is not stored")
        weights[name] = weights[stored_as]
    try:
        config = json.loads(texts[CONFIG])
        json.loads(texts[TOKENIZER])
        tokenizer = texts[TOKENIZER].decode()
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{folder}: {CONFIG} or {TOKENIZER} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise BundleError(f"{folder / CONFIG} must hold a JSON object, found {type(config).__name__}")
    return Bundle(weights, config, tokenizer, manifest)


def _open_checked(folder: Path, name: str, expected: FileRecord) -> BufferedReader:
    """Open a file whose content is what the manifest says; reading goes on from its beginning."""
    path = folder / name
    try:
        file = open_file(folder, name)
    except FileNotFoundError:
        raise BundleError(f"{path} is missing; copy the whole folder again") from None
    try:
        check_content(file, path, expected, "copy the folder again")
    except BaseException:
        file.close()
        raise
    return file


def _map_weights(folder: Path, file: BufferedReader) -> dict[str, Tensor]:
    """Map the tensors of the open file into memory. safetensors opens it by name, twice: all must be the same file."""
    path = Path(file.name)
    weights, problem = None, None
    try:
        weights = load_file(path)
    except (SafetensorError, OSError, RuntimeError) as error:
        problem = error
    try:
        is_same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        is_same = False
    if not is_same:
        raise _MovedError
    if weights is None:
        raise BundleError(f"{folder / WEIGHTS} is not a safetensors file: {problem}") from problem
    return weights


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
