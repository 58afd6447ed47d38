"""Search over a generator's step function, for one batch; with a beam of 1 it is greedy search.

At each step a search has `beam` unfinished hypotheses. Of all their continuations those that write the end token
and are among the best `beam` are finished, and the best `beam` others go on. A search is over when `beam` hypotheses
are finished (`stop = beam_finished`); or when, moreover, no unfinished one can still beat the worst of the best `beam`
finished (`stop = cannot_improve`); or at its limit. At the limit the best `beam` continuations are taken as they are,
ended or cut, and ranked with the finished ones by normalised score. CTranslate2 does the same with `beam_finished`.

A sentence is one search, or several side by side: groups of its beam, samples, or banks of wanted words (`Layout`).
What may follow is said by `rules`, what is looked at by a `Chooser`, what a finished hypothesis is worth by `scoring`
and `coverage`; the search itself knows none of them. A model without a source goes on from a prompt in its place.

Knows token ids, nothing of text. Decisions are made on the host, for the whole batch at a time, with one transfer from
the device a step.

M sentences, G searches of each, N = M*G searches, W hypotheses of each, R = N*W rows, T tokens given at once, S source
length, P tokens of a prefix
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.banks import Banks
from clearhead.decoding.beams import Beams, decide
from clearhead.decoding.candidates import NEVER, Bools, Candidates, Ints, allowed_log_probs
from clearhead.decoding.chance import chance_of
from clearhead.decoding.choice import Choice, sentences_of
from clearhead.decoding.choosing import Best, Chooser, Diverse, Drawn
from clearhead.decoding.coverage import Coverage, places_that_count
from clearhead.decoding.job import Job
from clearhead.decoding.layout import Constraints
from clearhead.decoding.lone import find_one, is_lone
from clearhead.decoding.observer import Narrator
from clearhead.decoding.progress import Found, Progress
from clearhead.decoding.rules import forbid, rules_of
from clearhead.decoding.scoring import Hypothesis

__all__ = ["Constraints", "Hypothesis", "Job", "Walk", "find", "search"]

# Greedy search carries rows of finished sentences along until they are this share of all: moving the others together
# copies their cache.
_IDLE_SHARE = 0.125


CLOSE = 1e-4
"""Decisions closer than this, in log-probability, may fall differently in different company; `engine` says what was
measured."""


def search(job: Job) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first. Samples come in the order in which they were drawn."""
    return [each.hypotheses for each in find(job)]


def find(job: Job) -> list[Found]:
    """What `search` gives, with the margin of each sentence: how close the closest decision on the way was."""
    if is_lone(job):
        return [find_one(job)]
    walking = Walk(job)
    for _ in walking.steps():
        pass
    return walking.progress.results(job.n_best)


