"""The files of a bundle, their checksums, and `manifest.json`.

A save writes the complete new bundle to `.incoming-*`, renames that folder to `.commit`, and then moves the files out
one by one. The rename is the step in which the new bundle atomically replaces the old one. Readers therefore use the
file in `.commit` if there is one, and otherwise the file in the folder itself; this is correct at every moment, also
after a crash.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from clearhead.errors import BundleError

FORMAT_VERSION = 2
PRERELEASE_VERSION = 1  # other names of tensors and settings; written by pre-release versions only

WeightsKind = Literal["best", "averaged", "ema", "last", "imported"]
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
MANIFEST = "manifest.json"
NO_TOKENIZER = "null"
"""Content of `tokenizer.json` for a model without text."""
CHECKSUMMED = (WEIGHTS, CONFIG, TOKENIZER)
"""Files with a checksum in the manifest. The model card has none, so that users may edit it."""

COMMIT = ".commit"
INCOMING = ".incoming-"


class FileRecord(BaseModel):
    """Size and SHA-256 of one file."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


def record_file(path: Path) -> FileRecord:
    """Return size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(size=file.tell(), sha256=digest)


def check_content(file: BufferedReader, path: Path, expected: FileRecord, remedy: str) -> None:
    """Raise BundleError if an open file differs from its record; seek to its beginning otherwise.

    `path` is the name of the file in messages, and `remedy` their advice.
    """
    try:
        _check_size(file, path, expected, remedy)
        _check_digest(hashlib.file_digest(file, "sha256").hexdigest(), path, expected, remedy)
        file.seek(0)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error


def read_checked(file: BufferedReader, path: Path, expected: FileRecord, remedy: str) -> NDArray[np.uint8]:
    """Return the content of an open file; raise BundleError if it differs from its record."""
    try:
        _check_size(file, path, expected, remedy)
        content = bytearray(expected.size)
        file.readinto(content)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    _check_digest(hashlib.sha256(content).hexdigest(), path, expected, remedy)
    return np.frombuffer(content, dtype=np.uint8)


def _check_size(file: BufferedReader, path: Path, expected: FileRecord, remedy: str) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != expected.size:
        raise BundleError(f"{path} is damaged: expected {expected.size:,} bytes, found {size:,}; {remedy}")


def _check_digest(digest: str, path: Path, expected: FileRecord, remedy: str) -> None:
    if digest != expected.sha256:
        raise BundleError(
            f"{path} was changed after it was saved: expected SHA-256 {expected.sha256[:16]}…, "
            f"found {digest[:16]}…; {remedy}"
        )


def open_file(folder: Path, name: str) -> BufferedReader:
    """Open the current file of that name; raise FileNotFoundError if there is none."""
    for path in (folder / COMMIT / name, folder / name):
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    raise FileNotFoundError(folder / name)


def exists(folder: Path) -> bool:
    """Return whether the folder contains a completely saved bundle, without checking for damage."""
    try:
        open_file(folder, MANIFEST).close()
    except (FileNotFoundError, BundleError):
        return False
    return True


class Manifest(BaseModel):
    """The record of one saved model."""

    model_config = ConfigDict(frozen=True)

    format_version: int
    weights_kind: WeightsKind
    """Kind of the weights: best on validation, average of checkpoints, moving average (ema), last, or imported."""
    created: str
    """Time of saving, in UTC, as ISO 8601."""
    versions: dict[str, str]
    """Versions of clearhead, torch and Python."""
    data: dict[str, JsonValue]
    """Facts about the training data, such as its fingerprint."""
    training: dict[str, JsonValue]
    """Training summary: steps, minutes, parameters, machine, scores with their signatures."""
    tied: dict[str, str] = {}
    """Names of tied tensors, each with the name under which the tensor is stored."""
    files: dict[str, FileRecord]

    @property
    def fingerprint(self) -> str:
        """Hash of the model, equal if and only if weights, config and tokenizer are equal."""
        return hashlib.sha256("".join(self.files[name].sha256 for name in CHECKSUMMED).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the content of `manifest.json`."""
        return json_bytes(self.model_dump(mode="json"))


def json_bytes(value: object) -> bytes:
    """Return JSON in the form used in a bundle: indented UTF-8 without NaN, with a newline at the end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def to_json_value(value: object) -> JsonValue:
    """Convert a summary value to JSON; infinity and NaN, such as a perplexity that overflowed, become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json_value(item) for item in value]
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be stored in a manifest")


def parse_manifest(content: bytes, folder: Path) -> Manifest:
    """Return the manifest; raise BundleError if it is damaged or was written by another version of clearhead."""
    path = folder / MANIFEST
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: not valid JSON ({error}); copy the folder again") from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(
            f"{path} is not a clearhead manifest: expected a format_version of 1 or more, found {version!r}"
        )
    if version == PRERELEASE_VERSION:
        raise BundleError(
            f"{folder} was written by a pre-release version of clearhead (format {version}; this version reads format "
            f"{FORMAT_VERSION}); train the model again, or import it again"
        )
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{folder} was written by a newer version of clearhead (format {version}; this version reads format "
            f"{FORMAT_VERSION}); upgrade clearhead"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BundleError(f"{path} is damaged: {field}: {first['msg']}; copy the folder again") from error
    for name in CHECKSUMMED:
        if name not in manifest.files:
            raise BundleError(f"{path} is damaged: it has no checksum for {name}; copy the folder again")
    return manifest
