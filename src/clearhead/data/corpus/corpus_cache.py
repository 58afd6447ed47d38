"""Corpora that were prepared once and lie in the user's cache folder: what there is, and its removal.

A corpus KEY lies beside its ids, KEY-..., one folder for each vocabulary. All of it can be made again.
"""

import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.corpus.cached_corpus import CORPORA_FOLDER
from clearhead.data.corpus.id_arrays import METADATA_FILE, MappedArrays
from clearhead.errors import DataError
from clearhead.files import user_cache_folder

SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True)
class CachedCorpus:
    """A prepared corpus with all its ids."""

    key: str
    folder: Path
    files: tuple[str, ...]
    """What it was made from; nothing where it is damaged."""
    records: int
    num_bytes: int
    last_used: float
    """When a training last opened it, in seconds since 1970."""

    @property
    def days_unused(self) -> float:
        """How long ago that was."""
        return max(0.0, (time.time() - self.last_used) / SECONDS_PER_DAY)

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {"folder": str(self.folder), "files": list(self.files), "records": self.records,
                "bytes": self.num_bytes, "days_unused": round(self.days_unused, 2)}  # fmt: skip

    def remove(self) -> None:
        """Deletes it, unless a process is just making a part of it; a training that has it open goes on."""
        with ExitStack() as held:
            parts = _paths_of(self.folder.parent, self.key)
            for lock in (path for path in parts if path.name.endswith(".lock")):
                if not _try_lock(lock, held):
                    raise DataError(f"{self.folder} is just being made; wait for that training to begin")
            try:
                for path in parts:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                raise DataError(f"cannot remove {self.folder}: {error.strerror}; check its permissions") from error


def list_cached_corpora(folder: Path | None = None) -> list[CachedCorpus]:
    """The prepared corpora of this user, the one used last first."""
    place = folder or user_cache_folder() / CORPORA_FOLDER
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    keys = {name.lstrip(".").partition("-")[0].partition(".")[0] for name in names}
    return sorted((_describe(place, key) for key in keys), key=lambda kept: -kept.last_used)


def _describe(place: Path, key: str) -> CachedCorpus:
    found = MappedArrays.open(place / key)
    files = tuple(found.metadata.get("files", ())) if found else ()
    parts = _paths_of(place, key)
    facts = [part / METADATA_FILE for part in parts if (part / METADATA_FILE).is_file()]
    used = max((path.stat().st_mtime for path in facts or parts), default=0.0)
    inside = [path for part in parts for path in (part, *part.rglob("*")) if path.is_file()]
    return CachedCorpus(key, place / key, files, found.counts["line"] if found else 0,
                      sum(path.stat().st_size for path in inside), used)  # fmt: skip


def _paths_of(place: Path, key: str) -> list[Path]:
    """The corpus, its ids, and what was cut off of either."""
    return sorted({*place.glob(f"{key}*"), *place.glob(f".{key}*")})


def _try_lock(path: Path, held: ExitStack) -> bool:
    """Takes the lock that makers take, until `held` ends; False where one of them has it."""
    file = held.enter_context(path.open("w"))
    if os.name != "nt":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
