"""Random masks for masked language modelling (S7): the masked positions, and the tokens that replace theirs.

The number of targets of a row depends on the row alone; their positions and replacements depend on a random generator
that the caller creates for each row. The functions process ids, not text or tensors.

N rows, S length of a row, P masked positions, M of these that are targets: all, unless whole words are masked
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.id_arrays import IdArrays

# 80 % of the masked tokens become <mask>, 10 % a random token, and 10 % remain (BERT, section 3.1): the input of later
# tasks contains no masks, and a token of the input may be wrong.
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
NO_UNIT = -1  # unit of positions that are never masked

Array = NDArray[np.integer]


@dataclass(frozen=True)
class MaskingVocabulary:
    """Ids that replace masked tokens."""

    mask_id: int
    text_ids: Array
    """All tokens of text, one of which replaces a token at random."""


@dataclass(frozen=True)
class MaskedRow:
    """A row with masked tokens, and the positions of the targets."""

    ids_S: Array
    positions_M: Array


@dataclass(frozen=True)
class MaskableRows:
    """Rows of ids, the unit of each position that is masked as a whole, and the number of targets of each row."""

    ids: IdArrays
    units: IdArrays
    counts_N: Array

    @classmethod
    def build(cls, rows: Sequence[Sequence[int]], units: Sequence[Array], share: float) -> "MaskableRows":
        """Return the rows with that share of their tokens as targets."""
        counts_N = np.array([count_targets(unit_S, share) for unit_S in units], dtype=np.int64)
        return cls(IdArrays.build(rows), IdArrays.build(unit_S.tolist() for unit_S in units), counts_N)

    def mask(self, index: int, rng: np.random.Generator, vocabulary: MaskingVocabulary, only_masks: bool) -> MaskedRow:
        """Return one row with masked tokens; with `only_masks` all of them become <mask>."""
        masked_P, targets_M = choose_positions(self.units[index], int(self.counts_N[index]), rng)
        ids_S = self.ids[index].astype(np.int64)
        choice_P = rng.random(len(masked_P))
        random_P = vocabulary.text_ids[rng.integers(0, len(vocabulary.text_ids), len(masked_P))]
        is_mask_P = (choice_P < MASK_SHARE) | only_masks
        visible_P = np.where(choice_P < MASK_SHARE + RANDOM_SHARE, random_P, ids_S[masked_P])
        ids_S[masked_P] = np.where(is_mask_P, vocabulary.mask_id, visible_P)
        return MaskedRow(ids_S, targets_M)


def masking_units(ids: Sequence[int], words: Sequence[int] | None, specials: Sequence[int]) -> Array:
    """Return unit_S: the number of the token, or of its word if `words` are given; NO_UNIT for special tokens."""
    ids_S = np.asarray(ids, dtype=np.int64)
    unit_S = np.arange(len(ids_S)) if words is None else np.asarray(words, dtype=np.int64)
    return np.where(np.isin(ids_S, specials), NO_UNIT, unit_S)


def count_targets(unit_S: Array, share: float) -> int:
    """Return the number of targets of a row: that share of the tokens that can be masked, but at least one."""
    return max(1, round(share * int((unit_S != NO_UNIT).sum())))


def choose_positions(unit_S: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the positions of random whole units, at least `count`, and exactly `count` of these as targets.

    With all of them as targets, their number would change from epoch to epoch. With only units that add up to the
    number, long words would never be masked in short texts.
    """
    units, sizes = np.unique(unit_S[unit_S != NO_UNIT], return_counts=True)
    order = rng.permutation(len(units))
    cumulative_sizes = np.cumsum(sizes[order])
    last = int(np.searchsorted(cumulative_sizes, count))
    masked = np.flatnonzero(np.isin(unit_S, units[order[: last + 1]]))
    in_last = np.flatnonzero(unit_S == units[order[last]])
    excess = rng.permutation(in_last)[: int(cumulative_sizes[last]) - count]
    return masked, np.setdiff1d(masked, excess)
