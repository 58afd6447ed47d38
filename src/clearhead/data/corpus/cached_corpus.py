"""Sentence pairs of a large corpus, kept on disk as plain text behind an index and read back in blocks.

A corpus is read, filtered and counted once; what is left is kept in the user's cache folder under a name made from the
content of the files and the settings, so that the next training on it begins at once. Small corpora stay in memory.

Documents of a large text, kept on disk as pairs without a target: behind the same index, read in the same blocks.
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

LARGE_BYTES = 32 << 20  # of text; less is read into memory
COMPRESSION_RATIO = 4  # so many times as long is a text as its compressed form, about
MAX_BLOCK_PAIRS = 8192  # pairs that are held as Python objects at a time,
MAX_BLOCK_BYTES = 4 << 20  # or fewer, where they are as long as documents
CORPORA_FOLDER = "corpora"  # the folder in the user's cache
ARRAY_TYPES = {"text": "u1", "source_end": "<i8", "target_end": "<i8", "line": "<i8", "corpus": "<i4", "place": "<f8"}


@dataclass(frozen=True)
class PairFilters:
    """Which pairs of the files are taken, and how the files are read."""

    max_chars: int
    max_length_ratio: float = 0.0
    deduplicate: bool = False
    table: TableOptions = field(default_factory=TableOptions)


class CachedPairs(Sequence[Pair]):
    """Pairs on disk, or those of them that are wanted."""

    def __init__(self, columns: MappedArrays, wanted_N: Mask | None = None) -> None:
        self.arrays = columns
        self.total = columns.counts["line"]
        self.selected_N = np.ones(self.total, np.bool_) if wanted_N is None else wanted_N
        self._count = int(np.count_nonzero(self.selected_N))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        size = self.block_size
        for start in range(0, self.total, size):
            yield from self.block(start, start + size)

    @property
    def block_size(self) -> int:
        """How many are read at a time."""
        mean = self.arrays.counts["text"] // max(1, self.total)
        return max(1, min(MAX_BLOCK_PAIRS, MAX_BLOCK_BYTES // max(1, mean)))

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        indices = range(len(self))[index]
        places = np.flatnonzero(self.selected_N)
        if isinstance(indices, int):
            return self.block(int(places[indices]), int(places[indices]) + 1)[0]
        return [self.block(int(places[one]), int(places[one]) + 1)[0] for one in indices]

    def block(self, start: int, stop: int) -> list[Pair]:
        """Those of the pairs that lie from `start` to `stop`."""
        places = np.flatnonzero(self.selected_N[start:stop]).tolist()
        if not places:
            return []
        read = self.arrays.read
        stop = min(stop, self.total)
        source_ends, target_ends, lines, files = (
            read(name, start, stop).tolist() for name in ("source_end", "target_end", "line", "corpus")
        )
        first = int(read("target_end", start - 1, start)[0]) if start else 0
        text = read("text", first, target_ends[-1]).tobytes()
        begins = [first, *target_ends]
        return [
            Pair(
                text[begins[place] - first : source_ends[place] - first].decode(),
                text[source_ends[place] - first : target_ends[place] - first].decode(),
                lines[place],
                files[place],
            )
            for place in places
        ]

    def hash_fractions(self) -> Fractions:
        """Where each source falls between 0 and 1."""
        found: NDArray[Any] = self.arrays.map("place")
        return found[self.selected_N]

    def select(self, wanted_N: Mask) -> "CachedPairs":
        """Some of these pairs."""
        both_N = self.selected_N.copy()
        both_N[self.selected_N] = wanted_N
        return CachedPairs(self.arrays, both_N)

    def sample_evenly(self, most: int) -> "CachedPairs":
        """At most so many of these pairs, from all over the corpus."""
        if len(self) <= most:
            return self
        wanted_N = np.zeros(len(self), np.bool_)
        wanted_N[np.arange(most) * len(self) // most] = True
        return self.select(wanted_N)


def load_pairs_cached(
    paths: Sequence[Path],
    filters: PairFilters,
    minimum: int = 1,
    folder: Path | None = None,
    work: ProgressCallback = ignore_progress,
) -> Corpus[Pair]:
    """The pairs of files: in memory, or where they are large on disk in `folder` (the user's cache folder)."""
    if not are_large(paths):
        return load_pairs(paths, filters.max_chars, minimum, max_length_ratio=filters.max_length_ratio,
                          deduplicate=filters.deduplicate, table=filters.table)  # fmt: skip

    def read(skips: SkipReport) -> Iterator[Pair]:
        return read_pairs(paths, skips, filters.max_chars, filters.max_length_ratio, filters.deduplicate, filters.table)

    corpus = cache_pairs(paths, asdict(filters), read, folder, partial(work, "reading pairs"))
    require_enough_records(corpus, paths, minimum, "pairs")
    return corpus


def cache_pairs(
    paths: Sequence[Path],
    settings: Mapping[str, object],
    read: Callable[[SkipReport], Iterator[Pair]],
    folder: Path | None,
    work: Callable[[int, int], None],
) -> Corpus[Pair]:
    """The pairs that `read` makes of files by these settings, on disk: made now, or found there."""
    key = _key(paths, settings)

    def fill(writer: ArrayWriter) -> None:
        skips = SkipReport()
        writer.metadata = {"fingerprint": _write(read(skips), writer, work), **asdict(skips)}
        writer.metadata["files"] = [str(path.absolute()) for path in paths]

    columns = cached_arrays((folder or user_cache_folder() / CORPORA_FOLDER) / key, key, ARRAY_TYPES, fill)
    facts = {name: value for name, value in columns.metadata.items() if name != "files"}
    fingerprint = str(facts.pop("fingerprint"))
    skips = SkipReport(**facts)
    return Corpus[Pair](CachedPairs(columns), skips, columns.counts["line"] + skips.total, fingerprint)


def are_large(paths: Sequence[Path]) -> bool:
    """Whether files hold more text than is read into memory."""
    return all(path.is_file() for path in paths) and sum(map(_text_size, paths)) >= LARGE_BYTES


def _text_size(path: Path) -> int:
    """About how many bytes of text a file holds."""
    is_packed = path.suffix.lower() in COMPRESSED_SUFFIXES or format_suffix(path) == PARQUET
    return path.stat().st_size * (COMPRESSION_RATIO if is_packed else 1)


def _key(paths: Sequence[Path], settings: Mapping[str, object]) -> str:
    """Equal for equal files and settings, wherever the files lie."""
    files = []
    for path in paths:
        try:
            with path.open("rb") as file:
                files.append((format_suffix(path), hashlib.file_digest(file, "blake2b").hexdigest()))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    return hashlib.blake2b(json.dumps([files, settings]).encode(), digest_size=12).hexdigest()


def _blocks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """Pairs, as many at a time as are held as Python objects."""
    block, size = list[Pair](), 0
    for pair in pairs:
        block.append(pair)
        size += len(pair.source) + len(pair.target)
        if len(block) >= MAX_BLOCK_PAIRS or size >= MAX_BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _write(pairs: Iterator[Pair], writer: ArrayWriter, work: Callable[[int, int], None]) -> str:
    """Appends all pairs in blocks, and gives their fingerprint."""
    digest, end, done = Fingerprint(), 0, 0
    for block in _blocks(pairs):
        text, ends, places = bytearray(), (array("q"), array("q")), array("d")
        for pair in block:
            source, target = pair.source.encode(), pair.target.encode()
            digest.add(*((source, target) if target else (source,)))  # a document has no target
            text += source + target
            ends[0].append(end + len(source))
            end += len(source) + len(target)
            ends[1].append(end)
            places.append(hash_fraction(source))
        writer.append_bytes("text", text)
        numbers = {"source_end": ends[0], "target_end": ends[1], "place": places,
                   "line": [pair.line for pair in block], "corpus": [pair.file_index for pair in block]}  # fmt: skip
        for name, values in numbers.items():
            writer.append(name, np.asarray(values, dtype=ARRAY_TYPES[name]))
        done += len(block)
        work(done, 0)
    return str(digest)


class CachedDocuments(Sequence[Document]):
    """Documents on disk, or those of them that are wanted."""

    def __init__(self, pairs: CachedPairs) -> None:
        self.pairs = pairs

    @property
    def arrays(self) -> MappedArrays:
        """Where they lie."""
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
        found = self.pairs[index]
        return _document(found) if isinstance(found, Pair) else [_document(pair) for pair in found]

    def hash_fractions(self) -> Fractions:
        """Where each document falls between 0 and 1."""
        return self.pairs.hash_fractions()

    def select(self, wanted_N: Mask) -> "CachedDocuments":
        """Some of these documents."""
        return CachedDocuments(self.pairs.select(wanted_N))

    def sample_evenly(self, most: int) -> "CachedDocuments":
        """At most so many of these documents, from all over the text."""
        return CachedDocuments(self.pairs.sample_evenly(most))


def _document(pair: Pair) -> Document:
    return Document(pair.source, pair.line)


def load_documents_cached(
    paths: Sequence[Path], cut: DocumentUnit, folder: Path | None = None, work: ProgressCallback = ignore_progress
) -> Corpus[Document]:
    """The documents of files: in memory, or where they are large on disk in `folder` (the user's cache folder)."""
    if not are_large(paths):
        return load_documents(paths, cut)

    def read(_: SkipReport) -> Iterator[Pair]:
        return (Pair(document.text, "", document.line) for document in read_documents(paths, cut))

    kept = cache_pairs(paths, {"documents": cut}, read, folder, partial(work, "reading documents"))
    assert isinstance(kept.records, CachedPairs)
    return Corpus(CachedDocuments(kept.records), kept.skips, kept.total_lines, kept.fingerprint)
