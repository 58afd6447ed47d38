"""Listing and removal of the corpora in the user's cache folder.

The folder KEY contains the records of a corpus, and the folders KEY-... its token ids, one folder per tokenizer. All of
them can be created again from the user's files.
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
    """A cached corpus with the token ids of all tokenizers."""

    key: str
    folder: Path
    files: tuple[str, ...]
    """The files that it was read from; empty if it is damaged."""
    records: int
    num_bytes: int
    last_used: float
    """When a training opened it last, in seconds since 1970."""

    @property
    def days_unused(self) -> float:
        """Days since a training opened it."""
        return max(0.0, (time.time() - self.last_used) / SECONDS_PER_DAY)

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that `clearhead data` prints."""
        return {"folder": str(self.folder), "files": list(self.files), "records": self.records,
                "bytes": self.num_bytes, "days_unused": round(self.days_unused, 2)}  # fmt: skip

    def remove(self) -> None:
        """Delete the corpus; raise DataError while a process writes it. A training that has it open is not affected."""
        with ExitStack() as locks:
            paths = _paths_of(self.folder.parent, self.key)
            for lock in (path for path in paths if path.name.endswith(".lock")):
                if not _try_lock(lock, locks):
                    raise DataError(f"{self.folder} is being written; wait until that training has started")
            try:
                for path in paths:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                raise DataError(f"cannot remove {self.folder}: {error.strerror}; check its permissions") from error


def list_cached_corpora(folder: Path | None = None) -> list[CachedCorpus]:
    """Return the cached corpora of the user, the most recently used first."""
    folder = folder or user_cache_folder() / CORPORA_FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    keys = {name.lstrip(".").partition("-")[0].partition(".")[0] for name in names}
    return sorted((_describe(folder, key) for key in keys), key=lambda corpus: -corpus.last_used)


def _describe(folder: Path, key: str) -> CachedCorpus:
    arrays = MappedArrays.open(folder / key)
    files = tuple(arrays.metadata.get("files", ())) if arrays else ()
    paths = _paths_of(folder, key)
    metadata_files = [path / METADATA_FILE for path in paths if (path / METADATA_FILE).is_file()]
    last_used = max((path.stat().st_mtime for path in metadata_files or paths), default=0.0)
    contents = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    return CachedCorpus(key, folder / key, files, arrays.counts["line"] if arrays else 0,
                        sum(file.stat().st_size for file in contents), last_used)  # fmt: skip


def _paths_of(folder: Path, key: str) -> list[Path]:
    """Return the folders of the corpus and its token ids, its lock files, and files left by interrupted writers."""
    return sorted({*folder.glob(f"{key}*"), *folder.glob(f".{key}*")})


def _try_lock(path: Path, locks: ExitStack) -> bool:
    """Lock the file that writers lock, until `locks` is closed; return False if a writer holds it."""
    file = locks.enter_context(path.open("w"))
    if os.name != "nt":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
