"""Size and SHA-256 of files: noted when they are written, compared when they are read."""

import hashlib
import os
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from clearhead.errors import BundleError


class FileRecord(BaseModel):
    """Size and SHA-256 of one file."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


def record_of(path: Path) -> FileRecord:
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
