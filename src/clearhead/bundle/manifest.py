"""What `manifest.json` holds: which weights these are, where they come from, and a checksum for each file.

Size and SHA-256 of files: noted when they are written, compared when they are read.

The names in a bundle's folder, and how to find a file while a save is going on.

A save writes a whole new bundle into `.incoming-*`, renames that folder to `.commit` (this one step is the moment at
which the new bundle replaces the old), then moves the files out one by one. Hence the rule for readers: a file that
is in `.commit` is the file; else the one in the folder itself. That holds at every moment, also after a crash.
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


class FileRecord(BaseModel):
    """Size and SHA-256 of one file."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


def record_file(path: Path) -> FileRecord:
    """What the file holds now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(size=file.tell(), sha256=digest)


def check_content(file: BufferedReader, path: Path, expected: FileRecord, remedy: str) -> None:
    """Raise BundleError if the file, called `path`, is not as recorded; leave it at its beginning."""
    try:
        _check_size(file, path, expected, remedy)
        _check_digest(hashlib.file_digest(file, "sha256").hexdigest(), path, expected, remedy)
        file.seek(0)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error


def read_checked(file: BufferedReader, path: Path, expected: FileRecord, remedy: str) -> NDArray[np.uint8]:
    """Return the content of the file, called `path`; raise BundleError if it is not as recorded."""
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


def _check_digest(found: str, path: Path, expected: FileRecord, remedy: str) -> None:
    if found != expected.sha256:
        raise BundleError(
            f"{path} was changed after it was saved: expected SHA-256 {expected.sha256[:16]}…, "
            f"found {found[:16]}…; {remedy}"
        )


WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
MANIFEST = "manifest.json"
NO_TOKENIZER = "null"
"""What stands in `tokenizer.json` of a model that knows no text."""
CHECKSUMMED = (WEIGHTS, CONFIG, TOKENIZER)
"""What the manifest vouches for. The card is for people, who may edit it."""

COMMIT = ".commit"
INCOMING = ".incoming-"


def open_file(folder: Path, name: str) -> BufferedReader:
    """Open the current file of that name; `FileNotFoundError` when there is none."""
    for path in (folder / COMMIT / name, folder / name):
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    raise FileNotFoundError(folder / name)


def exists(folder: Path) -> bool:
    """Whether the folder holds a finished save; says nothing about damage."""
    try:
        open_file(folder, MANIFEST).close()
    except (FileNotFoundError, BundleError):
        return False
    return True


FORMAT_VERSION = 2
PRERELEASE_VERSION = 1  # other names of tensors and settings; never released

WeightsKind = Literal["best", "averaged", "ema", "last", "imported"]


class Manifest(BaseModel):
    """The record of one saved model."""

    model_config = ConfigDict(frozen=True)

    format_version: int
    weights_kind: WeightsKind
    """Which weights of the run these are: the best on validation, an average of checkpoints, an exponential moving mean
    of all updates, the last, or those of another toolkit."""
    created: str
    """When it was saved, in UTC, as ISO 8601."""
    versions: dict[str, str]
    """Of clearhead, torch and Python."""
    data: dict[str, JsonValue]
    """The fingerprint of the training data."""
    training: dict[str, JsonValue]
    """The training summary: steps, minutes, parameters, machine, scores with their signatures."""
    tied: dict[str, str] = {}
    """Names of tensors that are stored once, each with the name it is stored under."""
    files: dict[str, FileRecord]

    @property
    def fingerprint(self) -> str:
        """A name for exactly this model: equal when weights, config and tokenizer are, and only then."""
        return hashlib.sha256("".join(self.files[name].sha256 for name in CHECKSUMMED).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of `manifest.json`."""
        return json_bytes(self.model_dump(mode="json"))


def json_bytes(value: object) -> bytes:
    """JSON as it is written in a bundle: indented UTF-8, no NaN, a newline at the end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def to_json_value(value: object) -> JsonValue:
    """A summary value as JSON can hold it; a score that is not a number (a perplexity that overflowed) becomes null."""
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
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot stand in a manifest")


def parse_manifest(content: bytes, folder: Path) -> Manifest:
    """Read `manifest.json`; an error says whether the file is damaged or comes from another version of clearhead."""
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
            f"{folder} was written by a newer clearhead (format {version}; this one reads up to {FORMAT_VERSION}): "
            "upgrade clearhead"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BundleError(f"{path} is damaged: {where}: {first['msg']}; copy the folder again") from error
    for name in CHECKSUMMED:
        if name not in manifest.files:
            raise BundleError(f"{path} is damaged: it has no checksum for {name}; copy the folder again")
    return manifest
