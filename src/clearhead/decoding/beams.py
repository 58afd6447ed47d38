"""The unfinished hypotheses of a batch, and what becomes of their candidates at one step.

N sentences, W hypotheses of each, K candidates of each sentence, T tokens so far
"""

from dataclasses import dataclass

import numpy as np

from clearhead.decoding.candidates import Bools, Candidates, Floats, Ints


@dataclass(frozen=True)
class Beams:
    """The unfinished hypotheses of the sentences that are searched."""

    sentences_N: Ints  # which sentence of the batch
    tokens_NWT: Ints
    log_probs_NWT: Floats
    totals_NW: Floats  # minus infinity where there is no hypothesis

    @classmethod
    def start(cls, num_sentences: int, width: int) -> "Beams":
        """One empty hypothesis a sentence: its other rows say the same, and would only find the same again."""
        totals_NW = np.full((num_sentences, width), -np.inf)
        totals_NW[:, 0] = 0.0
        empty = np.zeros((num_sentences, width, 0))
        return cls(np.arange(num_sentences), empty.astype(np.int64), empty, totals_NW)

    @property
    def is_over_N(self) -> Bools:
        """Sentences without a hypothesis that could go on."""
        return np.asarray(self.totals_NW.max(1) == -np.inf)

    def advance(self, found: Candidates, decision: "Decision", is_over_N: Bools) -> tuple["Beams", Ints]:
        """The hypotheses that the kept candidates make, and rows_NW: which row of the batch each continues."""
        kept_NW, row_N1 = decision.kept_NW, np.arange(len(is_over_N))[:, None]
        parents_NW = np.take_along_axis(found.parents_NK, kept_NW, 1)
        tokens_NW1 = np.take_along_axis(found.tokens_NK, kept_NW, 1)[:, :, None]
        log_probs_NW1 = np.take_along_axis(found.log_probs_NK, kept_NW, 1)[:, :, None]
        beams = Beams(
            self.sentences_N,
            np.concatenate((self.tokens_NWT[row_N1, parents_NW], tokens_NW1), 2),
            np.concatenate((self.log_probs_NWT[row_N1, parents_NW], log_probs_NW1), 2),
            np.where(is_over_N[:, None], -np.inf, decision.totals_NW),
        )
        return beams, row_N1 * kept_NW.shape[1] + parents_NW

    def keep(self, stays_N: Bools) -> "Beams":
        """Only these sentences."""
        return Beams(
            self.sentences_N[stays_N], self.tokens_NWT[stays_N], self.log_probs_NWT[stays_N], self.totals_NW[stays_N]
        )


@dataclass(frozen=True)
class Decision:
    """What becomes of the candidates of one step."""

    is_end_NK: Bools
    finished_NK: Bools  # by the end token or at the limit
    kept_NW: Ints  # the best that do not end
    totals_NW: Floats  # theirs; minus infinity where there are not enough
    finish_margin_N: Floats  # how far the nearest candidate is from having been finished, or not
    keep_margin_N: Floats  # how far the best one not kept is from having been


def decide(found: Candidates, end_id: int, is_last_N: Bools, width: int) -> Decision:
    """The end among the best `width` finishes; the best `width` others go on; at the limit the best `width` finish."""
    totals_NK = found.totals_NK
    is_end_NK = found.tokens_NK == end_id
    is_possible_NK = totals_NK > -np.inf
    in_beam_K = np.arange(totals_NK.shape[1]) < width
    others_NK = np.argsort(is_end_NK, 1, kind="stable")
    kept_NW, next_N1 = others_NK[:, :width], others_NK[:, width : width + 1]
    others_totals_NK = np.where(is_end_NK, -np.inf, totals_NK)
    totals_NW = np.take_along_axis(others_totals_NK, kept_NW, 1)
    next_N = np.take_along_axis(others_totals_NK, next_N1, 1)[:, 0]
    # The distance of each candidate from the other side of the beam's edge, which decides where ends are concerned.
    distance_NK = np.where(
        in_beam_K, _gap(totals_NK, totals_NK[:, width, None]), _gap(totals_NK[:, width - 1, None], totals_NK)
    )
    at_stake_NK = is_possible_NK & (is_end_NK | is_last_N[:, None])
    # An end that is not even a candidate is at least as far from the edge as the last candidate.
    unlisted_N = _gap(totals_NK[:, width - 1], totals_NK[:, -1])
    return Decision(
        is_end_NK,
        at_stake_NK & in_beam_K,
        kept_NW,
        totals_NW,
        np.minimum(np.where(at_stake_NK, distance_NK, np.inf).min(1), unlisted_N),
        _gap(totals_NW[:, -1], next_N),
    )


def _gap(higher: Floats, lower: Floats) -> Floats:
    """How much higher; infinitely, where there is no lower one."""
    return np.where(lower > -np.inf, higher - np.where(lower > -np.inf, lower, 0.0), np.inf)
