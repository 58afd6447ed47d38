"""Unfinished hypotheses of a batch, and the decision about their candidates at one step.

A sentence has one search, or several: one per group of its beam, per sample, or per bank (`grid_beam_search`). The
searches of a sentence are adjacent in a batch, and the rows of a search are adjacent, too.

N searches, W hypotheses of each, R = N*W rows, K candidates of each search, T tokens so far, P tokens of a prefix
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clearhead.decoding.generator import Bools, Floats, Ints

if TYPE_CHECKING:
    from clearhead.decoding.candidates import Candidates

Grouping = Literal["single", "diverse", "samples", "banks"]
"""Relation of the searches of a sentence. single: there is one. diverse: independent groups whose results are ranked
together. samples: each gives one output, in their order. banks: hypotheses move between them, the last bank has
completed all phrases, and they stop together."""


@dataclass(frozen=True)
class BeamState:
    """Unfinished hypotheses of the searches that continue."""

    searches_N: Ints  # number of each search in the batch
    tokens_NWT: Ints
    log_probs_NWT: Floats
    totals_NW: Floats  # -inf for rows without a hypothesis

    @classmethod
    def start(cls, prefix_NP: Ints, log_probs_NP: Floats, width: int, is_live_N: Bools) -> "BeamState":
        """Return the state with one hypothesis per search, the prefix; the other rows are empty."""
        totals_N: Floats = np.zeros(len(prefix_NP), np.float32)
        for log_probs_N in log_probs_NP.T:  # in the order of the tokens
            totals_N = totals_N + log_probs_N
        totals_NW: Floats = np.full((len(prefix_NP), width), -np.inf, np.float32)
        totals_NW[is_live_N, 0] = totals_N[is_live_N]
        tokens_NWT, log_probs_NWT = prefix_NP[:, None].repeat(width, 1), log_probs_NP[:, None].repeat(width, 1)
        return cls(np.arange(len(prefix_NP)), tokens_NWT, log_probs_NWT, totals_NW)

    @property
    def length(self) -> int:
        """Number of tokens generated so far."""
        return int(self.tokens_NWT.shape[2])

    @property
    def tokens_RT(self) -> Ints:
        """Tokens of every row."""
        return self.tokens_NWT.reshape(self.totals_NW.size, self.length)

    @property
    def log_probs_RT(self) -> Floats:
        """Log-probabilities of the tokens of every row."""
        return self.log_probs_NWT.reshape(self.totals_NW.size, self.length)

    @property
    def is_over_N(self) -> Bools:
        """Searches without a hypothesis that could continue."""
        return np.asarray(self.totals_NW.max(1) == -np.inf)

    def live_rows(self) -> Ints:
        """Return the rows with a hypothesis."""
        return np.flatnonzero(self.totals_NW.reshape(-1) > -np.inf)

    def advance(self, candidates: "Candidates", decision: "Decision", is_over_N: Bools) -> tuple["BeamState", Ints]:
        """Return the state after the kept candidates, and rows_NW: the row that each of them continues."""
        kept_NW = decision.kept_NW
        first_N1 = (np.arange(len(is_over_N)) * kept_NW.shape[1])[:, None]
        rows_NW = first_N1 + np.take_along_axis(candidates.parents_NK, kept_NW, 1)
        tokens_NW1 = np.take_along_axis(candidates.tokens_NK, kept_NW, 1)[:, :, None]
        log_probs_NW1 = np.take_along_axis(candidates.log_probs_NK, kept_NW, 1)[:, :, None]
        beams = BeamState(
            self.searches_N,
            np.concatenate((self.tokens_RT[rows_NW], tokens_NW1), 2),
            np.concatenate((self.log_probs_RT[rows_NW], log_probs_NW1), 2),
            np.where(is_over_N[:, None], np.float32(-np.inf), decision.totals_NW),
        )
        return beams, rows_NW

    def select(self, is_active_N: Bools) -> "BeamState":
        """Return the state of the active searches only."""
        return BeamState(
            self.searches_N[is_active_N],
            self.tokens_NWT[is_active_N],
            self.log_probs_NWT[is_active_N],
            self.totals_NW[is_active_N],
        )


@dataclass(frozen=True)
class Decision:
    """Outcome of the candidates of one step."""

    is_end_NK: Bools  # candidates that end by the end token or a stop condition
    finished_NK: Bools  # candidates among the best W that end or reach the length limit
    kept_NW: Ints  # ranks of the best W candidates that do not end: the next beam
    totals_NW: Floats  # of the kept candidates; -inf if there are not enough
    finish_margin_N: Floats  # difference between the last of the best W candidates and the next one
    keep_margin_N: Floats  # difference between the last kept one and the next one that does not end


def decide(
    candidates: "Candidates", eos_id: int, is_last_N: Bools, width: int, is_stop_NK: Bools | None = None
) -> Decision:
    """Finish the ends among the best `width` candidates and keep the best `width` others; at the limit finish the best
    `width`. A candidate that meets a stop condition counts as an end."""
    ranks_NK = candidates.ranks_NK
    is_end_NK = candidates.tokens_NK == eos_id
    if is_stop_NK is not None:
        is_end_NK = is_end_NK | is_stop_NK
    is_in_beam_NK = (ranks_NK > -np.inf) & (np.arange(ranks_NK.shape[1]) < width)
    order_NK = np.argsort(is_end_NK, 1, kind="stable")  # candidates that do not end come first
    others_NK = np.take_along_axis(np.where(is_end_NK, np.float32(-np.inf), ranks_NK), order_NK, 1)
    kept_NW, kept_ranks_NW, next_N = order_NK[:, :width], others_NK[:, :width], others_NK[:, width]
    if is_stop_NK is not None:  # the next one may be beyond the candidates
        next_N = np.maximum(next_N, ranks_NK[:, -1])
    totals_NW = np.where(
        kept_ranks_NW > -np.inf, np.take_along_axis(candidates.totals_NK, kept_NW, 1), np.float32(-np.inf)
    )
    return Decision(
        is_end_NK,
        is_in_beam_NK & (is_end_NK | is_last_N[:, None]),
        kept_NW,
        totals_NW,
        _gap(ranks_NK[:, width - 1], ranks_NK[:, width]),
        _gap(kept_ranks_NW[:, -1], next_N),
    )


def _gap(higher_N: Floats, lower_N: Floats) -> Floats:
    """Return the differences; inf if the lower value is -inf."""
    has_lower_N = lower_N > -np.inf
    return np.where(has_lower_N, higher_N - np.where(has_lower_N, lower_N, np.float32(0)), np.float32(np.inf))
