"""Records of large corpora, cached on disk as text with an index and read in blocks.

A large corpus is read and filtered once. The usable records are written to the user's cache folder, under a hash of the
files and settings, so that the next training with the same data starts immediately. Small corpora stay in memory.
Documents are stored as pairs without a target.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.held_out import hash_fraction
from clearhead.data.corpus.id_arrays import ArrayWriter, MappedArrays, ProgressCallback, cached_arrays, ignore_progress
from clearhead.data.readers.documents import Document, DocumentUnit, load_documents, read_documents
from clearhead.data.readers.pairs import Pair, load_pairs, read_pairs
from clearhead.data.readers.tables import COMPRESSED_SUFFIXES, PARQUET, TableOptions, format_suffix
from clearhead.data.records import Corpus, Fingerprint, Fractions, Mask, SkipReport, require_enough_records
from clearhead.errors import DataError
from clearhead.files import user_cache_folder

LARGE_BYTES = 32 << 20  # of text; smaller corpora are read into memory
COMPRESSION_RATIO = 4  # estimated length of a text relative to its compressed length
MAX_BLOCK_PAIRS = 8192  # pairs in memory as Python objects at a time,
MAX_BLOCK_BYTES = 4 << 20  # or fewer if they are long
CORPORA_FOLDER = "corpora"  # in the user's cache folder
ARRAY_TYPES = {"text": "u1", "source_end": "<i8", "target_end": "<i8", "line": "<i8", "file_index": "<i4",
               "hash_fraction": "<f8"}  # fmt: skip


@dataclass(frozen=True)
class PairFilters:
    """Filters of the pairs, and how tables are read."""

    max_chars: int
    max_length_ratio: float = 0.0
    deduplicate: bool = False
    table: TableOptions = field(default_factory=TableOptions)


class CachedPairs(Sequence[Pair]):
    """Pairs on disk, or a selection of them."""

    def __init__(self, arrays: MappedArrays, selected_N: Mask | None = None) -> None:
        self.arrays = arrays
        self.total = arrays.counts["line"]
        self.selected_N = np.ones(self.total, np.bool_) if selected_N is None else selected_N
        self._count = int(np.count_nonzero(self.selected_N))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        size = self.block_size
        for start in range(0, self.total, size):
            yield from self.block(start, start + size)

    @property
    def block_size(self) -> int:
        """Number of pairs read at a time."""
        mean = self.arrays.counts["text"] // max(1, self.total)
        return max(1, min(MAX_BLOCK_PAIRS, MAX_BLOCK_BYTES // max(1, mean)))

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        indices = range(len(self))[index]
        positions = np.flatnonzero(self.selected_N)
        if isinstance(indices, int):
            return self._pair_at(int(positions[indices]))
        return [self._pair_at(int(positions[number])) for number in indices]

    def _pair_at(self, position: int) -> Pair:
        return self.block(position, position + 1)[0]

    def block(self, start: int, stop: int) -> list[Pair]:
        """Return the selected pairs among those from `start` to `stop`."""
        indices = np.flatnonzero(self.selected_N[start:stop]).tolist()
        if not indices:
            return []
        read = self.arrays.read
        stop = min(stop, self.total)
        source_ends, target_ends, lines, file_indices = (
            read(name, start, stop).tolist() for name in ("source_end", "target_end", "line", "file_index")
        )
        first = int(read("target_end", start - 1, start)[0]) if start else 0
        text = read("text", first, target_ends[-1]).tobytes()
        starts = [first, *target_ends]
        return [
            Pair(
                text[starts[index] - first : source_ends[index] - first].decode(),
                text[source_ends[index] - first : target_ends[index] - first].decode(),
                lines[index],
                file_indices[index],
            )
            for index in indices
        ]

    def hash_fractions(self) -> Fractions:
        """Return the hash fraction of each source."""
        fractions: NDArray[Any] = self.arrays.map("hash_fraction")
        return fractions[self.selected_N]

    def select(self, selected_N: Mask) -> "CachedPairs":
        """Return a selection of the pairs."""
        combined_N = self.selected_N.copy()
        combined_N[self.selected_N] = selected_N
        return CachedPairs(self.arrays, combined_N)

    def sample_evenly(self, limit: int) -> "CachedPairs":
        """Return at most `limit` pairs, evenly spaced over the corpus."""
        if len(self) <= limit:
            return self
        selected_N = np.zeros(len(self), np.bool_)
        selected_N[np.arange(limit) * len(self) // limit] = True
        return self.select(selected_N)


def load_pairs_cached(
    paths: Sequence[Path],
    filters: PairFilters,
    minimum: int = 1,
    folder: Path | None = None,
    progress: ProgressCallback = ignore_progress,
) -> Corpus[Pair]:
    """Return the pairs of files: in memory or, if large, on disk in `folder` (default: the user's cache folder)."""
    if not are_large(paths):
        return load_pairs(paths, filters.max_chars, minimum, max_length_ratio=filters.max_length_ratio,
                          deduplicate=filters.deduplicate, table=filters.table)  # fmt: skip

    def read(skips: SkipReport) -> Iterator[Pair]:
        return read_pairs(paths, skips, filters.max_chars, filters.max_length_ratio, filters.deduplicate, filters.table)

    corpus = cache_pairs(paths, asdict(filters), read, folder, partial(progress, "reading pairs"))
    require_enough_records(corpus, paths, minimum, "pairs")
    return corpus


def cache_pairs(
    paths: Sequence[Path],
    settings: Mapping[str, object],
    read: Callable[[SkipReport], Iterator[Pair]],
    folder: Path | None,
    progress: Callable[[int, int], None],
) -> Corpus[Pair]:
    """Return the pairs on disk that `read` yields; they are written unless cached for these files and settings."""
    key = _cache_key(paths, settings)

    def fill(writer: ArrayWriter) -> None:
        skips = SkipReport()
        writer.metadata = {"fingerprint": _write(read(skips), writer, progress), **asdict(skips)}
        writer.metadata["files"] = [str(path.absolute()) for path in paths]

    arrays = cached_arrays((folder or user_cache_folder() / CORPORA_FOLDER) / key, key, ARRAY_TYPES, fill)
    report = {name: value for name, value in arrays.metadata.items() if name not in ("files", "fingerprint")}
    skips, fingerprint = SkipReport(**report), str(arrays.metadata["fingerprint"])
    return Corpus[Pair](CachedPairs(arrays), skips, arrays.counts["line"] + skips.total, fingerprint)


def are_large(paths: Sequence[Path]) -> bool:
    """Return whether the files together are too large to be read into memory."""
    return all(path.is_file() for path in paths) and sum(map(_text_size, paths)) >= LARGE_BYTES


def _text_size(path: Path) -> int:
    """Return an estimate of the bytes of text in a file."""
    is_compressed = path.suffix.lower() in COMPRESSED_SUFFIXES or format_suffix(path) == PARQUET
    return path.stat().st_size * (COMPRESSION_RATIO if is_compressed else 1)


def _cache_key(paths: Sequence[Path], settings: Mapping[str, object]) -> str:
    """Return a hash of the contents of the files and the settings."""
    files = []
    for path in paths:
        try:
            with path.open("rb") as file:
                files.append((format_suffix(path), hashlib.file_digest(file, "blake2b").hexdigest()))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    return hashlib.blake2b(json.dumps([files, settings]).encode(), digest_size=12).hexdigest()


def _blocks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """Iterate over blocks of pairs that are small enough for memory."""
    block, size = list[Pair](), 0
    for pair in pairs:
        block.append(pair)
        size += len(pair.source) + len(pair.target)
        if len(block) >= MAX_BLOCK_PAIRS or size >= MAX_BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _write(pairs: Iterator[Pair], writer: ArrayWriter, progress: Callable[[int, int], None]) -> str:
    """Write all pairs in blocks and return their fingerprint."""
    digest, end, done = Fingerprint(), 0, 0
    for block in _blocks(pairs):
        text, source_ends, target_ends, fractions = bytearray(), array("q"), array("q"), array("d")
        for pair in block:
            source, target = pair.source.encode(), pair.target.encode()
            digest.add(*((source, target) if target else (source,)))  # a document has no target
            text += source + target
            source_ends.append(end + len(source))
            end += len(source) + len(target)
            target_ends.append(end)
            fractions.append(hash_fraction(source))
        writer.append_bytes("text", text)
        columns = {"source_end": source_ends, "target_end": target_ends, "hash_fraction": fractions,
                   "line": [pair.line for pair in block],
                   "file_index": [pair.file_index for pair in block]}  # fmt: skip
        for name, values in columns.items():
            writer.append(name, np.asarray(values, dtype=ARRAY_TYPES[name]))
        done += len(block)
        progress(done, 0)
    return str(digest)


class CachedDocuments(Sequence[Document]):
    """Documents on disk, or a selection of them."""

    def __init__(self, pairs: CachedPairs) -> None:
        self.pairs = pairs

    @property
    def arrays(self) -> MappedArrays:
        """The arrays of the cached corpus."""
        return self.pairs.arrays

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self.pairs)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        pairs = self.pairs[index]
        return _document(pairs) if isinstance(pairs, Pair) else [_document(pair) for pair in pairs]

    def hash_fractions(self) -> Fractions:
        """Return the hash fraction of each document."""
        return self.pairs.hash_fractions()

    def select(self, selected_N: Mask) -> "CachedDocuments":
        """Return a selection of the documents."""
        return CachedDocuments(self.pairs.select(selected_N))

    def sample_evenly(self, limit: int) -> "CachedDocuments":
        """Return at most `limit` documents, evenly spaced over the corpus."""
        return CachedDocuments(self.pairs.sample_evenly(limit))


def _document(pair: Pair) -> Document:
    return Document(pair.source, pair.line)


def load_documents_cached(
    paths: Sequence[Path], unit: DocumentUnit, folder: Path | None = None, progress: ProgressCallback = ignore_progress
) -> Corpus[Document]:
    """Return the documents of files: in memory or, if large, on disk in `folder` (default: the user's cache folder)."""
    if not are_large(paths):
        return load_documents(paths, unit)

    def read(_: SkipReport) -> Iterator[Pair]:
        return (Pair(document.text, "", document.line) for document in read_documents(paths, unit))

    pairs = cache_pairs(paths, {"documents": unit}, read, folder, partial(progress, "reading documents"))
    assert isinstance(pairs.records, CachedPairs)
    return Corpus(CachedDocuments(pairs.records), pairs.skips, pairs.total_lines, pairs.fingerprint)
