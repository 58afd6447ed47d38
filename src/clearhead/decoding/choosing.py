"""Which continuations a search looks at: the best, those that other groups leave, or those that chance draws.

N searches, W hypotheses of each, R = N*W rows, V vocabulary, K candidates of each search, G searches of each sentence,
M sentences
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.beams import Beams
from clearhead.decoding.candidates import Bools, Candidates, Floats, best_candidates
from clearhead.decoding.chance import gumbel, rank_by_chance


class Chooser(Protocol):
    """Finds the candidates of every search."""

    def choose(self, log_probs_RV: Tensor, beams: Beams, /) -> Candidates:
        """2 * W + 1 candidates of each search."""


@dataclass(frozen=True)
class Best:
    """The likeliest: plain beam search."""

    def choose(self, log_probs_RV: Tensor, beams: Beams) -> Candidates:
        """Those with the highest totals."""
        return best_candidates(log_probs_RV, beams.totals_NW, 2 * beams.totals_NW.shape[1] + 1)


@dataclass(frozen=True)
class Diverse:
    """Diverse beam search (Vijayakumar et al., 2018, with Hamming diversity): groups choose one after the other.

    A token costs `penalty` for each hypothesis of earlier groups that goes on with it at this step. What it costs only
    steers the choice: totals and scores are the model's own.
    """

    groups: int
    penalty: float
    end_id: int

    def choose(self, log_probs_RV: Tensor, beams: Beams) -> Candidates:
        """Group by group."""
        width, vocab_size = beams.totals_NW.shape[1], log_probs_RV.shape[1]
        log_probs_MGWV = log_probs_RV.view(-1, self.groups, width, vocab_size)
        totals_MGW = beams.totals_NW.reshape(-1, self.groups, width)
        used_MV = torch.zeros_like(log_probs_MGWV[:, 0, 0])
        found = []
        for group in range(self.groups):
            plain_RV = log_probs_MGWV[:, group].reshape(-1, vocab_size)
            bent_RV = plain_RV - self.penalty * used_MV.repeat_interleave(width, 0)
            each = best_candidates(plain_RV, totals_MGW[:, group], 2 * width + 1, bent_RV)
            is_kept_MK, margin_M = self._kept(each, width)
            for sentence, is_kept_K in enumerate(is_kept_MK):
                tokens = torch.from_numpy(each.tokens_NK[sentence, is_kept_K]).to(used_MV.device)
                used_MV[sentence].index_add_(0, tokens, used_MV.new_ones(len(tokens)))
            found.append(replace(each, margin_N=margin_M))
        return stacked(found)

    def _kept(self, found: Candidates, width: int) -> tuple[Bools, Floats]:
        """What the hypotheses of a group go on with; and how close that was, for later groups are told even of what a
        group that is over at this step would have kept."""
        is_other_MK = (found.tokens_NK != self.end_id) & (found.ranks_NK > -np.inf)
        place_MK = is_other_MK.cumsum(1)
        is_last_MK, is_next_MK = (is_other_MK & (place_MK == place) for place in (width, width + 1))
        last_M, next_M = (np.where(each, found.ranks_NK, 0.0).sum(1) for each in (is_last_MK, is_next_MK))
        return is_other_MK & (place_MK <= width), np.where(is_next_MK.any(1), last_M - next_M, np.inf)


@dataclass(frozen=True)
class Drawn:
    """One token a row, drawn. Each search is one sample, with a chance of its own."""

    settings: SamplingConfig
    chances: Sequence[np.random.Generator]
    """Of each search of the batch; they go on from step to step."""

    def choose(self, log_probs_RV: Tensor, beams: Beams) -> Candidates:
        """What was drawn, and what nearly was."""
        noise_RV = np.zeros(log_probs_RV.shape, dtype=np.float32)
        if self.settings.temperature:
            for row in beams.live_rows().tolist():
                noise_RV[row] = gumbel(self.chances[int(beams.searches_N[row])], log_probs_RV.shape[1])
        noise = torch.from_numpy(noise_RV).to(log_probs_RV.device)
        ranks_RV, margin_R = rank_by_chance(log_probs_RV, self.settings, noise)
        base_NW = np.where(beams.totals_NW > -np.inf, 0.0, -np.inf)
        found = best_candidates(log_probs_RV, beams.totals_NW, 3, ranks_RV, base_NW)
        if margin_R is None:
            return found
        margin_N: Floats = np.nan_to_num(margin_R.double().cpu().numpy(), nan=np.inf)
        return replace(found, margin_N=margin_N)


def stacked(groups: Sequence[Candidates]) -> Candidates:
    """The candidates of all groups, those of a sentence together: G times (M, K) as (M*G, K)."""
    count = groups[0].tokens_NK.shape[1]
    totals, log_probs, parents, tokens, ranks = (
        np.stack([getattr(each, name) for each in groups], 1).reshape(-1, count)
        for name in ("totals_NK", "log_probs_NK", "parents_NK", "tokens_NK", "ranks_NK")
    )
    margins = [each.margin_N for each in groups if each.margin_N is not None]
    return Candidates(totals, log_probs, parents, tokens, ranks, np.stack(margins, 1).reshape(-1) if margins else None)