class Walk:
    """One batch on its way: what governs it, and what has been found."""

    def __init__(self, job: Job) -> None:
        self.job, self.asked, self.layout = job, job.asked, job.layout
        settings, layout = job.settings, job.layout
        asked_N = [each for each in self.asked for _ in range(layout.groups)]
        self.rules = rules_of(settings, job.end_id, asked_N)
        self.chooser = self._chooser()
        self.coverage = None
        if settings.coverage_penalty:
            counts = places_that_count(job.src, job.pad_id, job.end_id)
            self.coverage = Coverage(settings.coverage_penalty, counts, layout.rows)
        looseness = (
            settings.coverage_penalty * max(each.numel() for each in job.src) if settings.coverage_penalty else 0.0
        )
        self.progress = Progress(
            settings, list(job.limits), job.end_id, layout.width, layout.groups, layout.together, looseness
        )
        self.narrator = None if job.observer is None else Narrator(job.observer, settings, len(job.limits), layout)

    def _chooser(self) -> Chooser:
        """What fits the layout."""
        job, groups = self.job, self.layout.groups
        if self.layout.together == "one":
            return Best()
        if self.layout.together == "ranked":
            return Diverse(groups, job.settings.diversity_penalty, job.end_id)
        if self.layout.together == "banks":
            return Banks([each.phrases for each in self.asked], job.limits, job.end_id)
        sampling, chances = job.settings.sampling, []
        for source, asked in zip(job.sources(), self.asked, strict=True):
            first = asked.first_sample
            chances += [chance_of(sampling.seed, number, source) for number in range(first, first + groups)]
        return Drawn(sampling, chances)

    @torch.inference_mode()
    def steps(self) -> Iterator[Beams]:
        """Walks to the end, and shows the unfinished hypotheses after every step but the last."""
        job, layout, progress, coverage = self.job, self.layout, self.progress, self.coverage
        rows = 1 if coverage is None else layout.rows  # at first, when all of a sentence are equal
        first_RT, state = job.generator.start(job.generator.encode(job.src), rows)
        banned = job.banned(first_RT)
        if choice := job.choice(banned):
            state = choice.narrow(job.generator, state)
        tokens_RT, beams = self._with_prefix(first_RT, rows), None
        while True:
            step = job.generator.step(tokens_RT, state, want_attention=coverage is not None)
            logits_RV, state = step.logits_RTV[:, -1], step.state
            if beams is None:
                beams = self._start(step.logits_RTV[::rows, first_RT.shape[1] - 1 : -1], choice)
                if rows < layout.rows:
                    logits_RV = logits_RV.repeat_interleave(layout.rows, 0)
                    state = job.generator.widen(state, layout.rows)
            found = self._candidates(logits_RV, beams, banned, choice)
            is_stop_NK = self._stops(beams, found)
            decision = decide(found, job.end_id, progress.is_last(beams), layout.width, is_stop_NK)
            penalty_R = None if coverage is None else coverage.add(step.attention)
            progress.are_numbers = partial(_are_numbers, logits_RV)
            is_over_N = progress.record(beams, found, decision, penalty_R)
            if self.narrator is not None:
                self.narrator.tell(beams, found, decision, is_over_N)
            if is_over_N.all():
                return
            beams, rows_NW = beams.advance(found, decision, is_over_N)
            stays_N = self._stays(is_over_N)
            if layout.width > 1 or stays_N.mean() < 1 - _IDLE_SHARE:
                beams, rows_NW = beams.keep(stays_N), rows_NW[stays_N]
            if not _is_identity(rows_NW, len(is_over_N)):
                rows_R = torch.from_numpy(rows_NW.reshape(-1)).to(tokens_RT.device)
                state = job.generator.select(state, rows_R)
                if coverage is not None:
                    coverage.select(rows_R)
            yield beams
            tokens_RT = torch.from_numpy(beams.tokens_NWT[:, :, -1].reshape(-1, 1)).to(tokens_RT.device)

    def _with_prefix(self, first_RT: Tensor, rows: int) -> Tensor:
        """What every row starts from, and the prefix of its sentence."""
        if not self.asked[0].prefix:
            return first_RT
        prefix_MP = torch.tensor([each.prefix for each in self.asked], device=first_RT.device)
        return torch.cat((first_RT, prefix_MP.repeat_interleave(rows, 0)), 1)

    def _candidates(self, logits_RV: Tensor, beams: Beams, banned: set[int], choice: Choice | None) -> Candidates:
        """What may follow, and of that what is looked at; with a shortlist the columns are of its tokens alone."""
        if choice is not None:
            log_probs_RV = choice.log_probs(logits_RV, sentences_of(beams, self.layout.groups))
            if not self.rules and isinstance(self.chooser, Best):
                return choice.named(self.chooser.choose(log_probs_RV, beams))
            log_probs_RV = choice.spread(log_probs_RV)
        else:
            log_probs_RV = allowed_log_probs(logits_RV, banned)
        if self.rules:
            forbid(log_probs_RV, self.rules, beams)
        return self.chooser.choose(log_probs_RV, beams)

    def _start(self, logits_MPV: Tensor, choice: Choice | None) -> Beams:
        """One hypothesis a search: the prefix. Of banks only that which the prefix belongs to has one."""
        groups, width = self.layout.groups, self.layout.width
        prefix_NP = np.array([each.prefix for each in self.asked], dtype=np.int64).repeat(groups, 0)
        log_probs_NP = np.zeros(prefix_NP.shape)
        if prefix_NP.size:
            logits_NPV, columns_NP = logits_MPV.double().repeat_interleave(groups, 0), prefix_NP
            if choice is not None:
                forbidden_NU = choice.forbidden_MU.repeat_interleave(groups, 0)
                logits_NPV, columns_NP = logits_NPV.masked_fill(forbidden_NU[:, None], NEVER), choice.columns(prefix_NP)
            places_NP1 = torch.from_numpy(columns_NP).to(logits_MPV.device)[:, :, None]
            log_probs_NP = logits_NPV.log_softmax(-1).gather(2, places_NP1)[:, :, 0].cpu().numpy()
        is_live_N: Bools = np.ones(len(prefix_NP), dtype=np.bool_)
        if self.layout.together == "banks":
            banks = [each.phrases.bank(each.prefix) for each in self.asked]
            is_live_N = np.arange(groups) == np.array(banks).repeat(groups).reshape(-1, groups)
        beams = Beams.start(prefix_NP, log_probs_NP, width, is_live_N.reshape(-1))
        if self.narrator is not None:
            self.narrator.begin(beams)
        return beams

    def _stops(self, beams: Beams, found: Candidates) -> Bools | None:
        """is_stop_NK: the candidates with which an output has written what it is to end with, where there is such."""
        if all(each.is_stopped is None for each in self.asked):
            return None
        is_stop_NK: Bools = np.zeros(found.tokens_NK.shape, dtype=np.bool_)
        for row, rank in np.argwhere(found.totals_NK > -np.inf).tolist():
            is_stopped = self.asked[int(beams.searches_N[row]) // self.layout.groups].is_stopped
            tokens_T = beams.tokens_RT[row * self.layout.width + found.parents_NK[row, rank]]
            is_stop_NK[row, rank] = is_stopped is not None and is_stopped(
                [*tokens_T.tolist(), int(found.tokens_NK[row, rank])]
            )
        return is_stop_NK

    def _stays(self, is_over_N: Bools) -> Bools:
        """Searches leave when all of their sentence are over."""
        if self.layout.groups == 1:
            return ~is_over_N
        return (~is_over_N).reshape(-1, self.layout.groups).any(1).repeat(self.layout.groups)


def _are_numbers(logits_RV: Tensor) -> bool:
    return not bool(logits_RV.isnan().any())


def _is_identity(rows_NW: Ints, num_searches: int) -> bool:
    """Whether all rows stay where they are."""
    return len(rows_NW) == num_searches and bool((rows_NW.reshape(-1) == np.arange(rows_NW.size)).all())
