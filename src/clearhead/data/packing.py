"""Documents laid end to end and cut into windows, so that a language model trains on every token and on no padding.

A document goes in as `<s> text`, and what is to be predicted is `text </s>`: as many targets as inputs, and the next
document begins right behind. A document that is longer than a window goes on in the next one. Knows ids, not text.

N windows, T tokens of a window
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batching import Indices
from clearhead.data.corpus.id_arrays import IdArrays

Numbers = NDArray[np.int64]
NO_DOCUMENT = -1


@dataclass(frozen=True)
class WindowBatch:
    """Some windows: what goes in, what follows each token, and the number of the document that each belongs to."""

    inputs_NT: Numbers
    targets_NT: Numbers
    documents_NT: Numbers

    @property
    def is_one_each(self) -> bool:
        """Whether no window holds more than one document; padding counts as none."""
        is_same_NT = self.documents_NT == self.documents_NT[:, :1]
        return bool((is_same_NT | (self.documents_NT == NO_DOCUMENT)).all())


@dataclass(frozen=True)
class PackedDocuments:
    """All documents as one ring of tokens. Each epoch cuts it elsewhere, so that windows begin at other places.

    The index of a window is `shift * number of windows + number`: it says by itself which tokens are meant. Going on
    from the end to the beginning makes every cut give the same number of windows, all full but the last one.
    """

    inputs: IdArrays
    lines: Numbers
    window: int
    start_id: int
    end_id: int

    @classmethod
    def build(
        cls, documents: Sequence[Sequence[int]], lines: Sequence[int], window: int, start_id: int, end_id: int
    ) -> "PackedDocuments":
        """The ring of these documents."""
        inputs = IdArrays.build([start_id, *ids] for ids in documents)
        return cls(inputs, np.asarray(lines, dtype=np.int64), window, start_id, end_id)

    def give_back(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        self.inputs.give_back()

    def __len__(self) -> int:
        return -(-self.num_tokens // self.window)

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents, each with its start."""
        return len(self.inputs.ids)

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        """The windows of one epoch in batches: a pure function of the seed and the epoch."""
        rng = np.random.default_rng([seed, epoch])
        shift = int(rng.integers(self.window)) if len(self) > 1 else 0
        order = shift * len(self) + rng.permutation(len(self))
        size = max(1, batch_tokens // self.window)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def lengths(self, indices: Indices) -> Numbers:
        """How many tokens these windows hold."""
        return np.minimum(self.window, self.num_tokens - indices % len(self) * self.window)

    def lines_of(self, indices: Indices) -> list[int]:
        """The line on which the first document of each window begins."""
        return self.lines[self._document(self._begin(indices) % self.num_tokens)].tolist()  # type: ignore[no-any-return]

    def windows(self, indices: Indices, pad_id: int) -> WindowBatch:
        """The tokens of these windows, filled up behind where one is shorter."""
        length_N = self.lengths(indices)
        offset_T = np.arange(int(length_N.max()))
        is_real_NT = offset_T < length_N[:, None]
        place_NT = self._begin(indices)[:, None] + offset_T
        round_NT, place_NT = place_NT // self.num_tokens, place_NT % self.num_tokens
        following_NT = self.inputs.ids[(place_NT + 1) % self.num_tokens]
        targets_NT = np.where(following_NT == self.start_id, self.end_id, following_NT)
        # A single document that is met again behind its end is another one.
        documents_NT = self._document(place_NT) + round_NT * len(self.inputs)
        return WindowBatch(
            np.where(is_real_NT, self.inputs.ids[place_NT], pad_id).astype(np.int64),
            np.where(is_real_NT, targets_NT, pad_id).astype(np.int64),
            np.where(is_real_NT, documents_NT, NO_DOCUMENT),
        )

    def _begin(self, indices: Indices) -> Numbers:
        """Where these windows begin, counted on beyond the end of the ring."""
        return indices // len(self) + indices % len(self) * self.window

    def _document(self, places: Numbers) -> Numbers:
        """The number of the document that stands at each place."""
        return np.searchsorted(self.inputs.offsets, places, side="right") - 1
