"""Size and SHA-256 of files: noted when they are written, compared when they are read."""

import hashlib
import os
from io import BufferedReader
from pathlib import Path

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
    """Refuses a file that does not hold what was noted, by the name `path`; reading goes on from its beginning."""
    try:
        size = os.fstat(file.fileno()).st_size
        if size != expected.size:
            raise BundleError(f"{path} is damaged: expected {expected.size:,} bytes, found {size:,}; {remedy}")
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected.sha256:
            raise BundleError(
                f"{path} was changed after it was saved: expected SHA-256 {expected.sha256[:16]}…, "
                f"found {found[:16]}…; {remedy}"
            )
        file.seek(0)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
