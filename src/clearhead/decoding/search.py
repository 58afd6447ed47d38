"""Search over a generator's step function, for one batch; with a beam of 1 it is greedy search.

At each step a search has `beam` unfinished hypotheses. Of all their continuations those that write the end token
and are among the best `beam` are finished, and the best `beam` others go on. A search is over when `beam` hypotheses
are finished (`stop = beam_finished`); or when, moreover, no unfinished one can still beat the worst of the best `beam`
finished (`stop = cannot_improve`); or at its limit. At the limit the best `beam` continuations are taken as they are,
ended or cut, and ranked with the finished ones by normalised score. CTranslate2 does the same with `beam_finished`.

A sentence is one search, or several side by side: groups of its beam, samples, or banks of wanted words (`Layout`).
What may follow is said by `rules`, what is looked at by a `Chooser`, what a finished hypothesis is worth by `scoring`
and `coverage`; the search itself knows none of them.

Knows token ids, nothing of text. Decisions are made on the host, for the whole batch at a time, with one transfer from
the device a step.

M sentences, G searches of each, N = M*G searches, W hypotheses of each, R = N*W rows, T tokens given at once, S source
length, P tokens of a prefix
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Banks
from clearhead.decoding.beams import Beams, decide
from clearhead.decoding.candidates import Bools, Ints, allowed_log_probs
from clearhead.decoding.chance import chance_of
from clearhead.decoding.choosing import Best, Chooser, Diverse, Drawn
from clearhead.decoding.coverage import Coverage, places_that_count
from clearhead.decoding.generator import Generator
from clearhead.decoding.layout import Constraints, Layout
from clearhead.decoding.observer import Narrator, Observer
from clearhead.decoding.progress import Found, Progress
from clearhead.decoding.rules import forbid, rules_of
from clearhead.decoding.scoring import Hypothesis
from clearhead.errors import DecodingError

__all__ = ["Constraints", "Hypothesis", "Walk", "find", "search"]

# Greedy search carries rows of finished sentences along until they are this share of all: moving the others together
# copies their cache.
_IDLE_SHARE = 0.125


def search(
    generator: Generator[Any, Any],
    src_NS: Tensor,
    settings: DecodingConfig,
    limits: Sequence[int],
    end_id: int,
    pad_id: int,
    n_best: int = 1,
    observer: Observer | None = None,
    constraints: Sequence[Constraints] = (),
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first; a limit counts generated tokens, the end token included.

    Samples come in the order in which they were drawn.
    """
    found = find(generator, src_NS, settings, limits, end_id, pad_id, n_best, observer, constraints)
    return [each.hypotheses for each in found]


def find(
    generator: Generator[Any, Any],
    src_NS: Tensor,
    settings: DecodingConfig,
    limits: Sequence[int],
    end_id: int,
    pad_id: int,
    n_best: int = 1,
    observer: Observer | None = None,
    constraints: Sequence[Constraints] = (),
) -> list[Found]:
    """What `search` gives, with the margin of each sentence: how close the closest decision on the way was."""
    walking = Walk(generator, src_NS, settings, limits, end_id, pad_id, n_best, observer, constraints)
    for _ in walking.steps():
        pass
    return walking.progress.results(n_best)


