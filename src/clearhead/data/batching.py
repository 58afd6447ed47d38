"""Batches of examples of similar length, and context windows of packed documents.

`plan_batches` sorts examples by length into batches within a token budget; the order is a pure function of seed and
epoch. `PackedDocuments` concatenates documents and cuts them into windows, so that a language model trains on every
token and without padding. A document is fed as `<s> text` and its targets are `text </s>`: as many targets as inputs,
and the next document follows immediately. A document longer than a window continues in the next one. Works on lengths
and ids only.

N windows, T tokens per window
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
IntArray = NDArray[np.int64]

# Work of a target token relative to a source token: decoder layers are larger, and target tokens need an output layer.
TARGET_TOKEN_WORK = 2
NO_DOCUMENT = -1


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    batch_tokens: int,
    seed: int,
    epoch: int,
    repeats_N: Repeats | None = None,
) -> list[Indices]:
    """Return the batches of one epoch as indices, each with at most `batch_tokens` tokens per side including padding.

    Every example occurs once; with `repeats_N`, as often as given there, where a fractional part is the probability of
    one more occurrence. Examples are shuffled, sorted by length (ties stay shuffled), cut into batches, and the batches
    shuffled. An example longer than the budget is the only one in its batch.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(source_lengths) if repeats_N is None else sample_epoch(repeats_N, rng))
    # Target lengths ascend for odd and descend for even source lengths, so that neighbors have similar targets.
    target_key = np.where(source_lengths[order] % 2, target_lengths[order], -target_lengths[order])
    order = order[np.lexsort((target_key, source_lengths[order]))]
    batches = _cut(order, source_lengths[order], target_lengths[order], batch_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(order: Indices, source: Lengths, target: Lengths, batch_tokens: int) -> list[Indices]:
    """Return consecutive slices of `order` whose size times their longest example is within the budget."""
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
    """Return an estimate of the computation for each pair, in source tokens."""
    return source_lengths + TARGET_TOKEN_WORK * target_lengths


def split_by_work(indices: Indices, num_parts: int, work_N: Lengths) -> list[Indices]:
    """Return at most `num_parts` consecutive slices of a batch with nearly equal work, padding included.

    `work_N` is the work of each example. Neighbors have similar lengths, so a slice needs less padding than the batch.
    """
    count = len(indices)
    if num_parts <= 1 or count <= 1:
        return [indices] * (count > 0)
    left_parts = num_parts // 2
    right_parts = num_parts - left_parts
    min_cut, max_cut = np.clip(sorted((left_parts, count - right_parts)), 1, count - 1)  # so that no part is empty
    sizes = np.arange(1, count + 1)
    work_before = np.maximum.accumulate(work_N) * sizes  # [k - 1]: padded work of the first k examples
    work_after = (np.maximum.accumulate(work_N[::-1]) * sizes)[::-1]  # [k]: padded work of all others
    work_left, work_right = work_before[min_cut - 1 : max_cut], work_after[min_cut : max_cut + 1]
    slowest = np.maximum(work_left * right_parts, work_right * left_parts)
    cut = int(min_cut + np.argmin(slowest))
    left = split_by_work(indices[:cut], left_parts, work_N[:cut])
    return left + split_by_work(indices[cut:], right_parts, work_N[cut:])


def batch_by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Return batches of indices of sequences of similar length, each with at most `batch_tokens` including padding."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.integer[Any]]], pad_id: int) -> NDArray[np.int64]:
    """Return the rows as one array, padded at the end."""
    padded = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


@dataclass(frozen=True)
class WindowBatch:
    """Context windows: input tokens, the target of each, and the index of the document that each belongs to."""

    inputs_NT: IntArray
    targets_NT: IntArray
    documents_NT: IntArray

    @property
    def has_single_documents(self) -> bool:
        """Whether no window contains tokens of more than one document, padding not counted."""
        is_same_NT = self.documents_NT == self.documents_NT[:, :1]
        return bool((is_same_NT | (self.documents_NT == NO_DOCUMENT)).all())


@dataclass(frozen=True)
class PackedDocuments:
    """All documents as one ring of tokens, cut into windows at a different offset in each epoch.

    The index of a window, `shift * number of windows + number`, determines its tokens. Because the ring continues from
    its end to its beginning, every offset gives the same number of windows, all full except the last.
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
        """Return the ring of the given documents, as token ids, with the line on which each begins."""
        inputs = IdArrays.build([start_id, *ids] for ids in documents)
        return cls(inputs, np.asarray(lines, dtype=np.int64), window, start_id, end_id)

    def release_pages(self) -> None:
        """Release the memory of the memory-mapped ids that were read."""
        self.inputs.release_pages()

    def __len__(self) -> int:
        return -(-self.num_tokens // self.window)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents, including one start token each."""
        return len(self.inputs.ids)

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
        """Return the windows of one epoch in batches, as a pure function of seed and epoch."""
        rng = np.random.default_rng([seed, epoch])
        shift = int(rng.integers(self.window)) if len(self) > 1 else 0
        order = shift * len(self) + rng.permutation(len(self))
        size = max(1, batch_tokens // self.window)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def lengths(self, indices: Indices) -> IntArray:
        """Return the number of tokens in each window."""
        return np.minimum(self.window, self.num_tokens - indices % len(self) * self.window)

    def lines_of(self, indices: Indices) -> list[int]:
        """Return the line number of the first document of each window."""
        return self.lines[self._document_at(self._starts(indices) % self.num_tokens)].tolist()  # type: ignore[no-any-return]

    def windows(self, indices: Indices, pad_id: int) -> WindowBatch:
        """Return the tokens of the given windows, padded at the end."""
        length_N = self.lengths(indices)
        offset_T = np.arange(int(length_N.max()))
        is_real_NT = offset_T < length_N[:, None]
        position_NT = self._starts(indices)[:, None] + offset_T
        round_NT, position_NT = position_NT // self.num_tokens, position_NT % self.num_tokens
        next_NT = self.inputs.ids[(position_NT + 1) % self.num_tokens]
        targets_NT = np.where(next_NT == self.start_id, self.end_id, next_NT)
        # A window that wraps around may contain the first document twice; the second copy gets a separate index.
        documents_NT = self._document_at(position_NT) + round_NT * len(self.inputs)
        return WindowBatch(
            np.where(is_real_NT, self.inputs.ids[position_NT], pad_id).astype(np.int64),
            np.where(is_real_NT, targets_NT, pad_id).astype(np.int64),
            np.where(is_real_NT, documents_NT, NO_DOCUMENT),
        )

    def _starts(self, indices: Indices) -> IntArray:
        """Return the start position of each window, which may exceed the length of the ring."""
        return indices // len(self) + indices % len(self) * self.window

    def _document_at(self, positions: IntArray) -> IntArray:
        """Return the index of the document at each position of the ring."""
        return np.searchsorted(self.inputs.offsets, positions, side="right") - 1
