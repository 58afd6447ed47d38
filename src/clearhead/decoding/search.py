"""Beam search, greedy search (beam size 1) and sampling over a generator's step function, for one batch.

The rules of plain beam search. The native core implements the same ones: from the same log-probabilities both find the
same tokens, log-probabilities, scores, order and finish reasons, bit for bit.

1. Arithmetic. All values are float32. A hypothesis starts with total = 0; each token, the end token included, adds its
   log-probability: total = total + log_prob, one rounded addition per token, in the order of the tokens.
   score = total / penalties[n], one rounded division, where n counts the generated tokens, the end token included, and
   `penalties.length_penalties` returns the table `penalties`.
2. Suppressed tokens are never generated: padding, and `suppressed_tokens` (default: the start token, if rows start with
   a single token), but never the end token. They keep their probability mass. With a shortlist, the tokens of a
   sentence are its list and the end token (and the tokens of its prefix and phrases), without suppressed ones; the
   log-probabilities are normalized over exactly these tokens.
3. Candidates of a step are all pairs of an unfinished hypothesis and a token, except suppressed tokens, the end token
   while fewer than `min_length` tokens are generated, and log-probabilities of -inf. They are ordered by total
   (descending), hypothesis (ascending, in the order of the beam), token id (ascending). The first step has one
   hypothesis. With W = 1 they are ordered by the log-probability of the token instead of the total, so that the output
   does not depend on totals, and the core can skip the softmax if scores are not needed.
4. Let W be the beam size, L the limit of the sentence (in tokens, the end token included) and n the number of tokens
   after this step. In the order of the candidates: of the first W, those with the end token finish (`end`); if n = L,
   all of the first W finish (`end` or `length`). The first W candidates without the end token, which may be beyond the
   first W of all, are the next beam, in this order.
5. `worst` is the W-th highest score of the finished hypotheses of the sentence, if there are W. After a step, the
   search is over if n = L, or if no candidate continues, or if there are W finished hypotheses and
   - beam_finished: always;
   - cannot_improve: best / penalties[L] <= worst;
   - no_better_now: best / penalties[n] <= worst,
   where best is the total of the first hypothesis of the next beam.
6. If n = L or no candidate continues, and nothing is finished, the hypotheses of the current beam (before this step)
   finish without a further token, in the order of the beam (`blocked`; penalties[0] = penalties[1]); but if
   log-probabilities are NaN, the sentence has no hypotheses.
7. The result is the `n_best` finished hypotheses with the highest scores; equal scores in the order in which they
   finished.

A sentence has one search, or several: groups of its beam, samples, or banks of phrases (`BeamLayout`). `logits_rules`
ban tokens, a `Selector` selects candidates, `coverage` changes the scores of finished hypotheses. The tokens of a
prefix are forced; they count as generated. The search knows token ids, not text.

M sentences, G searches of each, N = M*G searches, W hypotheses of each, R = N*W rows, T tokens per call, S source
length, P tokens of a prefix
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from threading import Event

import numpy as np

from clearhead.decoding.beam_state import BeamState, decide
from clearhead.decoding.candidates import BestCandidates, Candidates, DiverseCandidates, Selector
from clearhead.decoding.finished_hypotheses import FinishedHypotheses
from clearhead.decoding.generator import Bools, Floats, Ints, Step
from clearhead.decoding.grid_beam_search import BankCandidates
from clearhead.decoding.logits_rules import apply_rules, enabled_rules
from clearhead.decoding.observer import TreeRecorder
from clearhead.decoding.penalties import Coverage
from clearhead.decoding.requests import Hypothesis, SearchResult
from clearhead.decoding.sampling import SamplingSelector, sample_rng
from clearhead.decoding.search_batch import BatchShortlist, SearchBatch

# Greedy search keeps rows of finished sentences until they are this share of all rows, since reordering copies caches.
_IDLE_SHARE = 0.125


def search(batch: SearchBatch) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each sentence, best first; samples in the order in which they were drawn."""
    return [each.hypotheses for each in run_search(batch)]