class Walk:
    """One batch on its way: what governs it, and what has been found."""

    def __init__(
        self,
        generator: Generator[Any, Any],
        src_NS: Tensor,
        settings: DecodingConfig,
        limits: Sequence[int],
        end_id: int,
        pad_id: int,
        n_best: int = 1,
        observer: Observer | None = None,
        constraints: Sequence[Constraints] = (),
    ) -> None:
        if n_best > settings.beam and settings.method == "search":
            raise DecodingError(
                f"expected n_best of at most decoding.beam={settings.beam}, not {n_best}; raise the beam."
            )
        self.generator, self.src, self.end_id, self.pad_id = generator, src_NS, end_id, pad_id
        self.asked = constraints or [Constraints()] * len(limits)
        wanted = self.asked[0].phrases.size
        self.layout = layout = Layout.of(settings, n_best, wanted)
        words_N = [each.exclude for each in self.asked for _ in range(layout.groups)]
        self.rules = rules_of(settings, end_id, words_N)
        self.chooser = self._chooser(settings, limits)
        self.coverage = None
        if settings.coverage:
            counts = places_that_count(src_NS, pad_id, end_id)
            self.coverage = Coverage(settings.coverage, counts, layout.rows)
        looseness = settings.coverage * max(each.numel() for each in src_NS) if settings.coverage else 0.0
        self.progress = Progress(
            settings, list(limits), end_id, layout.width, layout.groups, layout.together, looseness
        )
        self.narrator = None if observer is None else Narrator(observer, settings, len(limits), layout)

    def _chooser(self, settings: DecodingConfig, limits: Sequence[int]) -> Chooser:
        """What fits the layout."""
        if self.layout.together == "one":
            return Best()
        if self.layout.together == "ranked":
            return Diverse(self.layout.groups, settings.diversity, self.end_id)
        if self.layout.together == "banks":
            return Banks([each.phrases for each in self.asked], limits, self.end_id)
        seed, numbers = settings.sampling.seed, range(self.layout.groups)
        sources = [src if src.is_floating_point() else src[src != self.pad_id] for src in self.src]
        return Drawn(settings.sampling, [chance_of(seed, number, each) for each in sources for number in numbers])

    @torch.inference_mode()
    def steps(self) -> Iterator[Beams]:
        """Walks to the end, and shows the unfinished hypotheses after every step but the last."""
        layout, progress, coverage = self.layout, self.progress, self.coverage
        tokens_RT, state = self.generator.start(self.generator.encode(self.src), layout.rows)
        banned = _never_written(tokens_RT, self.end_id, self.pad_id)
        first = tokens_RT.shape[1]
        tokens_RT = self._with_prefix(tokens_RT)
        beams = None
        while True:
            step = self.generator.step(tokens_RT, state, want_attention=coverage is not None)
            if beams is None:
                beams = self._start(step.logits_RTV, first)
            log_probs_RV = allowed_log_probs(step.logits_RTV[:, -1], banned)
            if self.rules:
                forbid(log_probs_RV, self.rules, beams)
            found = self.chooser.choose(log_probs_RV, beams)
            decision = decide(found, self.end_id, progress.is_last(beams), layout.width)
            penalty_R = None if coverage is None else coverage.add(step.attention)
            is_over_N = progress.record(beams, found, decision, penalty_R)
            if self.narrator is not None:
                self.narrator.tell(beams, found, decision, is_over_N)
            if is_over_N.all():
                return
            beams, rows_NW = beams.advance(found, decision, is_over_N)
            stays_N = self._stays(is_over_N)
            if layout.width > 1 or stays_N.mean() < 1 - _IDLE_SHARE:
                beams, rows_NW = beams.keep(stays_N), rows_NW[stays_N]
            state = step.state
            if not _is_identity(rows_NW, len(is_over_N)):
                rows_R = torch.from_numpy(rows_NW.reshape(-1)).to(tokens_RT.device)
                state = self.generator.select(state, rows_R)
                if coverage is not None:
                    coverage.select(rows_R)
            yield beams
            tokens_RT = torch.from_numpy(beams.tokens_NWT[:, :, -1].reshape(-1, 1)).to(tokens_RT.device)

    def _with_prefix(self, first_RT: Tensor) -> Tensor:
        """What every row starts from, and the prefix of its sentence."""
        if not self.asked[0].prefix:
            return first_RT
        prefix_MP = torch.tensor([each.prefix for each in self.asked], device=first_RT.device)
        return torch.cat((first_RT, prefix_MP.repeat_interleave(self.layout.rows, 0)), 1)

    def _start(self, logits_RTV: Tensor, first: int) -> Beams:
        """One hypothesis a search: the prefix. Of banks only that which the prefix belongs to has one."""
        groups, width = self.layout.groups, self.layout.width
        prefix_NP = np.array([each.prefix for each in self.asked], dtype=np.int64).repeat(groups, 0)
        log_probs_NP = np.zeros(prefix_NP.shape)
        if prefix_NP.size:
            log_probs_NPV = logits_RTV[::width, first - 1 : -1].double().log_softmax(-1)
            places_NP1 = torch.from_numpy(prefix_NP).to(logits_RTV.device)[:, :, None]
            log_probs_NP = log_probs_NPV.gather(2, places_NP1)[:, :, 0].cpu().numpy()
        is_live_N: Bools = np.ones(len(prefix_NP), dtype=np.bool_)
        if self.layout.together == "banks":
            banks = [each.phrases.bank(each.prefix) for each in self.asked]
            is_live_N = np.arange(groups) == np.array(banks).repeat(groups).reshape(-1, groups)
        return Beams.start(prefix_NP, log_probs_NP, width, is_live_N.reshape(-1))

    def _stays(self, is_over_N: Bools) -> Bools:
        """Searches leave when all of their sentence are over."""
        if self.layout.groups == 1:
            return ~is_over_N
        return (~is_over_N).reshape(-1, self.layout.groups).any(1).repeat(self.layout.groups)


def _never_written(first_RT: Tensor, end_id: int, pad_id: int) -> list[int]:
    """Padding, and the start token where rows start from one that is not the end token too."""
    start = {int(first_RT[0, 0])} if first_RT.shape[1] == 1 else set()
    return sorted((start | {pad_id}) - {end_id})


def _is_identity(rows_NW: Ints, num_searches: int) -> bool:
    """Whether all rows stay where they are."""
    return len(rows_NW) == num_searches and bool((rows_NW.reshape(-1) == np.arange(rows_NW.size)).all())
