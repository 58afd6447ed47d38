"""The finished hypotheses of a batch: taking them up, knowing when a sentence is over, ranking them at the end.

N sentences, W hypotheses of each, K candidates of each sentence
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beams import Beams, Decision
from clearhead.decoding.candidates import Bools, Candidates, Floats, Ints
from clearhead.decoding.scoring import FinishReason, Hypothesis, divisor


@dataclass(frozen=True)
class Found:
    """The result for one sentence, and how close the closest of the decisions on the way was, in log-probability."""

    hypotheses: list[Hypothesis]
    margin: float


class Progress:
    """What has been found for each sentence of a batch."""

    def __init__(self, settings: DecodingConfig, limits: list[int], end_id: int) -> None:
        self.settings = settings
        self.end_id = end_id
        self.limit_N = np.array(limits)
        self.limit_divisor_N = np.array([divisor(limit, settings) for limit in limits])
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        self.margin_N = np.full(len(limits), np.inf)
        # Of the worst of the best `beam` finished hypotheses, once there are so many:
        self.worst_score_N = np.full(len(limits), -np.inf)
        self.worst_divisor_N = np.ones(len(limits))

    def is_last(self, beams: Beams) -> Bools:
        """Whether the next token of a sentence is the last that its limit allows."""
        return np.asarray(self.limit_N[beams.sentences_N] <= beams.tokens_NWT.shape[2] + 1)

    def record(self, beams: Beams, found: Candidates, decision: Decision) -> Bools:
        """Take up what has finished; is_over_N: the sentences that are done."""
        for row, rank in np.argwhere(decision.finished_NK).tolist():
            self._take(beams, found, row, rank)
        here, was_over_N = beams.sentences_N, beams.is_over_N
        length = beams.tokens_NWT.shape[2] + 1
        is_settled_N, stop_margin_N = self._is_settled(here, decision.totals_NW[:, 0], length)
        has_none_left_N = was_over_N | self.is_last(beams) | (decision.totals_NW[:, 0] == -np.inf)
        is_over_N = has_none_left_N | is_settled_N
        margin_N = np.where(has_none_left_N, np.inf, stop_margin_N)
        margin_N = np.minimum(margin_N, np.where(is_over_N, np.inf, decision.keep_margin_N))
        margin_N = np.where(was_over_N, np.inf, np.minimum(margin_N, decision.finish_margin_N))
        self.margin_N[here] = np.minimum(self.margin_N[here], margin_N)
        return np.asarray(is_over_N)

    def _is_settled(self, here: Ints, best_total_N: Floats, length: int) -> tuple[Bools, Floats]:
        """Whether the stop rule holds, and by how much.

        Every further token adds a log-probability of at most 0, and the divisor grows with the length: so no
        continuation scores better than one that reached the limit for free. `seems_best` asks only whether one is
        better at its present length.
        """
        worst_N = self.worst_score_N[here]
        has_enough_N = worst_N > -np.inf
        if self.settings.stop == "beam_finished":
            return np.asarray(has_enough_N), np.full(len(here), np.inf)
        present = self.settings.stop == "seems_best"
        attainable_N = best_total_N / (divisor(length, self.settings) if present else self.limit_divisor_N[here])
        with np.errstate(invalid="ignore"):  # infinities where nothing goes on or not enough is finished
            distance_N = np.abs(attainable_N - worst_N) * self.worst_divisor_N[here]
        return np.asarray(attainable_N <= worst_N), np.where(has_enough_N, distance_N, np.inf)

    def _take(self, beams: Beams, found: Candidates, row: int, rank: int) -> None:
        """One more finished hypothesis."""
        parent, token = found.parents_NK[row, rank], int(found.tokens_NK[row, rank])
        reason: FinishReason = "end" if token == self.end_id else "length"
        tokens = [*beams.tokens_NWT[row, parent].tolist(), *([token] if reason == "length" else [])]
        log_probs = [*beams.log_probs_NWT[row, parent].tolist(), float(found.log_probs_NK[row, rank])]
        total = float(found.totals_NK[row, rank])
        score = total / divisor(len(log_probs), self.settings)
        sentence = int(beams.sentences_N[row])
        finished = self.finished[sentence]
        finished.append(Hypothesis(tuple(tokens), score, total, tuple(log_probs), reason))
        if len(finished) >= self.settings.beam:
            worst = _ranked(finished)[self.settings.beam - 1]
            self.worst_score_N[sentence] = worst.score
            self.worst_divisor_N[sentence] = divisor(len(worst.token_log_probs), self.settings)

    def results(self, n_best: int) -> list[Found]:
        """Each sentence's best, best first."""
        results = []
        for finished, margin in zip(self.finished, self.margin_N.tolist(), strict=True):
            ranked = _ranked(finished)
            for one, next_one in pairwise(ranked[: n_best + 1]):
                shorter = min(len(one.token_log_probs), len(next_one.token_log_probs))
                margin = min(margin, (one.score - next_one.score) * divisor(shorter, self.settings))
            results.append(Found(ranked[:n_best], margin))
        return results


def _ranked(finished: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; equal ones in the order in which they were found."""
    return sorted(finished, key=lambda each: -each.score)
