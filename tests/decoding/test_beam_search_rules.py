"""Beam search against a reference implementation of its rules, one candidate at a time, bit for bit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.penalties import length_penalties, length_penalty
from clearhead.decoding.requests import AllowedTokens, Constraints, Hypothesis
from clearhead.decoding.search import search, stream_search
from clearhead.decoding.search_batch import SearchBatch
from tests.decoding.table import END, PAD, START, TableGenerator, log_softmax

VOCAB, ZERO = 13, np.float32(0)


@dataclass(frozen=True)
class Row:
    """Unfinished hypothesis."""

    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    total: np.float32 = ZERO


def expected_hypotheses(
    table: TableGenerator, key: int, limit: int, settings: DecodingConfig, n_best: int, shortlist: set[int] | None
) -> list[Hypothesis]:
    """Reference implementation of the rules in the docstring of `search`."""
    beam, finished, width, penalties = (
        [Row()],
        list[Hypothesis](),
        settings.beam_size,
        length_penalties(settings, limit),
    )

    def finish(row: Row, reason: Any) -> None:
        score = row.total / penalties[len(row.log_probs)]
        tokens = row.tokens[:-1] if reason == "end" else row.tokens
        finished.append(Hypothesis(tokens, float(score), float(row.total), row.log_probs, reason))
        finished.sort(key=lambda each: -each.score)  # stable

    for length in range(1, limit + 1):
        candidates = []
        for index, row in enumerate(beam):
            logits_V = table.logits(key, (START, *row.tokens))
            if shortlist is not None:
                outside = [token for token in range(VOCAB) if token not in shortlist - {PAD, START} | {END}]
                logits_V[outside] = -np.inf
            for token, log_prob in enumerate(log_softmax(logits_V).astype(np.float32)):
                is_early_end = token == END and length <= settings.min_length
                if token not in (PAD, START) and not is_early_end and log_prob > -np.inf:
                    total = np.float32(row.total + log_prob)
                    extended = Row((*row.tokens, token), (*row.log_probs, float(log_prob)), total)
                    candidates.append((-total, index, token, extended))
        candidates.sort(key=lambda each: each[:3])
        for _, _, token, row in candidates[:width]:
            if token == END or length == limit:
                finish(row, "end" if token == END else "length")
        following = [row for _, _, token, row in candidates if token != END][:width]
        if length == limit or not following:
            for row in () if finished else beam:
                finish(row, "blocked")
            break
        beam = following
        if len(finished) >= width:
            at = {"cannot_improve": limit, "no_better_now": length}.get(settings.stopping_rule)
            if at is None or beam[0].total / penalties[at] <= np.float32(finished[width - 1].score):
                break
    return finished[:n_best]


@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve", "no_better_now"])
@pytest.mark.parametrize("norm", ["gnmt", "length", "none"])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("distinct", [0, 1])
def test_every_bit_of_the_result(stop: str, norm: str, beam: int, distinct: int) -> None:
    """Tokens, log-probabilities, scores, order and reasons are equal, also with many exact ties and with shortlists."""
    table = TableGenerator(VOCAB, end_bonus=0.7, distinct=distinct)
    limits = [1, 2, 3, 5, 7, 11]
    lists = [{2, 3 + key, 5, 7, 11} for key in range(6)]
    search_constraints = [Constraints(shortlist=AllowedTokens(tuple(sorted(each)), VOCAB)) for each in lists]
    for options, alpha in (({}, 0.6), ({"min_length": 1}, 1.3), ({"min_length": 1}, 0.0)):
        settings = DecodingConfig.model_validate(
            {"beam_size": beam, "stopping_rule": stop, "length_penalty_form": norm, "length_penalty": alpha, **options}
        )
        sources = [[key] for key in range(6)]
        baseline = search(SearchBatch(table, sources, settings, limits, END, PAD, beam))
        listed = search(SearchBatch(table, sources, settings, limits, END, PAD, beam, constraints=search_constraints))
        for key, limit in enumerate(limits):
            assert baseline[key] == expected_hypotheses(table, key, limit, settings, beam, None)
            assert listed[key] == expected_hypotheses(table, key, limit, settings, beam, lists[key])


def test_a_search_that_is_blocked() -> None:
    """If the shortlist contains only the end token, which min_length bans, the empty hypothesis is the only output."""
    settings, table = DecodingConfig(beam_size=3, min_length=2), TableGenerator(VOCAB)
    search_constraints = [Constraints(shortlist=AllowedTokens((END,), VOCAB))]
    [result] = search(SearchBatch(table, [[4]], settings, [5], END, PAD, 3, constraints=search_constraints))
    assert result == [Hypothesis((), 0.0, 0.0, (), "blocked")]
    assert result == expected_hypotheses(table, 4, 5, settings, 3, {END})


def test_the_penalty_table_is_rounded_once() -> None:
    for norm, alpha in (("gnmt", 0.6), ("length", 1.7), ("none", 3.0)):
        settings = DecodingConfig.model_validate({"length_penalty_form": norm, "length_penalty": alpha})
        table = length_penalties(settings, 50)
        assert table.dtype == np.float32 and len(table) == 51 and table[0] == table[1]
        for length in range(1, 51):
            exact = {"gnmt": ((5 + length) / 6) ** alpha, "length": float(length) ** alpha, "none": 1.0}[norm]
            assert table[length] == np.float32(exact) and length_penalty(length, settings) == table[length]
    huge = length_penalties(DecodingConfig(length_penalty_form="length", length_penalty=10), 10**4)
    assert np.isfinite(huge).all()


@pytest.mark.parametrize("beam", [1, 3])
def test_a_stream_yields_beginnings_of_its_result(beam: int) -> None:
    table, settings = TableGenerator(VOCAB, end_bonus=-1.0), DecodingConfig(beam_size=beam)
    for key in range(7):
        streaming, streamed = stream_search(SearchBatch(table, [[key]], settings, [9], END, PAD)), [()]
        while True:
            try:
                streamed.append(next(streaming))  # type: ignore[arg-type]
            except StopIteration as done:
                [best] = done.value.hypotheses
                break
        assert [best] == search(SearchBatch(table, [[key]], settings, [9], END, PAD))[0]
        assert all(best.tokens[: len(each)] == each for each in streamed)
        assert [*map(len, streamed)] == sorted({*map(len, streamed)})
        if beam == 1:
            assert len(streamed) >= len(best.tokens)
