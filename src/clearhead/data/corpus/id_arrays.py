"""Flat arrays in a folder: written by appending, opened by mapping them into memory, with one JSON file beside them.

    columns.json     format version, what the folder was made from, type, length and SHA-256 of each array, plain facts
    NAME.bin         the numbers of one array, little-endian

Knows numbers, nothing of what they mean. A folder is made aside and renamed when it is whole; whoever opens one to
use it checks what it was made from, and size and SHA-256 of every file.

Token ids of a whole corpus, laid end to end: two flat arrays instead of a million small lists.

The arrays are in memory, or mapped from files (see `columns`). Knows ids and lengths, nothing of text. The ids carry no
start or end tokens; the task adds them.
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
ProgressCallback = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much; of 0 where that is not known."""


def ignore_progress(what: str, done: int, total: int) -> None:
    """Is told how far long work is, and keeps it to itself."""


class ArrayWriter:
    """Arrays of a new folder; `facts` may be filled until the end."""

    def __init__(self, folder: Path, key: str, types: Mapping[str, str]) -> None:
        self.folder, self.key, self.types = folder, key, dict(types)
        self.metadata: dict[str, Any] = {}
        self._counts = dict.fromkeys(types, 0)
        self._sums = {name: hashlib.sha256() for name in types}
        self._files: dict[str, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in self.types:
            self._files[name] = self._stack.enter_context((self.folder / f"{name}.bin").open("xb"))
        return self

    def append(self, name: str, values: Any) -> None:
        """More numbers of one array; what does not fit its type is a bug."""
        numbers = np.asarray(values).astype(self.types[name], casting="same_kind", copy=False)
        self._counts[name] += len(numbers)
        self._write(name, np.ascontiguousarray(numbers).data)

    def append_bytes(self, name: str, content: bytes | bytearray) -> None:
        """More of an array of bytes."""
        self._counts[name] += len(content)
        self._write(name, content)

    def _write(self, name: str, content: bytes | bytearray | memoryview) -> None:
        self._sums[name].update(content)
        self._files[name].write(content)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stack.close()
        if kind is None:
            arrays = {name: {"type": self.types[name], "count": count, "sha256": self._sums[name].hexdigest()}
                      for name, count in self._counts.items()}  # fmt: skip
            written = {"version": FORMAT_VERSION, "key": self.key, "arrays": arrays, "facts": self.metadata}
            (self.folder / METADATA_FILE).write_text(
                json.dumps(written, ensure_ascii=False, indent=1), encoding="utf-8"
            )


@dataclass(frozen=True)
class MappedArrays:
    """The arrays of a folder that is whole."""

    folder: Path
    key: str
    types: Mapping[str, str]
    counts: Mapping[str, int]
    checksums: Mapping[str, str]
    metadata: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path, key: str = "") -> "MappedArrays | None":
        """The arrays of a folder made from `key`; none where a file is missing, or is not what it was."""
        try:
            written = json.loads((folder / METADATA_FILE).read_text(encoding="utf-8"))
            arrays = {name: (array["type"], int(array["count"])) for name, array in written["arrays"].items()}
            sizes = {name: (folder / f"{name}.bin").stat().st_size for name in arrays}
            if written["version"] != FORMAT_VERSION or (key and written["key"] != key):
                return None
            if any(sizes[name] != np.dtype(kind).itemsize * count for name, (kind, count) in arrays.items()):
                return None
            types = {name: kind for name, (kind, _) in arrays.items()}
            counts = {name: count for name, (_, count) in arrays.items()}
            sums = {name: str(array["sha256"]) for name, array in written["arrays"].items()}
            return cls(folder, written["key"], types, counts, sums, written["facts"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_intact(self) -> bool:
        """Whether no bit has changed since it was written. Reads all files once, about a gigabyte in a second."""
        try:
            for name, expected in self.checksums.items():
                with (self.folder / f"{name}.bin").open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                        return False
        except OSError:
            return False
        return True

    def map(self, name: str) -> NDArray[Any]:
        """An array that the system reads when it is used; its pages are given back when memory is short."""
        if not self.counts[name]:
            return np.zeros(0, dtype=self.types[name])
        return np.asarray(np.memmap(self.folder / f"{name}.bin", dtype=self.types[name], mode="r"))

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """A part of an array, copied."""
        kind = np.dtype(self.types[name])
        offset, count = start * kind.itemsize, max(0, stop - start)
        return np.fromfile(self.folder / f"{name}.bin", dtype=kind, count=count, offset=offset)


def release_pages(array: NDArray[Any]) -> None:
    """Takes the pages of a mapped array out of this process; they are read again when they are used.

    The system would do it itself where memory is short, but until then they count as this process's own.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Which folder it is, if there is one."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def cached_arrays(
    folder: Path, key: str, types: Mapping[str, str], fill: Callable[[ArrayWriter], None]
) -> MappedArrays:
    """The arrays of a folder, filled now unless it is there and whole."""
    here = _identity(folder)
    found = MappedArrays.open(folder, key)
    if found is not None and found.is_intact():
        with suppress(OSError):  # a folder of somebody else
            (folder / METADATA_FILE).touch()  # says when it was used last
        return found

    def make(aside: Path) -> None:
        with ArrayWriter(aside, key, types) as writer:
            fill(writer)

    try:
        if here and _identity(folder) == here:  # cut off, damaged, or of another version; not one just made by others
            with suppress(FileNotFoundError):  # another process was first
                folder.rename(folder.with_name(f".{folder.name}.damaged-{key[:8]}"))
        create_folder_once(folder, make)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"cannot keep a large corpus in {folder.parent}: {reason}; make room there, or name another place in "
            "XDG_CACHE_HOME"
        ) from error
    made = MappedArrays.open(folder, key)
    assert made is not None, f"{folder} was made and is not whole"
    return made


Ids = NDArray[np.integer[Any]]
Lengths = NDArray[np.int32]


@dataclass(frozen=True)
class IdArrays:
    """Sequences of ids: sequence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]

    @classmethod
    def build(cls, sequences: Iterable[Sequence[int]]) -> "IdArrays":
        """The store of these sequences, in their order."""
        parts = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.concatenate(parts) if parts else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Lengths:
        """How many ids each sequence has."""
        return np.diff(self.offsets).astype(np.int32)

    def release_pages(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        release_pages(self.ids)
        release_pages(self.offsets)


@dataclass(frozen=True)
class PairIds:
    """Source and target ids of sentence pairs, with the line that each came from, and the number of its file."""

    source: IdArrays
    target: IdArrays
    lines: NDArray[np.int64]
    file_index_N: NDArray[np.integer[Any]] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def release_pages(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        self.source.release_pages()
        self.target.release_pages()


class PairIdsWriter:
    """Pairs appended to arrays on disk, block by block."""

    def __init__(self, writer: ArrayWriter) -> None:
        self.writer = writer
        self._ends = {"source": 0, "target": 0}
        for side in self._ends:
            writer.append(f"{side}_offsets", np.zeros(1, np.int64))

    @staticmethod
    def types(vocab_size: int) -> dict[str, str]:
        """The arrays and their types: ids take two bytes where they fit."""
        ids = "<u2" if vocab_size <= 1 << 16 else "<i4"
        sides = {f"{side}_{name}": kind for side in ("source", "target") for name, kind in
                 (("ids", ids), ("offsets", "<i8"))}  # fmt: skip
        return {**sides, "lines": "<i8", "corpus": "<i4"}

    def append(self, block: PairIds) -> None:
        """More pairs."""
        for side, store in (("source", block.source), ("target", block.target)):
            self.writer.append(f"{side}_ids", store.ids.astype(self.writer.types[f"{side}_ids"]))
            self.writer.append(f"{side}_offsets", store.offsets[1:] + self._ends[side])
            self._ends[side] += len(store.ids)
        self.writer.append("lines", block.lines)
        assert block.file_index_N is not None
        self.writer.append("corpus", block.file_index_N)


def open_pair_ids(columns: MappedArrays) -> PairIds:
    """What a `PairIdsWriter` wrote."""
    source, target = (
        IdArrays(columns.map(f"{side}_ids"), columns.map(f"{side}_offsets")) for side in ("source", "target")
    )
    return PairIds(source, target, columns.map("lines"), columns.map("corpus"))
