"""Loading of a bundle with all checksums verified, also while another process saves to the same folder.

Loading never writes: the folder may be read-only, or contain a save that a crash interrupted. The tensors are NumPy
views of the content of the safetensors file. The file is read once, so that the bytes with the verified checksum are
the bytes that are used; memory-mapping it would end the process with SIGBUS if the file is truncated while in use.
Layout of the file: size of the header (8 bytes, little endian), header (JSON: name -> dtype, shape, offsets), data.
"""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from clearhead.bundle.manifest import (
    CARD,
    CHECKSUMMED,
    CONFIG,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    FileRecord,
    Manifest,
    exists,
    open_file,
    parse_manifest,
    read_checked,
)
from clearhead.errors import BundleError

if TYPE_CHECKING:
    from torch import Tensor


Array = NDArray[Any]

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
_ATTEMPTS = 50
_PAUSE_SECONDS = 0.02
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def parse_tensors(content: NDArray[np.uint8]) -> dict[str, Array]:
    """Return the tensors by name, as views of `content`; raise ValueError if it is not a valid safetensors file."""
    if len(content) < 8:
        raise ValueError(f"{len(content)} bytes are too few for a header")
    header_size = int.from_bytes(content[:8].tobytes(), "little")
    if header_size > min(MAX_HEADER_BYTES, len(content) - 8):
        raise ValueError(f"a header of {header_size:,} bytes does not fit into {len(content):,} bytes")
    try:
        header = json.loads(content[8 : 8 + header_size].tobytes())
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    data, tensors, used = content[8 + header_size :], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        start, end = _offsets(name, entry)
        if start != used or end > len(data):
            raise ValueError(f"{name}: expected data from byte {used:,} on, found {start:,} to {end:,}")
        tensors[name], used = _view(name, entry, data[start:end]), end
    if used != len(data):
        raise ValueError(f"{len(data) - used:,} bytes belong to no tensor")
    return tensors


def _offsets(name: str, entry: object) -> tuple[int, int]:
    """Return the first byte of a tensor and the one after its last."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{name}: expected two data_offsets, found {offsets!r}")
    return offsets[0], offsets[1]


def _view(name: str, entry: dict[str, Any], data: NDArray[np.uint8]) -> Array:
    """Return the bytes of one tensor with its dtype and shape; copied only if they are not aligned."""
    dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
    if dtype is None:
        raise ValueError(f"{name}: expected a dtype of {', '.join(DTYPES)}, found {entry.get('dtype')!r}")
    if not _are_sizes(shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{name}: a shape of {shape!r} does not fit {len(data):,} bytes of {dtype}")
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    return data.view(dtype).reshape(shape)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)


@dataclass(frozen=True)
class Bundle:
    """A loaded model folder: arrays and JSON, before a model is built from them."""

    weights: dict[str, NDArray[Any]]
    """Arrays by name; tied names have the same array. All are views of one buffer with the content of the file."""
    config: dict[str, object]
    tokenizer: str
    """JSON text of the tokenizer."""
    manifest: Manifest

    def tensors(self) -> "dict[str, Tensor]":
        """Return the weights as torch tensors that share their memory; tied names have the same tensor."""
        import torch

        by_array = {id(array): torch.from_numpy(array) for array in self.weights.values()}
        return {name: by_array[id(array)] for name, array in self.weights.items()}


def load(folder: Path) -> Bundle:
    """Load a model folder and verify all files; raise BundleError if it is missing or damaged."""
    for _ in range(_ATTEMPTS):
        content = _read_manifest_bytes(folder)
        try:
            return _load_once(folder, parse_manifest(content, folder))
        except BundleError:
            # A save replaces manifest and files in one step: if the manifest is unchanged, the folder is damaged.
            if _read_manifest_bytes(folder) == content:
                raise
        time.sleep(_PAUSE_SECONDS)
    raise BundleError(
        f"{folder} changed {_ATTEMPTS} times while it was being read; check whether several trainings write to it"
    )


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest only, without verifying the other files."""
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
        raise BundleError(f"{folder / CONFIG} must contain a JSON object, found {type(settings).__name__}")
    return Bundle(weights, settings, text, manifest)


def _read(folder: Path, name: str, expected: FileRecord) -> NDArray[np.uint8]:
    """Return the content of a file; raise BundleError if it differs from the manifest."""
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
        raise BundleError(_explain_missing_manifest(folder)) from None
    except OSError as error:
        raise BundleError(f"cannot read {folder / MANIFEST}: {error.strerror or error}") from error


def _explain_missing_manifest(folder: Path) -> str:
    """Return the error message for a folder without a manifest."""
    if not folder.exists():
        return (
            f"there is no folder {folder}; expected a model folder, as created by `clearhead train ... --out {folder}`"
        )
    if not folder.is_dir():
        return f"{folder} is a file; expected a model folder, as created by `clearhead train ... --out DIR`"
    if (folder / "training").is_dir() or (folder / "metrics.jsonl").is_file():
        return (
            f"{folder} contains a training that has not saved a model yet; wait, or resume it by adding --resume "
            "to its command"
        )
    inside = sorted(child for child in folder.iterdir() if child.is_dir() and exists(child))
    if inside:
        return f"{folder} is not a model folder itself; did you mean {inside[0]}?"
    if any(next(folder.glob(pattern), None) for pattern in ("*.safetensors", "*.bin", "*.pt")):
        return f"{folder} has no {MANIFEST}; it may be a checkpoint of another toolkit"
    return f"{folder} is not a model folder: expected {', '.join(CHECKSUMMED)}, {MANIFEST} and {CARD}"
