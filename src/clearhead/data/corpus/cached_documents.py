"""Documents of a large text, kept on disk as pairs without a target: behind the same index, read in the same blocks."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import overload

from clearhead.data.corpus.cached_pairs import CachedPairs, are_large, cache_pairs
from clearhead.data.corpus.mmap_arrays import MappedArrays, Work, ignore_progress
from clearhead.data.readers.documents import Cut, Document, load_documents, read_documents
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import Corpus, Mask, Places, SkipReport


class CachedDocuments(Sequence[Document]):
    """Documents on disk, or those of them that are wanted."""

    def __init__(self, pairs: CachedPairs) -> None:
        self.pairs = pairs

    @property
    def columns(self) -> MappedArrays:
        """Where they lie."""
        return self.pairs.columns

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

    def places(self) -> Places:
        """Where each document falls between 0 and 1."""
        return self.pairs.places()

    def select(self, wanted_N: Mask) -> "CachedDocuments":
        """Some of these documents."""
        return CachedDocuments(self.pairs.select(wanted_N))

    def spread(self, most: int) -> "CachedDocuments":
        """At most so many of these documents, from all over the text."""
        return CachedDocuments(self.pairs.spread(most))


def _document(pair: Pair) -> Document:
    return Document(pair.source, pair.line)


def load_documents_cached(
    paths: Sequence[Path], cut: Cut, folder: Path | None = None, work: Work = ignore_progress
) -> Corpus[Document]:
    """The documents of files: in memory, or where they are large on disk in `folder` (the user's cache folder)."""
    if not are_large(paths):
        return load_documents(paths, cut)

    def read(_: SkipReport) -> Iterator[Pair]:
        return (Pair(document.text, "", document.line) for document in read_documents(paths, cut))

    kept = cache_pairs(paths, {"documents": cut}, read, folder, partial(work, "reading documents"))
    assert isinstance(kept.records, CachedPairs)
    return Corpus(CachedDocuments(kept.records), kept.skips, kept.total_lines, kept.fingerprint)
