"""What `manifest.json` holds: which weights these are, where they come from, and a checksum for each file."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from clearhead.bundle.checksums import FileRecord
from clearhead.bundle.layout import CHECKED, MANIFEST
from clearhead.errors import BundleError

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
        return hashlib.sha256("".join(self.files[name].sha256 for name in CHECKED).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of `manifest.json`."""
        return json_bytes(self.model_dump(mode="json"))


def json_bytes(value: object) -> bytes:
    """JSON as it is written in a bundle: indented UTF-8, no NaN, a newline at the end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def as_json(value: object) -> JsonValue:
    """A summary value as JSON can hold it; a score that is not a number (a perplexity that overflowed) becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [as_json(item) for item in value]
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
    for name in CHECKED:
        if name not in manifest.files:
            raise BundleError(f"{path} is damaged: it has no checksum for {name}; copy the folder again")
    return manifest
