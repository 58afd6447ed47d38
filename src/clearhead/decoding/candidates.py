"""The best next tokens of every search, found in the log-probabilities of its hypotheses.

N searches, M of them, W hypotheses of each, R = N*W rows, V vocabulary, K candidates of each search, C columns and B
members of each: column c holds the tokens c, c + C, c + 2C, ...
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEVER = float("-inf")
_NUM_COLUMNS = 128


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each search, best first; equal ones by parent, then by token."""

    totals_NK: Floats  # log-probability of the whole hypothesis; minus infinity where there is none
    log_probs_NK: Floats  # of the token alone
    parents_NK: Ints  # which row it continues, counted from the first of the search
    tokens_NK: Ints
    bent_NK: Floats | None = None  # what they are ordered by, where that is not the totals
    margin_N: Floats | None = None  # how close what came before the ordering was, where something did

    @property
    def ranks_NK(self) -> Floats:
        """What they are ordered by."""
        return self.totals_NK if self.bent_NK is None else self.bent_NK


def allowed_log_probs(logits_RV: Tensor, banned: set[int]) -> Tensor:
    """log_probs_RV over the whole vocabulary: banned tokens are no candidates but keep their share.

    They stand in the place of the logits, if those are a piece: with a copy beside them neither would stay in a cache.
    """
    out_RV = logits_RV if logits_RV.is_contiguous() else torch.empty_like(logits_RV)
    log_probs_RV = torch.log_softmax(logits_RV, -1, out=out_RV)
    forbid_tokens(log_probs_RV, banned)
    return log_probs_RV


def forbid_tokens(log_probs_RV: Tensor, banned: set[int]) -> None:
    """These are no candidates, where the vocabulary has them."""
    for token in banned:  # one or two for the most part: faster than indexing with a list
        if 0 <= token < log_probs_RV.shape[1]:
            log_probs_RV.select(1, token).fill_(NEVER)


def best_candidates(
    log_probs_RV: Tensor, totals_NW: Floats, count: int, bent_RV: Tensor | None = None, base_NW: Floats | None = None
) -> Candidates:
    """The `count` continuations of each search with the highest totals; at equal totals all but the last are right.

    Totals are in double precision, so that long outputs round no more than short ones. With `bent_RV` the order is
    that of `bent_RV` behind `base_NW` (the totals, if not given); totals and log-probabilities stay what they are.
    """
    num_searches, width = totals_NW.shape
    vocab_size = log_probs_RV.shape[1]
    ranked_RV = log_probs_RV if bent_RV is None else bent_RV
    base_R = torch.from_numpy((totals_NW if base_NW is None else base_NW).reshape(-1)).to(ranked_RV.device)
    most = min(count, width * vocab_size)
    flat_NK, ranks_NK = _best_by_columns(ranked_RV, base_R, num_searches, most)
    found = _from_device(log_probs_RV, ranks_NK, flat_NK)
    tied_M = _tied_at_the_edge(found.totals_NK)
    if len(tied_M) and count == most:
        rows_R = torch.from_numpy((tied_M[:, None] * width + np.arange(width)).reshape(-1)).to(ranked_RV.device)
        sorted_MK = _best_by_sorting(ranked_RV[rows_R], base_R[rows_R], len(tied_M), count)
        found = _with_rows(found, tied_M, _from_device(log_probs_RV[rows_R], *sorted_MK))
    if count > most:
        found = _fill(found, count)
    return found if bent_RV is None else _unbent(found, totals_NW)


