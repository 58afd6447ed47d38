"""Selection of the best continuations of every search.

N searches, W hypotheses of each, R = N*W rows, V columns (the vocabulary or part of it), K candidates of each search,
G searches of each sentence, M sentences, C blocks of columns and B members of each: block c consists of the columns
c, c + C, c + 2C, ...
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.decoding.beam_state import BeamState
from clearhead.decoding.generator import Bools, Floats, Ints

_NUM_BLOCKS = 512
_MAX_DIRECT = 2048
"""Up to this number, the continuations of a search are compared directly, without blocks."""


@dataclass(frozen=True)
class Candidates:
    """Best continuations of each search, best first; ties by hypothesis, then by token id."""

    totals_NK: Floats
    """Log-probability of the whole hypothesis; -inf for missing candidates."""
    log_probs_NK: Floats
    """Log-probability of the token."""
    parents_NK: Ints
    """Row that the candidate continues, counted from the first row of the search."""
    tokens_NK: Ints
    sort_keys_NK: Floats | None = None
    """Values that determine the order, if these are not the totals."""
    margin_N: Floats | None = None
    """Smallest score difference among the decisions that the selector has already made at this step."""

    @property
    def ranks_NK(self) -> Floats:
        """Values that determine the order."""
        return self.totals_NK if self.sort_keys_NK is None else self.sort_keys_NK


class Selector(Protocol):
    """Strategy that selects the candidates of every search."""

    def select(self, log_probs_RV: Floats, beams: BeamState, /) -> Candidates:
        """Return at least W + 1 candidates of each search; 2 * W + 1 if some may end."""


@dataclass(frozen=True)
class BestCandidates:
    """Candidates with the highest totals: beam search; with one hypothesis, with the highest log-probabilities."""

    def select(self, log_probs_RV: Floats, beams: BeamState) -> Candidates:
        """Return 2 * W + 1 candidates: at most W of them write the end token."""
        totals_NW = beams.totals_NW
        if totals_NW.shape[1] > 1:
            return best_candidates(log_probs_RV, totals_NW, 2 * totals_NW.shape[1] + 1)
        base_NW = np.where(totals_NW > -np.inf, np.float32(0), totals_NW)
        return best_candidates(log_probs_RV, totals_NW, 3, log_probs_RV, base_NW)


@dataclass(frozen=True)
class DiverseCandidates:
    """Diverse beam search (Vijayakumar et al., 2018, Hamming diversity): groups select one after the other.

    A token costs `penalty` for each hypothesis of earlier groups that continues with it at this step. The penalty only
    affects the order of candidates; totals and scores remain those of the model.
    """

    groups: int
    penalty: float
    eos_id: int

    def select(self, log_probs_RV: Floats, beams: BeamState) -> Candidates:
        """Return the candidates of each group."""
        width, vocab_size = beams.totals_NW.shape[1], log_probs_RV.shape[1]
        log_probs_MGWV = log_probs_RV.reshape(-1, self.groups, width, vocab_size)
        totals_MGW = beams.totals_NW.reshape(-1, self.groups, width)
        used_MV = np.zeros((len(totals_MGW), vocab_size), np.float32)
        groups = []
        for group in range(self.groups):
            group_log_probs_RV = log_probs_MGWV[:, group].reshape(-1, vocab_size)
            penalized_RV = group_log_probs_RV - np.float32(self.penalty) * used_MV.repeat(width, 0)
            candidates = best_candidates(group_log_probs_RV, totals_MGW[:, group], 2 * width + 1, penalized_RV)
            is_kept_MK, margin_M = self._select_continuing(candidates, width)
            sentences, ranks = np.nonzero(is_kept_MK)
            np.add.at(used_MV, (sentences, candidates.tokens_NK[sentences, ranks]), np.float32(1))
            groups.append(replace(candidates, margin_N=margin_M))
        return stack_groups(groups)

    def _select_continuing(self, candidates: Candidates, width: int) -> tuple[Bools, Floats]:
        """Return the mask of the best `width` candidates that do not end, and the margin to the next one."""
        is_other_MK = (candidates.tokens_NK != self.eos_id) & (candidates.ranks_NK > -np.inf)
        number_MK = is_other_MK.cumsum(1)
        is_last_MK, is_next_MK = (is_other_MK & (number_MK == number) for number in (width, width + 1))
        last_M, next_M = (np.where(each, candidates.ranks_NK, 0).sum(1) for each in (is_last_MK, is_next_MK))
        margin_M = np.where(is_next_MK.any(1), last_M - next_M, np.inf).astype(np.float32)
        return is_other_MK & (number_MK <= width), margin_M


def stack_groups(groups: Sequence[Candidates]) -> Candidates:
    """Return the candidates of all groups, those of a sentence together: G times (M, K) as (M*G, K)."""
    count = groups[0].tokens_NK.shape[1]

    def stacked(name: str) -> NDArray[Any]:
        return np.stack([getattr(candidates, name) for candidates in groups], 1).reshape(-1, count)

    margins = [candidates.margin_N for candidates in groups if candidates.margin_N is not None]
    return Candidates(
        stacked("totals_NK"), stacked("log_probs_NK"), stacked("parents_NK"), stacked("tokens_NK"),
        stacked("ranks_NK"), np.stack(margins, 1).reshape(-1) if margins else None,
    )  # fmt: skip


def best_candidates(
    log_probs_RV: Floats,
    totals_NW: Floats,
    count: int,
    ranks_RV: Floats | None = None,
    base_NW: Floats | None = None,
) -> Candidates:
    """Return the `count` continuations of each search with the highest totals, in exact order.

    With `ranks_RV` the order is that of `base_NW` (by default the totals) + `ranks_RV`; totals and log-probabilities
    remain those of the model. Columns are returned as tokens.
    """
    num_searches, width = totals_NW.shape
    vocab_size = log_probs_RV.shape[1]
    num_possible = min(count, width * vocab_size)
    values_RV = log_probs_RV if ranks_RV is None else ranks_RV
    keys_NK, flat_NK = _best(values_RV, totals_NW if base_NW is None else base_NW, num_possible)
    log_probs_NK = np.take_along_axis(log_probs_RV.reshape(num_searches, -1), flat_NK, 1)
    parents_NK, tokens_NK = np.divmod(flat_NK, vocab_size)
    if num_possible < count:
        padding = ((0, 0), (0, count - num_possible))
        log_probs_NK, parents_NK, tokens_NK = (np.pad(each, padding) for each in (log_probs_NK, parents_NK, tokens_NK))
        keys_NK = np.pad(keys_NK, padding, constant_values=-np.inf)
    if ranks_RV is None:
        return Candidates(keys_NK, log_probs_NK, parents_NK, tokens_NK)
    totals_NK = np.take_along_axis(totals_NW, parents_NK, 1) + log_probs_NK
    return Candidates(
        np.where(keys_NK > -np.inf, totals_NK, np.float32(-np.inf)), log_probs_NK, parents_NK, tokens_NK, keys_NK
    )


def _best(values_RV: Floats, base_NW: Floats, count: int) -> tuple[Floats, Ints]:
    """Return keys_NK (base + value) and flat_NK (parent * V + column) of the best, in exact order.

    Rounding is monotonic: the highest key of a block is base + its highest value. The best `count` are therefore in the
    `count` blocks with the highest maxima, unless blocks are tied.
    """
    num_searches, width = base_NW.shape
    vocab_size = values_RV.shape[1]
    values_NWV = values_RV.reshape(num_searches, width, vocab_size)
    if width * vocab_size <= _MAX_DIRECT or vocab_size < 2 * _NUM_BLOCKS:
        keys_NF = (values_NWV + base_NW[:, :, None]).reshape(num_searches, -1)
        return _largest(keys_NF, np.broadcast_to(np.arange(keys_NF.shape[1]), keys_NF.shape), count)[:2]
    members, remainder = divmod(vocab_size, _NUM_BLOCKS)
    maxima_RC = values_RV[:, : members * _NUM_BLOCKS].reshape(-1, members, _NUM_BLOCKS).max(1)
    if remainder:
        np.maximum(maxima_RC[:, :remainder], values_RV[:, -remainder:], out=maxima_RC[:, :remainder])
    maxima_NC = (maxima_RC.reshape(num_searches, width, _NUM_BLOCKS) + base_NW[:, :, None]).reshape(num_searches, -1)
    num_blocks = min(count, maxima_NC.shape[1])
    _, blocks_NC, is_tied_N = _largest(
        maxima_NC, np.broadcast_to(np.arange(maxima_NC.shape[1]), maxima_NC.shape), num_blocks
    )
    parents_NC1, block_NC1 = np.divmod(blocks_NC[:, :, None], _NUM_BLOCKS)
    columns_NCB = block_NC1 + np.arange(0, vocab_size, _NUM_BLOCKS)
    is_real_NCB = columns_NCB < vocab_size
    flat_NF = (parents_NC1 * vocab_size + np.minimum(columns_NCB, vocab_size - 1)).reshape(num_searches, -1)
    values_NF = np.take_along_axis(values_RV.reshape(num_searches, -1), flat_NF, 1)
    bases_NCB = np.broadcast_to(np.take_along_axis(base_NW, parents_NC1[:, :, 0], 1)[:, :, None], columns_NCB.shape)
    keys_NF = np.where(is_real_NCB.reshape(num_searches, -1), values_NF + bases_NCB.reshape(num_searches, -1), -np.inf)
    keys_NK, flat_NK, _ = _largest(keys_NF, flat_NF, count)
    for search in np.flatnonzero(is_tied_N).tolist():
        keys_F = (values_NWV[search] + base_NW[search][:, None]).reshape(1, -1)
        keys_NK[search], flat_NK[search] = (
            array[0] for array in _largest(keys_F, np.arange(keys_F.size)[None], count)[:2]
        )
    return keys_NK, flat_NK


def _largest(keys_NF: Floats, ids_NF: Ints, count: int) -> tuple[Floats, Ints, Bools]:
    """Return the `count` largest keys of each row, descending, with their ids, ties by id; and whether the last of
    them is tied with keys that are left out."""
    size = keys_NF.shape[1]
    picked_NK = np.argpartition(keys_NF, size - count, axis=1)[:, size - count :]
    chosen_NK, ids_NK = np.take_along_axis(keys_NF, picked_NK, 1), np.take_along_axis(ids_NF, picked_NK, 1)
    least_N1 = chosen_NK.min(1, keepdims=True)
    is_tied_N = ((keys_NF >= least_N1).sum(1) > count) & (least_N1[:, 0] > -np.inf)
    for row in np.flatnonzero(is_tied_N).tolist():
        above_A = np.flatnonzero(keys_NF[row] >= least_N1[row])
        order_K = above_A[np.lexsort((ids_NF[row, above_A], -keys_NF[row, above_A]))[:count]]
        chosen_NK[row], ids_NK[row] = keys_NF[row, order_K], ids_NF[row, order_K]
    order_NK = np.lexsort((ids_NK, -chosen_NK))
    return np.take_along_axis(chosen_NK, order_NK, 1), np.take_along_axis(ids_NK, order_NK, 1), is_tied_N
