"""Token ids of a whole corpus, laid end to end: two flat arrays instead of a million small lists.

Knows ids and lengths, nothing of text. The ids carry no start or end tokens; the task adds them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class IdStore:
    """Sequences of ids: sequence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]

    @classmethod
    def build(cls, sequences: Iterable[Sequence[int]]) -> "IdStore":
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
    def lengths(self) -> NDArray[np.int64]:
        """How many ids each sequence has."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class PairStore:
    """Source and target ids of sentence pairs, with the line that each came from."""

    source: IdStore
    target: IdStore
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)
