"""Diverse groups, coverage and samples against values that are computed without the search."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Ints, Step
from clearhead.decoding.penalties import length_penalty, normalized_score, sum_log_probs
from clearhead.decoding.requests import Hypothesis
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import DecodingError
from tests.decoding.table import END, PAD, START, Doubles, TableGenerator, TableState, every_output


@pytest.mark.parametrize(("groups", "width", "penalty"), [(2, 1, 0.7), (3, 2, 0.4), (2, 3, 9.0), (4, 1, 0.0)])
def test_groups_against_a_loop(groups: int, width: int, penalty: float) -> None:
    table, limit = TableGenerator(11, end_bonus=1.0), 6
    beam = groups * width
    decoding = DecodingConfig(beam_size=beam, beam_groups=groups, diversity_penalty=penalty)
    results = search(SearchBatch(table, [[key] for key in range(9)], decoding, [limit] * 9, END, PAD, beam))
    for key, actual in enumerate(results):
        expected = _diverse(table, key, groups, width, penalty, limit)
        scores = {
            tokens: normalized_score(sum_log_probs(score), len(score), decoding) for tokens, score in expected.items()
        }
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:beam]
        assert [each.tokens for each in actual] == ranked
        assert [each.score for each in actual] == pytest.approx([scores[tokens] for tokens in ranked], abs=1e-5)
    if penalty == 0:  # without a penalty all groups find the same
        assert all(len(actual) == 1 for actual in results)
    if penalty == 9 and width == 3:  # with a high one the groups begin differently
        assert sum(len({each.tokens[:1] for each in actual}) for actual in results) > 3 * len(results)


def _diverse(
    table: TableGenerator, key: int, groups: int, width: int, penalty: float, limit: int
) -> dict[tuple[int, ...], list[float]]:
    """Reference implementation of diverse beam search; return outputs with their log-probabilities."""
    live: list[list[tuple[tuple[int, ...], list[float]]]] = [[((), [])] for _ in range(groups)]
    finished: list[dict[tuple[int, ...], list[float]]] = [{} for _ in range(groups)]
    for step in range(limit):
        used: Counter[int] = Counter()
        for group in range(groups):
            options = []
            for parent, (tokens, scores) in enumerate(live[group]):
                log_probs_V = table.log_probs(key, (START, *tokens)).tolist()
                for token in range(END, table.vocab_size):
                    rank = sum(scores) + log_probs_V[token] - penalty * used[token]
                    options.append((-rank, parent, token, tokens, [*scores, log_probs_V[token]]))
            options.sort(key=lambda option: option[:3])
            for _, _, token, tokens, scores in options[:width]:
                if token == END or step == limit - 1:
                    finished[group][tokens if token == END else (*tokens, token)] = scores
            kept = [option for option in options if option[2] != END][:width]
            used.update(option[2] for option in kept)
            is_over = len(finished[group]) >= width
            live[group] = [] if is_over else [((*tokens, token), scores) for _, _, token, tokens, scores in kept]
    return {tokens: scores for group in reversed(finished) for tokens, scores in group.items()}


class Attending(TableGenerator):
    """Generator that attends to four source positions, depending on the history."""

    def attention(self, key: int, history: tuple[int, ...]) -> Doubles:
        drawn_HS = np.exp(2 * np.random.default_rng([7, key, *history]).standard_normal((3, 4)))  # 3 heads
        return np.asarray(drawn_HS / drawn_HS.sum(1, keepdims=True))

    def step(
        self,
        tokens_RT: Ints,
        state: TableState,
        /,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        assert want_attention
        result = super().step(tokens_RT, state)
        histories = enumerate(result.state.history)
        attentions = [self.attention(state.key_N[row // state.width], past)[:, None] for row, past in histories]
        return replace(result, cross_RHTS=np.stack(attentions).astype(np.float32))


@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
@pytest.mark.parametrize("weight", [0.1, 1.5])
def test_coverage_against_every_output(weight: float, stop: str) -> None:
    table, limit = Attending(6), 4
    decoding = DecodingConfig.model_validate({"beam_size": 130, "coverage_penalty": weight, "stopping_rule": stop})
    src_NS = [[key, 5, END] for key in range(3, 7)]
    results = search(SearchBatch(table, src_NS, decoding, [limit] * 4, END, PAD, 3))
    for key, result in enumerate(results, 3):
        scores = {}
        for tokens, ends in every_output(6, limit):
            log_probs = table.score(key, tokens, ends)
            histories = [(START, *tokens[:position]) for position in range(len(log_probs))]
            seen_S = np.stack([table.attention(key, history).mean(0) for history in histories]).sum(0)
            penalty = float(np.log(seen_S.clip(max=1)[:2]).sum())  # the end and the padding do not count
            scores[tokens] = sum(log_probs) / length_penalty(len(log_probs), decoding) + weight * penalty
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:3]
        assert [each.tokens for each in result] == ranked
        assert [each.score for each in result] == pytest.approx([scores[tokens] for tokens in ranked], abs=1e-5)


def test_coverage_needs_attention() -> None:
    with pytest.raises(DecodingError, match=r"decoding\.coverage_penalty needs a model that attends to its source"):
        search(SearchBatch(TableGenerator(7), [[0]], DecodingConfig(coverage_penalty=0.1), [5], END, PAD))


def drawn(
    table: TableGenerator, src_NS: list[list[int]], n_best: int = 1, limit: int = 3, **options: Any
) -> list[list[Hypothesis]]:
    decoding = DecodingConfig.model_validate({"method": "sample", "sampling": options})
    return search(SearchBatch(table, src_NS, decoding, [limit] * len(src_NS), END, PAD, n_best))


def test_outputs_are_drawn_as_often_as_they_are_probable() -> None:
    """Frequencies over 1,500 sentences with the same first distribution; filtered tokens are never drawn."""
    table, count = TableGenerator(6, scale=1.5), 1500
    src_NS = [[0, number] for number in range(count)]
    outputs = Counter(result[0].tokens for result in drawn(table, src_NS, limit=2))
    p_V = np.exp(table.log_probs(0, (START,)))
    p_V[[PAD, START]] = 0
    p_V /= p_V.sum()
    for token in range(END + 1, 6):
        share = float(p_V[token])
        times = sum(number for tokens, number in outputs.items() if tokens[:1] == (token,))
        assert abs(times / count - share) < 4 * (share * (1 - share) / count) ** 0.5
    assert len(outputs) > 9
    best = int(p_V.argmax())
    greedy = {result[0].tokens[:1] for result in drawn(table, src_NS[:50], top_k=1)}
    assert greedy == {(best,) if best != END else ()}


def test_a_draw_depends_on_seed_number_and_sentence_only() -> None:
    table = TableGenerator(11, end_bonus=-3.0)
    src_NS = [[4, 9], [4, 8], [4, 9], [7]]
    three = drawn(table, src_NS, 3, limit=9, seed=5)
    assert three[0] == three[2], "equal sentences are drawn equally"
    assert [actual[0].tokens for actual in drawn(table, src_NS[:2], 1, limit=9, seed=5)] == [
        actual[0].tokens for actual in three[:2]
    ]
    assert drawn(table, src_NS[3:], 3, limit=9, seed=5)[0] == three[3]
    others = [drawn(table, src_NS, 3, limit=9, seed=6)[0], three[1]]
    assert len({each.tokens for actual in (three[0], *others) for each in actual}) == 9
    for key, actual in enumerate(three):
        for each in actual:
            expected = table.score(src_NS[key][0], each.tokens, each.finish_reason == "end")
            assert each.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_temperature_zero_is_greedy() -> None:
    table, src_NS = TableGenerator(11, end_bonus=0.5), [[key] for key in range(20)]
    greedy = search(SearchBatch(table, src_NS, DecodingConfig(beam_size=1), [7] * 20, END, PAD))
    assert [each[0].tokens for each in drawn(table, src_NS, limit=7, temperature=0)] == [
        each[0].tokens for each in greedy
    ]
