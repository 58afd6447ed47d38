"""Which examples go together: similar lengths, a budget of tokens, an order that is a pure function of (seed, epoch).

Knows lengths and indices, nothing of text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.sampling_weights import Repeats, draw

Indices = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]

TARGET_WORK = 2  # of a target token, in source tokens: a decoder's layer is larger, and its tokens have an output layer


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
    order = rng.permutation(len(source_lengths) if repeats_N is None else draw(repeats_N, rng))
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


def work_of_pairs(source_lengths: Lengths, target_lengths: Lengths) -> Lengths:
    """About how much there is to compute for each pair."""
    return source_lengths + TARGET_WORK * target_lengths


def divide(indices: Indices, parts: int, work_N: Lengths) -> list[Indices]:
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
    return divide(indices[:cut], left, work_N[:cut]) + divide(indices[cut:], right, work_N[cut:])


def length_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Return the indices of all sequences, those of similar length together, at most `batch_tokens` with padding."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def pad(rows: Sequence[Sequence[int] | NDArray[np.integer[Any]]], pad_id: int) -> NDArray[np.int64]:
    """Return the rows as one array, padded at the end."""
    filled = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled
