"""Token ids of a whole corpus, laid end to end: two flat arrays instead of a million small lists.

The arrays are in memory, or mapped from files (see `columns`). Knows ids and lengths, nothing of text. The ids carry no
start or end tokens; the task adds them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.mmap_arrays import ArrayWriter, MappedArrays, release_pages

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

    def give_back(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        release_pages(self.ids)
        release_pages(self.offsets)


@dataclass(frozen=True)
class PairIds:
    """Source and target ids of sentence pairs, with the line that each came from, and the number of its file."""

    source: IdArrays
    target: IdArrays
    lines: NDArray[np.int64]
    corpus_N: NDArray[np.integer[Any]] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def give_back(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        self.source.give_back()
        self.target.give_back()


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
        assert block.corpus_N is not None
        self.writer.append("corpus", block.corpus_N)


def open_pair_ids(columns: MappedArrays) -> PairIds:
    """What a `PairIdsWriter` wrote."""
    source, target = (
        IdArrays(columns.map(f"{side}_ids"), columns.map(f"{side}_offsets")) for side in ("source", "target")
    )
    return PairIds(source, target, columns.map("lines"), columns.map("corpus"))
