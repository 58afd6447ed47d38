"""Which examples go together: similar lengths, a budget of tokens, an order that is a pure function of (seed, epoch).

Knows lengths and indices, nothing of text.

Documents laid end to end and cut into windows, so that a language model trains on every token and on no padding.

A document goes in as `<s> text`, and what is to be predicted is `text </s>`: as many targets as inputs, and the next
document begins right behind. A document that is longer than a window goes on in the next one. Knows ids, not text.

N windows, T tokens of a window
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.corpus.sampling_weights import Repeats, sample_epoch

Indices = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]

TARGET_TOKEN_WORK = (
    2  # of a target token, in source tokens: a decoder's layer is larger, and its tokens have an output layer
)


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    batch_tokens: int,
    seed: int,
    epoch: int,
    repeats_N: Repeats | None = None,
) -> list[Indices]:
    """The batches of one epoch: every example once, padding included at most `batch_tokens` on either side.

    With `repeats_N` an example comes as often as that says, and a share of one with that chance in each epoch.

    Examples are shuffled, sorted by length (ties stay shuffled), cut into batches, and the batches shuffled. An
    example longer than the budget makes a batch of its own.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(source_lengths) if repeats_N is None else sample_epoch(repeats_N, rng))
    # Target lengths rise and fall in turn from one source length to the next, so that neighbours stay alike.
    turn = np.where(source_lengths[order] % 2, target_lengths[order], -target_lengths[order])
    order = order[np.lexsort((turn, source_lengths[order]))]
    batches = _cut(order, source_lengths[order], target_lengths[order], batch_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(order: Indices, source: Lengths, target: Lengths, batch_tokens: int) -> list[Indices]:
    """Consecutive runs whose longest member times their number stays within the budget."""
    batches, start = [], 0
    while start < len(order):
        window = slice(start, start + max(1, batch_tokens // max(1, int(source[start]))))
        longest = np.maximum.accumulate(np.maximum(source[window], target[window]))
        fits = longest * np.arange(1, len(longest) + 1) <= batch_tokens
        size = max(1, int(np.argmin(fits)) if not fits.all() else len(fits))
        batches.append(order[start : start + size])
        start += size
    return batches


def estimate_work(source_lengths: Lengths, target_lengths: Lengths) -> Lengths:
    """About how much there is to compute for each pair."""
    return source_lengths + TARGET_TOKEN_WORK * target_lengths


def split_by_work(indices: Indices, parts: int, work_N: Lengths) -> list[Indices]:
    """A batch in at most `parts` runs, as equal as can be in the work of all with the padding that they need.

    Neighbours are alike in length, so each part has less padding than the whole. `work_N` is that of each example.
    """
    count = len(indices)
    if parts <= 1 or count <= 1:
        return [indices] * (count > 0)
    left = parts // 2
    right = parts - left
    fewest, most = np.clip(sorted((left, count - right)), 1, count - 1)  # so that no part is without examples
    sizes = np.arange(1, count + 1)
    before = np.maximum.accumulate(work_N) * sizes  # [k - 1]: of the first k
    behind = (np.maximum.accumulate(work_N[::-1]) * sizes)[::-1]  # [k]: of all others
    longest = np.maximum(before[fewest - 1 : most] * right, behind[fewest : most + 1] * left)
    cut = int(fewest + np.argmin(longest))
    return split_by_work(indices[:cut], left, work_N[:cut]) + split_by_work(indices[cut:], right, work_N[cut:])


def batch_by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Return the indices of all sequences, those of similar length together, at most `batch_tokens` with padding."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.integer[Any]]], pad_id: int) -> NDArray[np.int64]:
    """Return the rows as one array, padded at the end."""
    filled = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


IntArray = NDArray[np.int64]
NO_DOCUMENT = -1


@dataclass(frozen=True)
class WindowBatch:
    """Some windows: what goes in, what follows each token, and the number of the document that each belongs to."""

    inputs_NT: IntArray
    targets_NT: IntArray
    documents_NT: IntArray

    @property
    def has_single_documents(self) -> bool:
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
    lines: IntArray
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

    def release_pages(self) -> None:
        """Gives the memory back that reading mapped ids took."""
        self.inputs.release_pages()

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

    def lengths(self, indices: Indices) -> IntArray:
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

    def _begin(self, indices: Indices) -> IntArray:
        """Where these windows begin, counted on beyond the end of the ring."""
        return indices // len(self) + indices % len(self) * self.window

    def _document(self, places: IntArray) -> IntArray:
        """The number of the document that stands at each place."""
        return np.searchsorted(self.inputs.offsets, places, side="right") - 1
