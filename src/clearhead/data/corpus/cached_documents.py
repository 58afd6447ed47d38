"""Documents of a large text, kept on disk as pairs without a target: behind the same index, read in the same blocks."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import overload

from clearhead.data.corpus.cached_pairs import StoredPairs, are_large, keep_pairs
from clearhead.data.corpus.mmap_arrays import Columns, Work, nobody
from clearhead.data.readers.documents import Cut, Document, load_documents, read_documents
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import Corpus, Mask, Places, Skips


class StoredDocuments(Sequence[Document]):
    """Documents on disk, or those of them that are wanted."""

    def __init__(self, pairs: StoredPairs) -> None:
        self.pairs = pairs

    @property
    def columns(self) -> Columns:
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

    def select(self, wanted_N: Mask) -> "StoredDocuments":
        """Some of these documents."""
        return StoredDocuments(self.pairs.select(wanted_N))

    def spread(self, most: int) -> "StoredDocuments":
        """At most so many of these documents, from all over the text."""
        return StoredDocuments(self.pairs.spread(most))


def _document(pair: Pair) -> Document:
    return Document(pair.source, pair.line)


def load_text(paths: Sequence[Path], cut: Cut, folder: Path | None = None, work: Work = nobody) -> Corpus[Document]:
    """The documents of files: in memory, or where they are large on disk in `folder` (the user's cache folder)."""
    if not are_large(paths):
        return load_documents(paths, cut)

    def read(_: Skips) -> Iterator[Pair]:
        return (Pair(document.text, "", document.line) for document in read_documents(paths, cut))

    kept = keep_pairs(paths, {"documents": cut}, read, folder, partial(work, "reading documents"))
    assert isinstance(kept.records, StoredPairs)
    return Corpus(StoredDocuments(kept.records), kept.skips, kept.total_lines, kept.fingerprint)
