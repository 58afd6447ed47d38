"""Search for one sentence of which nothing special is asked: the decisions of `search`, on plain numbers.

Arrays pay where there are many sentences. For one they cost more than the model itself: at preset tiny half of the time
of a sentence went into arrays of three numbers. Rules, groups, samples, banks, shortlists, prefixes and watchers are
left to `search`; so is a step in which candidates are exactly equal. `tests/decoding/test_lone.py` holds both to the
same answers.

W hypotheses, V vocabulary, K candidates
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.candidates import best_candidates, forbid_tokens
from clearhead.decoding.job import Job
from clearhead.decoding.progress import Found, Progress
from clearhead.decoding.scoring import FinishReason

_NONE = float("-inf")
_FAR = float("inf")


def is_lone(job: Job) -> bool:
    """Whether one plain search for one sentence is all that is asked."""
    settings, asked = job.settings, job.asked[0]
    return (
        len(job.limits) == 1
        and job.layout.together == "one"
        and job.observer is None
        and not (settings.coverage_penalty or settings.min_length or settings.no_repeat_ngram_size)
        and not (asked.prefix or asked.exclude or asked.is_stopped or asked.shortlist)
    )


class Row(NamedTuple):
    """An unfinished hypothesis."""

    tokens: list[int]
    log_probs: list[float]
    total: float


Option = tuple[float, int, int, float]
"""A continuation: its cost (minus the total), the row that it continues, the token and its log-probability. Sorted, the
best comes first, equal ones by row and token. A plain tuple: 40 are made at a step."""


@dataclass
class Lone:
    """One search on its way."""

    job: Job
    progress: Progress
    margin: float = _FAR

    @torch.inference_mode()
    def walk(self) -> None:
        """To the end; what was found stands in `progress` then."""
        generator, width = self.job.generator, self.job.layout.width
        tokens_RT, state = generator.start(generator.encode(self.job.src), 1)
        banned, rows = self.job.banned(tokens_RT), [Row([], [], 0.0)]
        step = generator.step(tokens_RT, state)
        state = generator.widen(step.state, width)
        while True:
            log_probs_WV = step.logits_RTV[: len(rows), -1].log_softmax(-1)
            options = _best(log_probs_WV, rows, 2 * width + 1, banned)
            if not options and bool(log_probs_WV.isnan().any()):
                return  # nothing is better than anything else
            kept = self._decide(rows, options)
            if kept is None:
                return
            parents, tokens = [row for _, row, _, _ in kept], [token for _, _, token, _ in kept]
            idle = width - len(kept)  # rows that nothing goes on in: they do as the last one does
            rows = [_extended(rows[row], each) for row, each in zip(parents, kept, strict=True)]
            if idle or parents != [*range(width)]:
                parents += parents[-1:] * idle
                state = generator.select(state, torch.tensor(parents, device=tokens_RT.device))
            step = generator.step(torch.tensor(tokens + tokens[-1:] * idle, device=tokens_RT.device)[:, None], state)
            state = step.state

    def _decide(self, rows: list[Row], options: list[Option]) -> list[Option] | None:
        """The continuations that go on, best first; None when the search is over. What ends is finished."""
        job, width = self.job, self.job.layout.width
        length, end = len(rows[0].tokens), job.end_id
        is_last = job.limits[0] <= length + 1
        margin = _gap(options, width - 1, 2 * width)  # an end that is not even listed is beyond the last candidate
        kept: list[Option] = []
        place_after = 2 * width + 1  # of the best one that is not kept
        for place, option in enumerate(options):
            _, row, token, _ = option
            is_end = token == end
            if is_end or is_last:
                margin = min(margin, _gap(options, place, width) if place < width else _gap(options, width - 1, place))
                if place < width:
                    self._finish(rows[row], option, is_end)
            if not is_end and len(kept) < width:
                kept.append(option)
            elif not is_end and place_after > place:
                place_after = place
        if is_last or not kept:
            self._take_blocked(rows)
            self.margin = min(self.margin, margin)
            return None
        is_over, stop_margin = self._is_settled(-kept[0][0], length + 1)
        keep_margin = _FAR
        if not is_over and len(kept) == width and place_after < len(options):
            keep_margin = options[place_after][0] - kept[-1][0]
        self.margin = min(self.margin, margin, stop_margin, keep_margin)
        return None if is_over else kept

    def _is_settled(self, best_total: float, length: int) -> tuple[bool, float]:
        """As `Progress` has it."""
        if self.job.settings.stopping_rule == "beam_finished":
            return bool(self.progress.worst_score_N[0] > _NONE), _FAR
        is_settled_N, margin_N = self.progress.is_settled(np.zeros(1, np.int64), np.array([best_total]), length)
        return bool(is_settled_N[0]), float(margin_N[0])

    def _finish(self, row: Row, option: Option, is_end: bool) -> None:
        reason: FinishReason = "end" if is_end else "length"
        cost, _, token, log_prob = option
        tokens = row.tokens if is_end else [*row.tokens, token]
        self.progress.add(0, tokens, [*row.log_probs, log_prob], -cost, 0.0, reason)

    def _take_blocked(self, rows: list[Row]) -> None:
        """Where nothing could follow and nothing is finished."""
        if not self.progress.finished[0]:
            for row in rows:
                self.progress.add(0, row.tokens, row.log_probs, row.total, 0.0, "blocked")


def find_one(job: Job) -> Found:
    """What `search` finds, with its margin, bit for bit."""
    progress = Progress(job.settings, list(job.limits), job.end_id, job.layout.width)
    lone = Lone(job, progress)
    lone.walk()
    progress.margin_N[0] = lone.margin
    return progress.results(job.n_best)[0]


def _best(log_probs_WV: Tensor, rows: list[Row], count: int, banned: set[int]) -> list[Option]:
    """The best `count` that are possible: of each row so many, and of them all so many again."""
    values_WK, tokens_WK = log_probs_WV.topk(min(count + len(banned), log_probs_WV.shape[1]))
    options: list[Option] = []
    edge = _FAR  # beyond it nothing is among the best
    for row, (values, tokens) in enumerate(zip(values_WK.tolist(), tokens_WK.tolist(), strict=True)):
        total = rows[row].total
        for value, token in zip(values, tokens, strict=True):
            cost = -(total + value)
            if cost > edge:
                break
            if value > _NONE and token not in banned:
                options.append((cost, row, token, value))
        if len(options) >= count:
            options.sort()
            del options[count:]
            edge = options[-1][0]
    options.sort()
    if len(options) == count > 1 and options[-1][0] == options[-2][0]:  # which of them topk took is its own affair
        return _best_of_equals(log_probs_WV, rows, count, banned)
    return options


def _best_of_equals(log_probs_WV: Tensor, rows: list[Row], count: int, banned: set[int]) -> list[Option]:
    forbid_tokens(log_probs_WV, banned)
    found = best_candidates(log_probs_WV, np.array([[row.total for row in rows]]), count)
    each = (found.totals_NK, found.parents_NK, found.tokens_NK, found.log_probs_NK)
    columns = (array[0].tolist() for array in each)
    return [(-total, *rest) for total, *rest in zip(*columns, strict=True) if total > _NONE]


def _gap(options: list[Option], higher: int, lower: int) -> float:
    """How much better one is than another; infinitely, where there is no such other."""
    return options[lower][0] - options[higher][0] if lower < len(options) else _FAR


def _extended(row: Row, option: Option) -> Row:
    cost, _, token, log_prob = option
    return Row([*row.tokens, token], [*row.log_probs, log_prob], -cost)
