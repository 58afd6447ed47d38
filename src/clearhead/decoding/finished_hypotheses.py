"""Finished hypotheses of a batch: recording them, the stopping rules, and the final ranking.

N searches, W hypotheses of each, R = N*W rows, K candidates of each search, G searches of each sentence
"""

from itertools import pairwise
from typing import Any

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beam_state import BeamState, Decision, Grouping
from clearhead.decoding.candidates import Candidates
from clearhead.decoding.generator import Bools, Floats, Ints
from clearhead.decoding.penalties import length_penalties
from clearhead.decoding.requests import FinishReason, Hypothesis, SearchResult

_NO_MARGIN = np.float32(np.inf)


class FinishedHypotheses:
    """Finished hypotheses of each search of a batch."""

    def __init__(
        self,
        settings: DecodingConfig,
        limits: list[int],
        eos_id: int,
        width: int,
        groups: int = 1,
        grouping: Grouping = "single",
        coverage_change: float = 0.0,
    ) -> None:
        """`limits`: maximum output length of each sentence, which has `groups` searches of `width` hypotheses.

        `coverage_change`: bound on the change of the coverage penalty per unit of log-probability, used in margins.
        """
        self.settings, self.eos_id = settings, eos_id
        self.width, self.groups, self.grouping = width, groups, grouping
        self.coverage_change = coverage_change
        self.penalties = length_penalties(settings, max(limits))
        self.limit_N = np.array(limits).repeat(groups)
        num_searches = len(self.limit_N)
        self.finished: list[list[Hypothesis]] = [[] for _ in range(num_searches)]
        self.margin_N: Floats = np.full(num_searches, np.inf, np.float32)
        self.worst_score_N: Floats = np.full(num_searches, -np.inf, np.float32)
        """Score of the W-th best finished hypothesis; -inf if there are fewer."""
        self.worst_penalty_N: Floats = np.ones(num_searches, np.float32)

    def is_last(self, beams: BeamState) -> Bools:
        """Return which searches reach their limit with the next token."""
        return np.asarray(self.limit_N[beams.searches_N] <= beams.length + 1)

    def record(
        self, beams: BeamState, candidates: Candidates, decision: Decision, log_probs_RV: Floats, bonus_R: Floats | None
    ) -> Bools:
        """Record the hypotheses that finish at this step, and return is_over_N, the searches that end.

        `bonus_R` (the coverage penalty) is added to the scores of the rows. A search whose `log_probs_RV` are NaN ends
        without hypotheses.
        """
        for row, rank in np.argwhere(decision.finished_NK).tolist():
            self._finish(beams, candidates, row, rank, bool(decision.is_end_NK[row, rank]), bonus_R)
        searches_N, was_over_N = beams.searches_N, beams.is_over_N
        best_total_N = decision.totals_NW[:, 0] if candidates.sort_keys_NK is None else decision.totals_NW.max(1)
        has_none_left_N = self.is_last(beams) | (best_total_N == -np.inf)
        if self.grouping == "banks":
            was_over_N, has_none_left_N = (
                self._over_banks(values_N, np.all) for values_N in (was_over_N, has_none_left_N)
            )
            best_total_N = self._over_banks(best_total_N, np.max)
        self._finish_blocked(beams, np.flatnonzero(has_none_left_N & ~was_over_N), log_probs_RV, bonus_R)
        is_done_N, stop_margin_N = self.is_done(searches_N, best_total_N, beams.length + 1)
        if self.grouping == "banks":  # the last bank decides
            is_done_N, stop_margin_N = (self._over_banks(values_N, _last) for values_N in (is_done_N, stop_margin_N))
        is_over_N = has_none_left_N | is_done_N
        margin_N = np.minimum(np.where(has_none_left_N, _NO_MARGIN, stop_margin_N), decision.finish_margin_N)
        margin_N = np.minimum(margin_N, np.where(is_over_N, _NO_MARGIN, decision.keep_margin_N))
        if candidates.margin_N is not None:
            margin_N = np.minimum(margin_N, candidates.margin_N)
        self.margin_N[searches_N] = np.minimum(self.margin_N[searches_N], np.where(was_over_N, _NO_MARGIN, margin_N))
        return np.asarray(is_over_N)

    def _over_banks(self, values_N: Any, reduce: Any) -> Any:
        """Return one value per sentence, repeated for each of its banks."""
        return reduce(values_N.reshape(-1, self.groups), axis=1).repeat(self.groups)

    def is_done(self, searches_N: Ints, best_total_N: Floats, length: int) -> tuple[Bools, Floats]:
        """Return whether the stopping rule holds, and its margin.

        Further log-probabilities and bonuses are at most 0 and penalties grow with the length, so no continuation
        scores better than one that reaches the limit with log-probabilities of 0. Banks use `no_better_now` instead of
        `beam_finished`, since the first hypotheses to finish in the last bank contain their phrases too early.
        """
        worst_N, rule = self.worst_score_N[searches_N], self.settings.stopping_rule
        has_enough_N = worst_N > -np.inf
        if rule == "beam_finished" and self.grouping == "banks":
            rule = "no_better_now"
        if rule == "beam_finished" or self.grouping == "samples":
            return np.asarray(has_enough_N), np.full(len(searches_N), _NO_MARGIN)
        lengths_N = self.limit_N[searches_N] if rule == "cannot_improve" else np.full(len(searches_N), length)
        attainable_N = best_total_N / self.penalties[np.minimum(lengths_N, len(self.penalties) - 1)]
        with np.errstate(invalid="ignore"):  # infinities if nothing continues or too few are finished
            distance_N = np.abs(attainable_N - worst_N) * self._log_prob_scale(self.worst_penalty_N[searches_N])
        return np.asarray(attainable_N <= worst_N), np.where(has_enough_N, distance_N, _NO_MARGIN)

    def _log_prob_scale(self, penalty: Any) -> Any:
        """Return the factor that converts a difference of scores to one of log-probabilities."""
        return penalty / (1 + np.float32(self.coverage_change) * penalty)

    def _finish(
        self, beams: BeamState, candidates: Candidates, search: int, rank: int, is_end: bool, bonus_R: Floats | None
    ) -> None:
        row, token = search * self.width + candidates.parents_NK[search, rank], int(candidates.tokens_NK[search, rank])
        reason: FinishReason = "end" if token == self.eos_id else "stop" if is_end else "length"
        tokens = [*beams.tokens_RT[row].tolist(), *([] if reason == "end" else [token])]
        log_probs = [*beams.log_probs_RT[row].tolist(), float(candidates.log_probs_NK[search, rank])]
        bonus = None if bonus_R is None else bonus_R[row]
        self._add(int(beams.searches_N[search]), tokens, log_probs, candidates.totals_NK[search, rank], bonus, reason)

    def _finish_blocked(self, beams: BeamState, ending: Ints, log_probs_RV: Floats, bonus_R: Floats | None) -> None:
        """Finish the hypotheses of `ending` searches without finished ones as `blocked`: no token may follow."""
        for search in ending.tolist():
            number = int(beams.searches_N[search])
            first = number - number % self.groups if self.grouping == "banks" else number
            end = first + self.groups if self.grouping == "banks" else number + 1
            if any(
                hypothesis.finish_reason != "blocked"
                for finished in self.finished[first:end]
                for hypothesis in finished
            ):
                continue
            if np.isnan(log_probs_RV).any():
                return  # not blocked by rules: the model diverged
            for index in np.flatnonzero(beams.totals_NW[search] > -np.inf).tolist():
                bonus = None if bonus_R is None else bonus_R[search * self.width + index]
                tokens, log_probs = beams.tokens_NWT[search, index], beams.log_probs_NWT[search, index]
                self._add(number, tokens.tolist(), log_probs.tolist(), beams.totals_NW[search, index], bonus, "blocked")

    def _add(
        self,
        search: int,
        tokens: list[int],
        log_probs: list[float],
        total: np.float32,
        bonus: np.float32 | None,
        reason: FinishReason,
    ) -> None:
        score = total / self.penalties[len(log_probs)]
        if bonus is not None:
            score = score + bonus
        finished = self.finished[search]
        finished.append(Hypothesis(tuple(tokens), float(score), float(total), tuple(log_probs), reason))
        if len(finished) >= self.width:
            worst = _ranked(finished)[self.width - 1]
            self.worst_score_N[search] = worst.score
            self.worst_penalty_N[search] = self.penalties[len(worst.token_log_probs)]

    def results(self, n_best: int) -> list[SearchResult]:
        """Return the `n_best` hypotheses of each sentence, best first; samples in their order."""
        results = []
        for first in range(0, len(self.finished), self.groups):
            margin = float(self.margin_N[first : first + self.groups].min())
            searches = self.finished[first : first + self.groups]
            if self.grouping == "samples":
                samples = [finished[0] for finished in searches if finished]
                results.append(SearchResult(samples[:n_best], margin))
                continue
            if self.grouping == "banks":  # the last bank first
                ranked = [hypothesis for finished in reversed(searches) for hypothesis in _ranked(finished)]
            else:
                ranked = _distinct(_ranked([hypothesis for finished in searches for hypothesis in finished]))
            for hypothesis, next_hypothesis in pairwise(ranked[: n_best + 1]):
                shorter = min(len(hypothesis.token_log_probs), len(next_hypothesis.token_log_probs))
                scale = float(self._log_prob_scale(self.penalties[shorter]))
                distance = abs(hypothesis.score - next_hypothesis.score) * scale
                margin = min(margin, distance)
            results.append(SearchResult(ranked[:n_best], margin))
        return results


def _last(values_MG: Any, axis: int) -> Any:
    return values_MG.take(-1, axis=axis)


def _ranked(finished: list[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses, best first; equal scores in the order in which they finished."""
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)


def _distinct(ranked: list[Hypothesis]) -> list[Hypothesis]:
    """Return the first hypothesis of each output, since several groups may find the same output."""
    return list({hypothesis.tokens: hypothesis for hypothesis in reversed(ranked)}.values())[::-1]
