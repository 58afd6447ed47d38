"""The finished hypotheses of a batch: taking them up, knowing when a search is over, ranking them at the end.

N searches, W hypotheses of each, R = N*W rows, K candidates of each search, G searches of each sentence
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beams import Beams, Decision
from clearhead.decoding.candidates import Bools, Candidates, Floats, Ints
from clearhead.decoding.scoring import FinishReason, Hypothesis, divisor

Together = Literal["one", "ranked", "apart", "banks"]
"""How the searches of a sentence belong together. one: there is one. ranked: each goes its own way, and what they found
is ranked together. apart: each gives one answer, in their order. banks: hypotheses move between them and those of the
last count most; they are over together."""


@dataclass(frozen=True)
class Found:
    """The result for one sentence, and how close the closest of the decisions on the way was, in log-probability."""

    hypotheses: list[Hypothesis]
    margin: float


class Progress:
    """What has been found by each search of a batch."""

    def __init__(
        self,
        settings: DecodingConfig,
        limits: list[int],
        end_id: int,
        width: int,
        groups: int = 1,
        together: Together = "one",
        looseness: float = 0.0,
    ) -> None:
        """`limits` of the sentences, each of which has `groups` searches that keep `width` hypotheses.

        `looseness`: how much more than its log-probabilities, divided by its divisor, a score may move with company.
        """
        self.settings = settings
        self.end_id = end_id
        self.width = width
        self.groups = groups
        self.together = together
        self.looseness = looseness
        self.limit_N = np.array(limits).repeat(groups)
        self.limit_divisor_N = np.array([divisor(limit, settings) for limit in limits]).repeat(groups)
        num_searches = len(self.limit_N)
        self.are_numbers: Callable[[], bool] = lambda: True
        """Whether all that the model gave for the recorded step are numbers; asked where nothing follows."""
        self.finished: list[list[Hypothesis]] = [[] for _ in range(num_searches)]
        self.margin_N = np.full(num_searches, np.inf)
        # Of the worst of the best `width` finished hypotheses, once there are so many:
        self.worst_score_N = np.full(num_searches, -np.inf)
        self.worst_divisor_N = np.ones(num_searches)

    def is_last(self, beams: Beams) -> Bools:
        """Whether the next token of a search is the last that its limit allows."""
        return np.asarray(self.limit_N[beams.searches_N] <= beams.length + 1)

    def record(self, beams: Beams, found: Candidates, decision: Decision, bonus_R: Floats | None = None) -> Bools:
        """Take up what has finished; is_over_N: the searches that are done. `bonus_R` is added to the score of rows."""
        for row, rank in np.argwhere(decision.finished_NK).tolist():
            self._take(beams, found, row, rank, bool(decision.is_end_NK[row, rank]), bonus_R)
        here, was_over_N = beams.searches_N, beams.is_over_N
        best_total_N = decision.totals_NW[:, 0] if found.bent_NK is None else decision.totals_NW.max(1)
        has_none_left_N = self.is_last(beams) | (best_total_N == -np.inf)
        if self.together == "banks":
            was_over_N, has_none_left_N, best_total_N = self._linked(was_over_N, has_none_left_N, best_total_N)
        self._take_blocked(beams, np.flatnonzero(has_none_left_N & ~was_over_N), bonus_R)
        is_settled_N, stop_margin_N = self.is_settled(here, best_total_N, beams.length + 1)
        if self.together == "banks":  # the last bank decides
            is_settled_N, stop_margin_N = (self._of_last(each) for each in (is_settled_N, stop_margin_N))
        is_over_N = has_none_left_N | is_settled_N
        margin_N = np.where(has_none_left_N, np.inf, stop_margin_N)
        margin_N = np.minimum(margin_N, np.where(is_over_N, np.inf, decision.keep_margin_N))
        margin_N = np.minimum(margin_N, decision.finish_margin_N)
        if found.margin_N is not None:
            margin_N = np.minimum(margin_N, found.margin_N)
        margin_N = np.where(was_over_N, np.inf, margin_N)
        self.margin_N[here] = np.minimum(self.margin_N[here], margin_N)
        return np.asarray(is_over_N)

    def _linked(self, was_over_N: Bools, has_none_left_N: Bools, best_total_N: Floats) -> tuple[Bools, Bools, Floats]:
        """The same of all searches of a sentence together."""
        over, none_left, best = (each.reshape(-1, self.groups) for each in (was_over_N, has_none_left_N, best_total_N))
        return over.all(1).repeat(self.groups), none_left.all(1).repeat(self.groups), best.max(1).repeat(self.groups)

    def _of_last(self, each_N: Bools | Floats) -> Any:
        """What holds of the last search of a sentence, for all of them."""
        return each_N.reshape(-1, self.groups)[:, -1].repeat(self.groups)

    def is_settled(self, here: Ints, best_total_N: Floats, length: int) -> tuple[Bools, Floats]:
        """Whether the stop rule holds, and by how much.

        Every further token adds a log-probability of at most 0, a bonus is at most 0, and the divisor grows with the
        length: so no continuation scores better than one that reached the limit for free. `no_better_now` asks only
        whether one is better at its present length; of banks that is asked in any case, for their last one is soon full
        of outputs that say what they must before its time.
        """
        worst_N = self.worst_score_N[here]
        has_enough_N = worst_N > -np.inf
        stop = self.settings.stopping_rule
        if stop == "beam_finished" and self.together == "banks":
            stop = "no_better_now"
        if stop == "beam_finished" or self.together == "apart":
            return np.asarray(has_enough_N), np.full(len(here), np.inf)
        present = stop == "no_better_now"
        attainable_N = best_total_N / (divisor(length, self.settings) if present else self.limit_divisor_N[here])
        with np.errstate(invalid="ignore"):  # infinities where nothing goes on or not enough is finished
            distance_N = np.abs(attainable_N - worst_N) * self._firmness(self.worst_divisor_N[here])
        return np.asarray(attainable_N <= worst_N), np.where(has_enough_N, distance_N, np.inf)

    def _firmness(self, divisor: Any) -> Any:
        """What a distance of scores is multiplied by to be one of log-probabilities."""
        return divisor / (1 + self.looseness * divisor)

    def _take(
        self, beams: Beams, found: Candidates, search: int, rank: int, is_end: bool, bonus_R: Floats | None
    ) -> None:
        """One more finished hypothesis."""
        row, token = search * self.width + found.parents_NK[search, rank], int(found.tokens_NK[search, rank])
        reason: FinishReason = "end" if token == self.end_id else "stop" if is_end else "length"
        tokens = [*beams.tokens_RT[row].tolist(), *([] if reason == "end" else [token])]
        log_probs = [*beams.log_probs_RT[row].tolist(), float(found.log_probs_NK[search, rank])]
        bonus = 0.0 if bonus_R is None else float(bonus_R[row])
        total = float(found.totals_NK[search, rank])
        self.add(int(beams.searches_N[search]), tokens, log_probs, total, bonus, reason)

    def _take_blocked(self, beams: Beams, ending: Ints, bonus_R: Floats | None) -> None:
        """Where rules left nothing that could follow and nothing is finished, hypotheses are taken as they are."""
        for search in ending.tolist():
            number = int(beams.searches_N[search])
            first = number - number % self.groups if self.together == "banks" else number
            behind = first + self.groups if self.together == "banks" else number + 1
            if any(each.finish_reason != "blocked" for one in self.finished[first:behind] for each in one):
                continue
            if not self.are_numbers():
                return  # no rule left nothing: nothing is better than anything else
            for place in np.flatnonzero(beams.totals_NW[search] > -np.inf).tolist():
                bonus = 0.0 if bonus_R is None else float(bonus_R[search * self.width + place])
                tokens, log_probs = beams.tokens_NWT[search, place], beams.log_probs_NWT[search, place]
                total = float(beams.totals_NW[search, place])
                self.add(number, tokens.tolist(), log_probs.tolist(), total, bonus, "blocked")

    def add(
        self, search: int, tokens: list[int], log_probs: list[float], total: float, bonus: float, reason: FinishReason
    ) -> None:
        by = divisor(max(1, len(log_probs)), self.settings)
        finished = self.finished[search]
        finished.append(Hypothesis(tuple(tokens), total / by + bonus, total, tuple(log_probs), reason))
        if len(finished) >= self.width:
            worst = _ranked(finished)[self.width - 1]
            self.worst_score_N[search] = worst.score
            self.worst_divisor_N[search] = divisor(max(1, len(worst.token_log_probs)), self.settings)

    def results(self, n_best: int) -> list[Found]:
        """Each sentence's best, best first."""
        results = []
        for first in range(0, len(self.finished), self.groups):
            margin = float(self.margin_N[first : first + self.groups].min())
            found = self.finished[first : first + self.groups]
            if self.together == "apart":
                results.append(Found([one for each in found for one in each[:1]][:n_best], margin))
                continue
            if self.together == "banks":  # the last bank first
                ranked = [one for each in reversed(found) for one in _ranked(each)]
            else:
                ranked = _distinct(_ranked([one for each in found for one in each]))
            for one, next_one in pairwise(ranked[: n_best + 1]):
                shorter = max(1, min(len(one.token_log_probs), len(next_one.token_log_probs)))
                distance = abs(one.score - next_one.score) * self._firmness(divisor(shorter, self.settings))
                margin = min(margin, distance)
            results.append(Found(ranked[:n_best], margin))
        return results


def _ranked(finished: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; equal ones in the order in which they were found."""
    return sorted(finished, key=lambda each: -each.score)


def _distinct(ranked: list[Hypothesis]) -> list[Hypothesis]:
    """The first of each output: groups may find the same."""
    return list({each.tokens: each for each in reversed(ranked)}.values())[::-1]
