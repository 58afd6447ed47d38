"""Which pieces are hidden from a model that learns to guess them (S7), and what stands in their place.

How many are asked for in a row follows from the row alone; which ones, and what replaces them, from a random generator
that the caller makes anew for each row. Knows ids, nothing of text or of tensors.

N rows, S length of a row, P hidden places, M of these that the model is asked for: all, unless words are hidden whole
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.id_arrays import IdArrays

# Of the chosen pieces 80 % become <mask>, 10 % a random piece, and 10 % stay (BERT, section 3.1): what the model reads
# later has no masks in it, and a piece that is there may be wrong.
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
NO_UNIT = -1  # of places that are never hidden

Array = NDArray[np.integer]


@dataclass(frozen=True)
class MaskingVocabulary:
    """What hiding needs to know of a tokenizer."""

    mask_id: int
    text_ids: Array  # those that stand for text


@dataclass(frozen=True)
class MaskedRow:
    """A row with pieces hidden, and the places that are asked for."""

    ids_S: Array
    places_M: Array


@dataclass(frozen=True)
class MaskableRows:
    """Rows of ids, the unit that each place is hidden with, and how many of each row are asked for."""

    ids: IdArrays
    units: IdArrays
    counts_N: Array

    @classmethod
    def build(cls, rows: Sequence[Sequence[int]], units: Sequence[Array], share: float) -> "MaskableRows":
        """All rows, with that share of their pieces to be asked for."""
        counts_N = np.array([count_targets(unit_S, share) for unit_S in units], dtype=np.int64)
        return cls(IdArrays.build(rows), IdArrays.build(unit_S.tolist() for unit_S in units), counts_N)

    def hide(self, index: int, rng: np.random.Generator, vocabulary: MaskingVocabulary, only_masks: bool) -> MaskedRow:
        """One row with its pieces hidden; with `only_masks` all of them by <mask>."""
        hidden_P, asked_M = choose_positions(self.units[index], int(self.counts_N[index]), rng)
        ids_S = self.ids[index].astype(np.int64)
        fate_P = rng.random(len(hidden_P))
        any_P = vocabulary.text_ids[rng.integers(0, len(vocabulary.text_ids), len(hidden_P))]
        is_mask_P = (fate_P < MASK_SHARE) | only_masks
        shown_P = np.where(fate_P < MASK_SHARE + RANDOM_SHARE, any_P, ids_S[hidden_P])
        ids_S[hidden_P] = np.where(is_mask_P, vocabulary.mask_id, shown_P)
        return MaskedRow(ids_S, asked_M)


def masking_units(ids: Sequence[int], words: Sequence[int] | None, specials: Sequence[int]) -> Array:
    """unit_S: each piece on its own, or with the others of its word; special pieces have none."""
    ids_S = np.asarray(ids, dtype=np.int64)
    unit_S = np.arange(len(ids_S)) if words is None else np.asarray(words, dtype=np.int64)
    return np.where(np.isin(ids_S, specials), NO_UNIT, unit_S)


def count_targets(unit_S: Array, share: float) -> int:
    """How many pieces are asked for: that share of those that may be hidden, but at least one."""
    return max(1, round(share * int((unit_S != NO_UNIT).sum())))


def choose_positions(unit_S: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The places of random whole units, at least `count`, and just as many of them to be asked for.

    Were all of them asked for, their number would change from epoch to epoch; and were only units taken that add up
    to the number, long words would never be hidden in short texts.
    """
    units, sizes = np.unique(unit_S[unit_S != NO_UNIT], return_counts=True)
    order = rng.permutation(len(units))
    reach = np.cumsum(sizes[order])
    last = int(np.searchsorted(reach, count))
    hidden = np.flatnonzero(np.isin(unit_S, units[order[: last + 1]]))
    in_last = np.flatnonzero(unit_S == units[order[last]])
    spared = rng.permutation(in_last)[: int(reach[last]) - count]
    return hidden, np.setdiff1d(hidden, spared)
