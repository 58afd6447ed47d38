"""Memory-mapped arrays in a folder, and the token ids of a corpus as flat arrays.

A folder contains one file per array and one JSON file:

    columns.json     format version; key; dtype, length and SHA-256 of each array; metadata
    NAME.bin         the values of one array, little-endian

The key identifies the input from which the arrays were computed. A folder is written under a temporary name and renamed
when it is complete; `cached_arrays` verifies the key, the sizes and the checksums before it uses a folder.

`IdArrays` stores all sequences of a corpus in two arrays, in memory or memory-mapped, instead of millions of lists. The
ids contain no start or end tokens; the tasks add them.
"""

import hashlib
import json
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.files import create_folder_once

FORMAT_VERSION = 3
METADATA_FILE = "columns.json"
Ids = NDArray[np.integer[Any]]
Lengths = NDArray[np.int32]
ProgressCallback = Callable[[str, int, int], None]
"""Callback for the progress of long work: description, amount done, total amount (0 if unknown)."""


def ignore_progress(description: str, done: int, total: int) -> None:
    """Do nothing: the progress callback of callers that show no progress."""


class ArrayWriter:
    """Writer of the arrays of a new folder; `metadata` may be set until the writer is closed."""

    def __init__(self, folder: Path, key: str, types: Mapping[str, str]) -> None:
        self.folder, self.key, self.types = folder, key, dict(types)
        self.metadata: dict[str, Any] = {}
        self._counts = dict.fromkeys(types, 0)
        self._hashes = {name: hashlib.sha256() for name in types}
        self._files: dict[str, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in self.types:
            self._files[name] = self._stack.enter_context((self.folder / f"{name}.bin").open("xb"))
        return self

    def append(self, name: str, values: Any) -> None:
        """Append values to an array; they must fit its dtype."""
        converted = np.asarray(values).astype(self.types[name], casting="same_kind", copy=False)
        self._counts[name] += len(converted)
        self._write(name, np.ascontiguousarray(converted).data)

    def append_bytes(self, name: str, content: bytes | bytearray) -> None:
        """Append to an array of bytes."""
        self._counts[name] += len(content)
        self._write(name, content)

    def _write(self, name: str, content: bytes | bytearray | memoryview) -> None:
        self._hashes[name].update(content)
        self._files[name].write(content)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stack.close()
        if kind is None:
            arrays = {name: {"type": self.types[name], "count": count, "sha256": self._hashes[name].hexdigest()}
                      for name, count in self._counts.items()}  # fmt: skip
            state = {"version": FORMAT_VERSION, "key": self.key, "arrays": arrays, "metadata": self.metadata}
            (self.folder / METADATA_FILE).write_text(json.dumps(state, ensure_ascii=False, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class MappedArrays:
    """The arrays of a complete folder."""

    folder: Path
    key: str
    types: Mapping[str, str]
    counts: Mapping[str, int]
    checksums: Mapping[str, str]
    metadata: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path, key: str = "") -> "MappedArrays | None":
        """Return the arrays of a folder; None if it is incomplete, or not for `key` if one is given."""
        try:
            state = json.loads((folder / METADATA_FILE).read_text(encoding="utf-8"))
            arrays = {name: (array["type"], int(array["count"])) for name, array in state["arrays"].items()}
            sizes = {name: (folder / f"{name}.bin").stat().st_size for name in arrays}
            if state["version"] != FORMAT_VERSION or (key and state["key"] != key):
                return None
            if any(sizes[name] != np.dtype(kind).itemsize * count for name, (kind, count) in arrays.items()):
                return None
            types = {name: kind for name, (kind, _) in arrays.items()}
            counts = {name: count for name, (_, count) in arrays.items()}
            checksums = {name: str(array["sha256"]) for name, array in state["arrays"].items()}
            return cls(folder, state["key"], types, counts, checksums, state["metadata"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_intact(self) -> bool:
        """Return whether all files match their checksums. Reads all files, at about 1 GB per second."""
        try:
            for name, expected in self.checksums.items():
                with (self.folder / f"{name}.bin").open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                        return False
        except OSError:
            return False
        return True

    def map(self, name: str) -> NDArray[Any]:
        """Return a memory-mapped array; the system reads pages on access and releases them when memory is short."""
        if not self.counts[name]:
            return np.zeros(0, dtype=self.types[name])
        return np.asarray(np.memmap(self.folder / f"{name}.bin", dtype=self.types[name], mode="r"))

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of a slice of an array."""
        kind = np.dtype(self.types[name])
        offset, count = start * kind.itemsize, max(0, stop - start)
        return np.fromfile(self.folder / f"{name}.bin", dtype=kind, count=count, offset=offset)


def release_pages(array: NDArray[Any]) -> None:
    """Release the pages of a memory-mapped array; they are read again on the next access.

    The system does this when memory is short, but until then they count as memory of this process.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode of a folder; None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def cached_arrays(
    folder: Path, key: str, types: Mapping[str, str], fill: Callable[[ArrayWriter], None]
) -> MappedArrays:
    """Return the arrays of a folder for `key`; write it with `fill` first unless it exists and is intact."""
    identity = _identity(folder)
    cached = MappedArrays.open(folder, key)
    if cached is not None and cached.is_intact():
        with suppress(OSError):  # the folder may belong to another user
            (folder / METADATA_FILE).touch()  # records the time of the last use
        return cached

    def write(temporary: Path) -> None:
        with ArrayWriter(temporary, key, types) as writer:
            fill(writer)

    try:
        if identity and _identity(folder) == identity:  # damaged or outdated, and not replaced by another process
            with suppress(FileNotFoundError):  # another process renamed it
                folder.rename(folder.with_name(f".{folder.name}.damaged-{key[:8]}"))
        create_folder_once(folder, write)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"cannot write the cache of a large corpus to {folder.parent}: {reason}; free space there, or set "
            "XDG_CACHE_HOME to another folder"
        ) from error
    written = MappedArrays.open(folder, key)
    assert written is not None, f"{folder} was written but is incomplete"
    return written


@dataclass(frozen=True)
class IdArrays:
    """Sequences of token ids: sequence i is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]

    @classmethod
    def build(cls, sequences: Iterable[Sequence[int]]) -> "IdArrays":
        """Return the arrays of the given sequences."""
        arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Lengths:
        """Length of each sequence."""
        return np.diff(self.offsets).astype(np.int32)

    def release_pages(self) -> None:
        """Release the memory of memory-mapped ids that were read."""
        release_pages(self.ids)
        release_pages(self.offsets)


@dataclass(frozen=True)
class PairIds:
    """Source and target ids of sentence pairs, with the line and the file index of each."""

    source: IdArrays
    target: IdArrays
    lines: NDArray[np.int64]
    file_index_N: NDArray[np.integer[Any]] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def release_pages(self) -> None:
        """Release the memory of memory-mapped ids that were read."""
        self.source.release_pages()
        self.target.release_pages()


class PairIdsWriter:
    """Writer of token ids of pairs to arrays on disk, block by block."""

    def __init__(self, writer: ArrayWriter) -> None:
        self.writer = writer
        self._ends = {"source": 0, "target": 0}
        for side in self._ends:
            writer.append(f"{side}_offsets", np.zeros(1, np.int64))

    @staticmethod
    def types(vocab_size: int) -> dict[str, str]:
        """Return the dtype of each array; ids take two bytes if the vocabulary is small enough."""
        ids = "<u2" if vocab_size <= 1 << 16 else "<i4"
        sides = {f"{side}_{name}": kind for side in ("source", "target") for name, kind in
                 (("ids", ids), ("offsets", "<i8"))}  # fmt: skip
        return {**sides, "lines": "<i8", "file_index": "<i4"}

    def append(self, block: PairIds) -> None:
        """Append a block of pairs."""
        for side, arrays in (("source", block.source), ("target", block.target)):
            self.writer.append(f"{side}_ids", arrays.ids.astype(self.writer.types[f"{side}_ids"]))
            self.writer.append(f"{side}_offsets", arrays.offsets[1:] + self._ends[side])
            self._ends[side] += len(arrays.ids)
        self.writer.append("lines", block.lines)
        assert block.file_index_N is not None
        self.writer.append("file_index", block.file_index_N)


def open_pair_ids(arrays: MappedArrays) -> PairIds:
    """Return the pairs that a `PairIdsWriter` wrote."""
    source, target = (
        IdArrays(arrays.map(f"{side}_ids"), arrays.map(f"{side}_offsets")) for side in ("source", "target")
    )
    return PairIds(source, target, arrays.map("lines"), arrays.map("file_index"))
