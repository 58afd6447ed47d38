"""Random masks for masked language modelling (S7): masked positions and the tokens that replace the original ones.

The number of targets of a row depends only on the row. Positions and replacements also depend on a random generator
that the caller creates for each row.

N rows, S length of a row, P masked positions, M target positions: all masked ones, unless whole words are masked
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus.id_arrays import IdArrays

# 80 % of the masked tokens become <mask>, 10 % a random token, and 10 % remain (BERT, section 3.1), because the inputs
# of later tasks contain no masks.
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
NO_UNIT = -1  # marks positions that are never masked

Array = NDArray[np.integer]


@dataclass(frozen=True)
class MaskingVocabulary:
    """Ids that replace masked tokens."""

    mask_id: int
    text_ids: Array
    """All ids except special tokens, from which random replacements are drawn."""


@dataclass(frozen=True)
class MaskedRow:
    """A row with masked tokens, and the positions of the targets."""

    ids_S: Array
    positions_M: Array


@dataclass(frozen=True)
class MaskableRows:
    """Rows of ids, the masking unit (token or word) of each position, and the number of targets of each row.

    All positions of a unit are masked together.
    """

    ids: IdArrays
    units: IdArrays
    counts_N: Array

    @classmethod
    def build(cls, rows: Sequence[Sequence[int]], units: Sequence[Array], share: float) -> "MaskableRows":
        """Return the rows; `share` is the share of their tokens that become targets."""
        counts_N = np.array([count_targets(unit_S, share) for unit_S in units], dtype=np.int64)
        return cls(IdArrays.build(rows), IdArrays.build(unit_S.tolist() for unit_S in units), counts_N)

    def mask(self, index: int, rng: np.random.Generator, vocabulary: MaskingVocabulary, only_masks: bool) -> MaskedRow:
        """Return one row with masked tokens; with `only_masks` each of them is replaced by <mask>."""
        masked_P, targets_M = choose_positions(self.units[index], int(self.counts_N[index]), rng)
        ids_S = self.ids[index].astype(np.int64)
        choice_P = rng.random(len(masked_P))
        random_P = vocabulary.text_ids[rng.integers(0, len(vocabulary.text_ids), len(masked_P))]
        is_mask_P = (choice_P < MASK_SHARE) | only_masks
        visible_P = np.where(choice_P < MASK_SHARE + RANDOM_SHARE, random_P, ids_S[masked_P])
        ids_S[masked_P] = np.where(is_mask_P, vocabulary.mask_id, visible_P)
        return MaskedRow(ids_S, targets_M)


def masking_units(ids: Sequence[int], words: Sequence[int] | None, specials: Sequence[int]) -> Array:
    """Return unit_S: the index of each token, or its word in `words` if given; NO_UNIT for special tokens."""
    ids_S = np.asarray(ids, dtype=np.int64)
    unit_S = np.arange(len(ids_S)) if words is None else np.asarray(words, dtype=np.int64)
    return np.where(np.isin(ids_S, specials), NO_UNIT, unit_S)


def count_targets(unit_S: Array, share: float) -> int:
    """Return the number of targets of a row: `share` of the maskable tokens, but at least one."""
    return max(1, round(share * int((unit_S != NO_UNIT).sum())))


def choose_positions(unit_S: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the positions of random units, at least `count` positions, and `count` of them as targets.

    If all masked positions were targets, their number would change from epoch to epoch. If only units with exactly
    `count` positions together were masked, long words of short texts would never be masked.
    """
    units, sizes = np.unique(unit_S[unit_S != NO_UNIT], return_counts=True)
    order = rng.permutation(len(units))
    cumulative_sizes = np.cumsum(sizes[order])
    last = int(np.searchsorted(cumulative_sizes, count))
    masked = np.flatnonzero(np.isin(unit_S, units[order[: last + 1]]))
    in_last = np.flatnonzero(unit_S == units[order[last]])
    excess = rng.permutation(in_last)[: int(cumulative_sizes[last]) - count]
    return masked, np.setdiff1d(masked, excess)