def _best_by_columns(log_probs_RV: Tensor, totals_R: Tensor, num_searches: int, count: int) -> tuple[Tensor, Tensor]:
    """flat_NK (parent * V + token) and totals_NK of the best, in about a third of the time of one topk over all.

    The best `count` of all stand in the `count` columns with the highest maxima.
    """
    vocab_size, device = log_probs_RV.shape[1], log_probs_RV.device
    num_columns = min(_NUM_COLUMNS, vocab_size)
    members, rest = divmod(vocab_size, num_columns)
    maxima_RC = log_probs_RV[:, : members * num_columns].view(-1, members, num_columns).amax(1)
    if rest:
        maxima_RC[:, :rest] = torch.maximum(maxima_RC[:, :rest], log_probs_RV[:, -rest:])
    best_NC = (maxima_RC + totals_R[:, None]).view(num_searches, -1)
    columns_NC = best_NC.topk(min(count, best_NC.shape[1])).indices
    row_NC = columns_NC // num_columns
    token_NCB = (columns_NC % num_columns)[:, :, None] + torch.arange(0, vocab_size, num_columns, device=device)
    is_real_NCB = token_NCB < vocab_size
    flat_NCB = row_NC[:, :, None] * vocab_size + token_NCB.clamp(max=vocab_size - 1)
    totals_NW = totals_R.view(num_searches, -1)
    log_probs_NCB = log_probs_RV.view(num_searches, -1).gather(1, flat_NCB.flatten(1)).view_as(flat_NCB)
    totals_NCB = (log_probs_NCB + totals_NW.gather(1, row_NC)[:, :, None]).masked_fill(~is_real_NCB, NEVER)
    totals_NK, where_NK = totals_NCB.flatten(1).topk(count)
    return flat_NCB.flatten(1).gather(1, where_NK), totals_NK


def _tied_at_the_edge(totals_NK: Floats) -> Ints:
    """Searches whose last candidate equals the one before: which of them stands where was left to chance."""
    last_N, before_N = totals_NK[:, -1], totals_NK[:, -2:-1].min(1, initial=np.inf)
    return np.flatnonzero((last_N == before_N) & (last_N > -np.inf))


def _with_rows(found: Candidates, rows_M: Ints, others: Candidates) -> Candidates:
    """With other candidates for some of the searches."""

    def put(array_NK: NDArray[Any], others_MK: NDArray[Any]) -> NDArray[Any]:
        array_NK[rows_M] = others_MK
        return array_NK

    return Candidates(
        put(found.totals_NK, others.totals_NK),
        put(found.log_probs_NK, others.log_probs_NK),
        put(found.parents_NK, others.parents_NK),
        put(found.tokens_NK, others.tokens_NK),
    )


def _best_by_sorting(log_probs_RV: Tensor, totals_R: Tensor, num_searches: int, count: int) -> tuple[Tensor, Tensor]:
    """The slow way, in which equal candidates keep their order: totals_NK and flat_NK."""
    all_NF = (log_probs_RV + totals_R[:, None]).view(num_searches, -1)
    totals_NF, flat_NF = all_NF.sort(dim=1, descending=True, stable=True)
    return totals_NF[:, :count], flat_NF[:, :count]


def _from_device(log_probs_RV: Tensor, totals_NK: Tensor, flat_NK: Tensor) -> Candidates:
    """Candidates on the host, best first; equal ones by parent, then by token."""
    vocab_size = log_probs_RV.shape[1]
    log_probs_NK = log_probs_RV.view(len(flat_NK), -1).gather(1, flat_NK).double()
    totals, log_probs, flat_ = torch.stack((totals_NK, log_probs_NK, flat_NK.double())).cpu().numpy()
    flat = flat_.astype(np.int64)
    order = np.lexsort((flat, -totals))
    flat = np.take_along_axis(flat, order, 1)
    return Candidates(
        np.take_along_axis(totals, order, 1),
        np.take_along_axis(log_probs, order, 1),
        flat // vocab_size,
        flat % vocab_size,
    )


def _fill(found: Candidates, count: int) -> Candidates:
    """With impossible candidates behind, where the vocabulary has fewer than were asked for."""
    behind = ((0, 0), (0, count - found.totals_NK.shape[1]))
    return Candidates(
        np.pad(found.totals_NK, behind, constant_values=-np.inf),
        np.pad(found.log_probs_NK, behind),
        np.pad(found.parents_NK, behind),
        np.pad(found.tokens_NK, behind),
    )


def _unbent(found: Candidates, totals_NW: Floats) -> Candidates:
    """What was ordered by is no total: the totals beside it."""
    ranks_NK = found.totals_NK
    behind_NK = np.take_along_axis(totals_NW, found.parents_NK, 1)
    totals_NK = np.where(ranks_NK > -np.inf, behind_NK + found.log_probs_NK, -np.inf)
    return Candidates(totals_NK, found.log_probs_NK, found.parents_NK, found.tokens_NK, ranks_NK)
