"""The unfinished hypotheses of a batch, and what becomes of their candidates at one step.

A sentence is one search, or several: one for each group of its beam, each sample, or each bank (see `choosing` and
`banks`). The searches of a sentence stand together, and so do their rows.

N searches, W hypotheses of each, R = N*W rows, K candidates of each search, T tokens so far, P tokens of a prefix
"""

from dataclasses import dataclass

import numpy as np

from clearhead.decoding.candidates import Bools, Candidates, Floats, Ints


@dataclass(frozen=True)
class Beams:
    """The unfinished hypotheses of the searches that go on."""

    searches_N: Ints  # which search of the batch
    tokens_NWT: Ints
    log_probs_NWT: Floats
    totals_NW: Floats  # minus infinity where there is no hypothesis

    @classmethod
    def start(cls, prefix_NP: Ints, log_probs_NP: Floats, width: int, is_live_N: Bools) -> "Beams":
        """One hypothesis a search, the prefix: its other rows say the same, and would only find the same again."""
        totals_NW = np.full((len(prefix_NP), width), -np.inf)
        totals_NW[is_live_N, 0] = log_probs_NP.sum(1)[is_live_N]
        tokens_NWT, log_probs_NWT = prefix_NP[:, None].repeat(width, 1), log_probs_NP[:, None].repeat(width, 1)
        return cls(np.arange(len(prefix_NP)), tokens_NWT, log_probs_NWT, totals_NW)

    @property
    def length(self) -> int:
        """Tokens written so far."""
        return int(self.tokens_NWT.shape[2])

    @property
    def tokens_RT(self) -> Ints:
        """The tokens of every row."""
        return self.tokens_NWT.reshape(self.totals_NW.size, self.length)

    @property
    def log_probs_RT(self) -> Floats:
        """Those of the tokens."""
        return self.log_probs_NWT.reshape(self.totals_NW.size, self.length)

    @property
    def is_over_N(self) -> Bools:
        """Searches without a hypothesis that could go on."""
        return np.asarray(self.totals_NW.max(1) == -np.inf)

    def live_rows(self) -> Ints:
        """The rows with a hypothesis."""
        return np.flatnonzero(self.totals_NW.reshape(-1) > -np.inf)

    def advance(self, found: Candidates, decision: "Decision", is_over_N: Bools) -> tuple["Beams", Ints]:
        """The hypotheses that the kept candidates make, and rows_NW: which row of the batch each continues."""
        kept_NW = decision.kept_NW
        first_N1 = (np.arange(len(is_over_N)) * kept_NW.shape[1])[:, None]
        rows_NW = first_N1 + np.take_along_axis(found.parents_NK, kept_NW, 1)
        tokens_NW1 = np.take_along_axis(found.tokens_NK, kept_NW, 1)[:, :, None]
        log_probs_NW1 = np.take_along_axis(found.log_probs_NK, kept_NW, 1)[:, :, None]
        beams = Beams(
            self.searches_N,
            np.concatenate((self.tokens_RT[rows_NW], tokens_NW1), 2),
            np.concatenate((self.log_probs_RT[rows_NW], log_probs_NW1), 2),
            np.where(is_over_N[:, None], -np.inf, decision.totals_NW),
        )
        return beams, rows_NW

    def keep(self, stays_N: Bools) -> "Beams":
        """Only these searches."""
        return Beams(
            self.searches_N[stays_N], self.tokens_NWT[stays_N], self.log_probs_NWT[stays_N], self.totals_NW[stays_N]
        )


@dataclass(frozen=True)
class Decision:
    """What becomes of the candidates of one step."""

    is_end_NK: Bools  # by the end token, or by what an output is to end with
    finished_NK: Bools  # these, or those at the limit
    kept_NW: Ints  # the best that do not end
    totals_NW: Floats  # theirs; minus infinity where there are not enough
    finish_margin_N: Floats  # how far the nearest candidate is from having been finished, or not
    keep_margin_N: Floats  # how far the best one not kept is from having been


def decide(found: Candidates, end_id: int, is_last_N: Bools, width: int, is_stop_NK: Bools | None = None) -> Decision:
    """The end among the best `width` finishes; the best `width` others go on; at the limit the best `width` finish.

    What stops is an end too.
    """
    ranks_NK = found.ranks_NK
    is_end_NK = found.tokens_NK == end_id
    if is_stop_NK is not None:
        is_end_NK = is_end_NK | is_stop_NK
    is_possible_NK = ranks_NK > -np.inf
    in_beam_K = np.arange(ranks_NK.shape[1]) < width
    others_NK = np.argsort(is_end_NK, 1, kind="stable")
    kept_NW, next_N1 = others_NK[:, :width], others_NK[:, width : width + 1]
    others_ranks_NK = np.where(is_end_NK, -np.inf, ranks_NK)
    kept_ranks_NW = np.take_along_axis(others_ranks_NK, kept_NW, 1)
    next_N = np.take_along_axis(others_ranks_NK, next_N1, 1)[:, 0]
    if is_stop_NK is not None:  # there may be so many that the next one is not among the candidates
        next_N = np.maximum(next_N, ranks_NK[:, -1])
    totals_NW = kept_ranks_NW
    if found.bent_NK is not None:
        totals_NW = np.where(kept_ranks_NW > -np.inf, np.take_along_axis(found.totals_NK, kept_NW, 1), -np.inf)
    # The distance of each candidate from the other side of the beam's edge, which decides where ends are concerned.
    distance_NK = np.where(
        in_beam_K, _gap(ranks_NK, ranks_NK[:, width, None]), _gap(ranks_NK[:, width - 1, None], ranks_NK)
    )
    at_stake_NK = is_possible_NK & (is_end_NK | is_last_N[:, None])
    # An end that is not even a candidate is at least as far from the edge as the last candidate.
    unlisted_N = _gap(ranks_NK[:, width - 1], ranks_NK[:, -1])
    return Decision(
        is_end_NK,
        at_stake_NK & in_beam_K,
        kept_NW,
        totals_NW,
        np.minimum(np.where(at_stake_NK, distance_NK, np.inf).min(1), unlisted_N),
        _gap(kept_ranks_NW[:, -1], next_N),
    )


def _gap(higher: Floats, lower: Floats) -> Floats:
    """How much higher; infinitely, where there is no lower one."""
    return np.where(lower > -np.inf, higher - np.where(lower > -np.inf, lower, 0.0), np.inf)