def run_search(batch: SearchBatch, stop: Event | None = None) -> list[SearchResult]:
    """Return the hypotheses of each sentence with the margin of its decisions, incomplete after `stop` is set."""
    search_run = BeamSearch(batch)
    for _ in search_run.steps():
        if stop is not None and stop.is_set():
            break
    return search_run.finished.results(batch.n_best)


def stream_search(batch: SearchBatch) -> Generator[tuple[int, ...], None, SearchResult]:
    """Yield ever longer beginnings of the best output of a batch of one sentence, and return its result.

    A token is certain when all finished and unfinished hypotheses agree on it: in greedy search and in sampling at
    once, with a wide beam perhaps only at the end.
    """
    search_run, num_shown = BeamSearch(batch), 0
    for beams in search_run.steps():
        tokens_RT = beams.tokens_RT
        rows = [tuple(tokens_RT[row].tolist()) for row in beams.live_rows().tolist()]
        rows += [one.tokens for hypotheses in search_run.finished.finished for one in hypotheses]
        certain = _common_prefix(rows)
        if len(certain) > num_shown:
            num_shown = len(certain)
            yield certain
    [result] = search_run.finished.results(batch.n_best)
    return result


class BeamSearch:
    """Search for one batch."""

    def __init__(self, batch: SearchBatch) -> None:
        self.batch, self.constraints_M, self.layout = batch, batch.constraints_M, batch.layout
        settings, layout = batch.settings, batch.layout
        constraints_N = [constraints for constraints in self.constraints_M for _ in range(layout.groups)]
        words_N = [constraints.exclude for constraints in constraints_N]
        prompts_N = [constraints.prompt for constraints in constraints_N]
        self.rules = [*enabled_rules(settings, batch.eos_id, words_N, prompts_N), *batch.rules]
        self.selector = self._selector()
        self.coverage, change = None, 0.0
        if settings.coverage_penalty:
            self.coverage = Coverage(settings.coverage_penalty, batch.sources, batch.eos_id, layout.rows)
            change = settings.coverage_penalty * max(np.size(source) for source in batch.sources)
        self.finished = FinishedHypotheses(
            settings, list(batch.limits), batch.eos_id, layout.width, layout.groups, layout.grouping, change
        )
        self.recorder = None
        if batch.observer is not None:
            self.recorder = TreeRecorder(batch.observer, settings, len(batch.limits), layout.groups, layout.width)
        self.suppressed: list[int] = []
        self.shortlist: BatchShortlist | None = None

    def _selector(self) -> Selector:
        batch, groups = self.batch, self.layout.groups
        if self.layout.grouping == "single":
            return BestCandidates()
        if self.layout.grouping == "diverse":
            return DiverseCandidates(groups, batch.settings.diversity_penalty, batch.eos_id)
        if self.layout.grouping == "banks":
            includes_M = [sentence_constraints.include for sentence_constraints in self.constraints_M]
            return BankCandidates(includes_M, batch.limits, batch.eos_id)
        sampling, generators = batch.settings.sampling, []
        for source, constraints in zip(batch.sources, self.constraints_M, strict=True):
            numbers = range(constraints.first_sample, constraints.first_sample + groups)
            generators += [sample_rng(sampling.seed, number, source) for number in numbers]
        return SamplingSelector(sampling, generators)

    def steps(self) -> Iterator[BeamState]:
        """Run the search, and yield the unfinished hypotheses after every step but the last."""
        generator, layout, coverage = self.batch.generator, self.layout, self.coverage
        if self.batch.is_cancelled(np.arange(len(self.constraints_M))).all():
            return
        rows = 1 if coverage is None else layout.rows  # of the first step, in which all rows of a sentence are equal
        first_RT, state = generator.start(generator.encode(self.batch.sources), rows)
        self._prepare(first_RT)
        if self.shortlist is not None:
            state = generator.restrict(state, self.shortlist.tokens_U, self.shortlist.allowed_MU)
        tokens_RT, beams = self._with_prefix(first_RT, rows), None
        while True:
            all_positions = beams is None and bool(self.constraints_M[0].prefix)
            step = generator.step(tokens_RT, state, coverage is not None, all_positions, self._num_best(all_positions))
            log_probs_RV, state = step.log_probs_RTV[:, -1], step.state
            if beams is None:
                beams = self._start(step.log_probs_RTV[::rows, first_RT.shape[1] - 1 : -1])
                if rows < layout.rows:
                    log_probs_RV, step = log_probs_RV.repeat(layout.rows, 0), _repeat_tokens(step, layout.rows)
                    state = generator.reorder(state, np.arange(len(tokens_RT)).repeat(layout.rows))
            beams, rows_NW = self._advance(log_probs_RV, step, beams)
            if rows_NW is None:
                return
            if not _is_identity(rows_NW, len(tokens_RT) * (layout.rows // rows)):
                rows_R = rows_NW.reshape(-1)
                state = generator.reorder(state, rows_R)
                if coverage is not None:
                    coverage.reorder(rows_R)
            rows = layout.rows
            yield beams
            tokens_RT = np.ascontiguousarray(beams.tokens_NWT[:, :, -1].reshape(-1, 1))

    def _prepare(self, first_RT: Ints) -> None:
        """Set the suppressed tokens and the shortlist."""
        suppressed = self.batch.suppressed(first_RT)
        self.shortlist = self.batch.shortlist(suppressed)
        self.suppressed = sorted(token for token in suppressed if token >= 0)

    def _with_prefix(self, first_RT: Ints, rows: int) -> Ints:
        """Return the first tokens of every row, followed by the prefix of its sentence."""
        if not self.constraints_M[0].prefix:
            return first_RT
        prefix_MP = np.array([constraints.prefix for constraints in self.constraints_M], np.int64)
        return np.concatenate((first_RT, prefix_MP.repeat(rows, 0)), 1)

    def _num_best(self, all_positions: bool) -> int | None:
        """Return the number of best tokens per row that plain beam search needs; None: all."""
        is_plain = not (self.rules or self.shortlist or all_positions) and self.layout.grouping == "single"
        return 2 * self.layout.width + 1 + len(self.suppressed) if is_plain else None

    def _start(self, log_probs_MPV: Floats) -> BeamState:
        """Return one hypothesis per search, the prefix; with banks only in the bank that the prefix belongs to."""
        groups, width = self.layout.groups, self.layout.width
        prefixes_M = [constraints.prefix for constraints in self.constraints_M]
        prefix_MP = np.array(prefixes_M, dtype=np.int64).reshape(len(prefixes_M), -1)
        log_probs_MP = np.zeros(prefix_MP.shape, np.float32)
        if prefix_MP.size:
            columns_MP = prefix_MP if self.shortlist is None else self.shortlist.columns(prefix_MP)
            log_probs_MP = np.take_along_axis(log_probs_MPV, columns_MP[:, :, None], 2)[:, :, 0]
        is_live_N: Bools = np.ones(len(prefix_MP) * groups, dtype=np.bool_)
        if self.layout.grouping == "banks":
            banks_M = np.array([constraints.include.bank(constraints.prefix) for constraints in self.constraints_M])
            is_live_N = (np.arange(groups) == banks_M[:, None]).reshape(-1)
        beams = BeamState.start(prefix_MP.repeat(groups, 0), log_probs_MP.repeat(groups, 0), width, is_live_N)
        if self.recorder is not None:
            self.recorder.begin(beams)
        return beams

    def _advance(self, log_probs_RV: Floats, step: Step, beams: BeamState) -> tuple[BeamState, Ints | None]:
        """Decide about the candidates of one step; return the next beams and rows_NW, the row that each of them
        continues (None when all searches are over)."""
        batch, layout = self.batch, self.layout
        candidates = self._candidates(log_probs_RV, step.tokens_RK, beams)
        decision = decide(
            candidates,
            batch.eos_id,
            self.finished.is_last(beams),
            layout.width,
            self._stopped_candidates(beams, candidates),
        )
        bonus_R = None if self.coverage is None else self.coverage.add(step.cross_RHTS)
        is_over_N = self.finished.record(beams, candidates, decision, log_probs_RV, bonus_R)
        is_over_N |= batch.is_cancelled(beams.searches_N // layout.groups)
        if self.recorder is not None:
            self.recorder.record(beams, candidates, decision, is_over_N)
        if is_over_N.all():
            return beams, None
        beams, rows_NW = beams.advance(candidates, decision, is_over_N)
        is_active_N = self._active_searches(is_over_N)
        if layout.width > 1 or is_active_N.mean() < 1 - _IDLE_SHARE:
            beams, rows_NW = beams.select(is_active_N), rows_NW[is_active_N]
        return beams, rows_NW

    def _candidates(self, log_probs_RV: Floats, tokens_RK: Ints | None, beams: BeamState) -> Candidates:
        """Apply the rules and select candidates."""
        if tokens_RK is not None:
            log_probs_RV[np.isin(tokens_RK, self.suppressed)] = -np.inf
            candidates = self.selector.select(log_probs_RV, beams)
            return _with_token_ids(candidates, tokens_RK)
        if self.shortlist is not None:
            if not self.rules and self.layout.grouping == "single":
                return self.shortlist.with_ids(self.selector.select(log_probs_RV, beams))
            log_probs_RV = self.shortlist.scatter(log_probs_RV)
        else:
            log_probs_RV[:, [token for token in self.suppressed if token < log_probs_RV.shape[1]]] = -np.inf
        if self.rules:
            apply_rules(log_probs_RV, self.rules, beams)
        return self.selector.select(log_probs_RV, beams)

    def _stopped_candidates(self, beams: BeamState, candidates: Candidates) -> Bools | None:
        """Return is_stop_NK, the candidates that meet a stop condition, or None without conditions."""
        if all(constraints.is_stopped is None for constraints in self.constraints_M):
            return None
        is_stop_NK: Bools = np.zeros(candidates.tokens_NK.shape, dtype=np.bool_)
        for row, rank in np.argwhere(candidates.totals_NK > -np.inf).tolist():
            is_stopped = self.constraints_M[int(beams.searches_N[row]) // self.layout.groups].is_stopped
            tokens_T = beams.tokens_RT[row * self.layout.width + candidates.parents_NK[row, rank]]
            is_stop_NK[row, rank] = is_stopped is not None and is_stopped(
                [*tokens_T.tolist(), int(candidates.tokens_NK[row, rank])]
            )
        return is_stop_NK

    def _active_searches(self, is_over_N: Bools) -> Bools:
        """Return which searches stay in the batch; those of a sentence are removed together, when all are over."""
        if self.layout.groups == 1:
            return ~is_over_N
        return (~is_over_N).reshape(-1, self.layout.groups).any(1).repeat(self.layout.groups)


def _repeat_tokens(step: Step, width: int) -> Step:
    """Return a step with `width` copies of the token ids of each row."""
    return step if step.tokens_RK is None else replace(step, tokens_RK=step.tokens_RK.repeat(width, 0))


def _with_token_ids(candidates: Candidates, tokens_RK: Ints) -> Candidates:
    """Return candidates with token ids instead of the columns of their rows."""
    num_searches = len(candidates.tokens_NK)
    rows_NK = np.arange(num_searches)[:, None] * (len(tokens_RK) // num_searches) + candidates.parents_NK
    return replace(candidates, tokens_NK=tokens_RK[rows_NK, candidates.tokens_NK])


def _is_identity(rows_NW: Ints, num_rows: int) -> bool:
    """Return whether the rows are all rows in their order."""
    return rows_NW.size == num_rows and bool((rows_NW.reshape(-1) == np.arange(num_rows)).all())


def _common_prefix(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common prefix of all rows; empty if there are no rows."""
    if not rows:
        return ()
    is_equal = (len({*column}) == 1 for column in zip(*rows, strict=False))
    return rows[0][: next((length for length, equal in enumerate(is_equal) if not equal), min(map(len, rows)))]
