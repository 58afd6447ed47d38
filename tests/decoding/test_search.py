"""Search against other computations: an enumeration of all outputs, an argmax loop, a model without a cache."""

from collections import defaultdict
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.observer import ROOT, Candidate
from clearhead.decoding.requests import Constraints, Hypothesis
from clearhead.decoding.search import run_search, search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import DecodingError
from tests.decoding.table import END, PAD, START, Doubles, TableGenerator

Norm = Literal["gnmt", "length", "none"]
Stop = Literal["beam_finished", "cannot_improve"]


def keys(count: int) -> list[list[int]]:
    """Return one sentence per key of a table."""
    return [[key] for key in range(count)]


def run(table: TableGenerator, settings: DecodingConfig, limits: list[int], n_best: int = 1) -> list[list[Hypothesis]]:
    return search(SearchBatch(table, keys(len(limits)), settings, limits, END, PAD, n_best))


@pytest.mark.parametrize("norm", ["gnmt", "length", "none"])
@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
@pytest.mark.parametrize("end_bonus", [-2.0, 0.0, 2.0])
def test_wide_beam_finds_the_optimum(norm: Norm, stop: Stop, end_bonus: float) -> None:
    table = TableGenerator(vocab_size=6, end_bonus=end_bonus)
    settings = DecodingConfig(beam_size=130, length_penalty=0.7, length_penalty_form=norm, stopping_rule=stop)
    limits = [4, 1, 3, 4]  # 3 words: at most 3**4 + 3**3 + ... = 121 outputs
    for key, actual in enumerate(run(table, settings, limits, n_best=5)):
        expected = table.all_outputs(key, limits[key], settings)[:5]
        assert [each.tokens for each in actual] == [tokens for _, tokens in expected]
        assert [each.score for each in actual] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("norm", ["gnmt", "length", "none"])
def test_cannot_improve_is_exact_and_stops_early(norm: Norm) -> None:
    """With a beam that contains every prefix but not every output, stopping must not lose the best ones."""
    table = TableGenerator(vocab_size=6, scale=3.0, end_bonus=1.0)
    settings = DecodingConfig(
        beam_size=81, length_penalty=0.7, length_penalty_form=norm, stopping_rule="cannot_improve"
    )
    for key, actual in enumerate(run(table, settings, [5] * 7, n_best=3)):
        expected = table.all_outputs(key, 5, settings)[:3]
        assert [each.tokens for each in actual] == [tokens for _, tokens in expected]
    eager = TableGenerator(6, end_bonus=6.0)
    run(eager, DecodingConfig(beam_size=2, length_penalty=0.0, stopping_rule="cannot_improve"), [1000] * 3)
    assert len(eager.rows_seen) < 20


def test_beam_finished_stops_at_that_many() -> None:
    """There is one token, and the end is more probable, so that each step finishes one hypothesis."""
    table = TableGenerator(vocab_size=4, scale=0.0, end_bonus=1.0)
    for beam in (1, 2, 3):
        table.rows_seen.clear()
        [result] = run(table, DecodingConfig(beam_size=beam, stopping_rule="beam_finished"), [50], n_best=beam)
        assert len(table.rows_seen) == beam
        assert sorted(len(each.tokens) for each in result) == list(range(beam))


def test_beam_of_one_is_argmax() -> None:
    table = TableGenerator(vocab_size=13, end_bonus=0.5)
    limits = [11, 7, 5, 3, 2, 1] * 5
    results = run(table, DecodingConfig(beam_size=1), limits)
    for key, (limit, [result]) in enumerate(zip(limits, results, strict=True)):
        written: list[int] = []
        while len(written) < limit and END not in written:
            logits_V = table.logits(key, (START, *written))
            logits_V[[PAD, START]] = -np.inf
            written.append(int(logits_V.argmax()))
        assert result.tokens == tuple(token for token in written if token != END)
        assert result.finish_reason == ("end" if END in written else "length")
        assert result.token_log_probs == pytest.approx(table.score(key, result.tokens, END in written), abs=1e-5)


@pytest.mark.parametrize("beam", [1, 3, 5])
@pytest.mark.parametrize("norm", ["gnmt", "length", "none"])
def test_hypotheses_are_sorted_distinct_and_add_up(beam: int, norm: Norm) -> None:
    table = TableGenerator(vocab_size=11, end_bonus=1.0)
    settings = DecodingConfig(beam_size=beam, length_penalty=0.9, length_penalty_form=norm)
    limits = [2, 3, 5, 7, 11] * 4
    results = run(table, settings, limits, n_best=beam)
    assert {each.finish_reason for result in results for each in result} == {"end", "length"}
    for key, (limit, result) in enumerate(zip(limits, results, strict=True)):
        assert len(result) == beam
        assert len({each.tokens for each in result}) == beam
        assert all(first.score >= second.score for first, second in pairwise(result))
        for each in result:
            ends = each.finish_reason == "end"
            assert not {PAD, START, END} & set(each.tokens)
            assert len(each.tokens) + ends == len(each.token_log_probs) <= limit
            assert ends or len(each.tokens) == limit
            assert each.log_prob == pytest.approx(sum(each.token_log_probs))
            assert each.token_log_probs == pytest.approx(table.score(key, each.tokens, ends), abs=1e-5)
            n = len(each.token_log_probs)
            by = {"gnmt": ((5 + n) / 6) ** 0.9, "length": n**0.9, "none": 1.0}[norm]
            assert each.score == pytest.approx(each.log_prob / by)


@pytest.mark.parametrize("beam", [1, 4])
def test_leaving_early_does_not_change_the_others(beam: int) -> None:
    table = TableGenerator(vocab_size=11, end_bonus=0.3)
    settings = DecodingConfig(beam_size=beam)
    limits = [1, 2, 3, 5, 7, 11, 13, 17] * 4
    together = run(table, settings, limits)
    rows = list(table.rows_seen)
    assert rows[-1] < rows[0], "finished sentences stay in the batch"
    for key, limit in enumerate(limits):
        assert search(SearchBatch(table, [[key]], settings, [limit], END, PAD, 1)) == [together[key]]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_ties_go_to_the_earlier_parent_and_the_lower_token(beam: int) -> None:
    """All tokens are equally probable and the end token is impossible, so that only the order of ties decides."""
    table = TableGenerator(vocab_size=301, scale=0.0, end_bonus=-9.0)
    [result] = run(table, DecodingConfig(beam_size=beam), [3], n_best=beam)
    assert [each.tokens for each in result] == [(3, 3, 3 + rank) for rank in range(beam)]
    results = run_search(SearchBatch(table, [[0]], DecodingConfig(beam_size=beam), [3], END, PAD))
    assert results[0].margin == 0.0


def test_margin_is_the_distance_to_another_answer() -> None:
    """Changing the logit of one token by more than the margin changes the greedy output; a smaller change does not."""

    class Nudged(TableGenerator):
        nudge = 0.0

        def logits(self, key: int, history: tuple[int, ...]) -> Doubles:
            logits_V = super().logits(key, history)
            if len(history) == 1:
                second = int(np.argsort(-logits_V[END:])[1]) + END
                logits_V[second] += self.nudge
            return logits_V

    for key in range(20):
        table = Nudged(vocab_size=7, scale=2.0)
        src_NS = [[key]]
        settings = DecodingConfig(beam_size=1)
        [baseline] = run_search(SearchBatch(table, src_NS, settings, [1], END, PAD))
        for share, is_same in ((0.99, True), (1.01, False)):
            table.nudge = baseline.margin * share
            [nudged] = search(SearchBatch(table, src_NS, settings, [1], END, PAD))
            assert (nudged[0].tokens == baseline.hypotheses[0].tokens) is is_same


def test_more_hypotheses_than_the_beam_are_refused() -> None:
    with pytest.raises(DecodingError, match=r"at most decoding\.beam_size=2, found 3"):
        run(TableGenerator(7), DecodingConfig(beam_size=2), [5], n_best=3)


class Notes:
    """Observer that stores the candidates."""

    def __init__(self) -> None:
        self.trees: dict[int, list[Candidate]] = defaultdict(list)

    def observe(self, candidate: Candidate, /) -> None:
        self.trees[candidate.sentence].append(candidate)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
def test_observer_sees_a_tree_that_explains_the_result(beam: int, stop: Stop) -> None:
    table, notes = TableGenerator(vocab_size=11, end_bonus=1.0), Notes()
    settings = DecodingConfig(beam_size=beam, stopping_rule=stop)
    limits = [2, 3, 5, 7, 11, 13]
    results = search(SearchBatch(table, keys(6), settings, limits, END, PAD, beam, notes))
    assert results == run(table, settings, limits, n_best=beam), "watching changed the result"
    for sentence, result in enumerate(results):
        nodes = {each.node: each for each in notes.trees[sentence]}
        assert len(nodes) == len(notes.trees[sentence])
        outputs = {}
        for each in nodes.values():
            path = _path(each, nodes)
            assert [node.position for node in path] == list(range(len(path)))
            assert all(node.outcome == "kept" for node in path[:-1])
            assert sum(node.log_prob for node in path) == pytest.approx(each.total)
            assert (each.token == END) == (each.outcome in ("finished", "end_outside_beam"))
            if each.outcome in ("finished", "length"):
                outputs[tuple(node.token for node in path if node.token != END)] = each.score
        assert all(outputs[each.tokens] == each.score for each in result)
        assert max(outputs.values()) == result[0].score
        for position in range(max(node.position for node in nodes.values())):
            assert 1 <= sum(node.outcome == "kept" for node in nodes.values() if node.position == position) <= beam


@pytest.mark.parametrize("phrases", [(), ((5, 9),)])
def test_an_observer_sees_prefixes_and_banks_too(phrases: tuple[tuple[int, ...], ...]) -> None:
    table, notes = TableGenerator(vocab_size=11, end_bonus=1.0), Notes()
    constraints = [Constraints((7, 4), LexicalConstraints(phrases))] * 3
    results = search(SearchBatch(table, keys(3), DecodingConfig(beam_size=3), [9] * 3, END, PAD, 3, notes, constraints))
    for sentence, result in enumerate(results):
        nodes = {each.node: each for each in notes.trees[sentence]}
        assert len(nodes) == len(notes.trees[sentence])
        outputs = {}
        for each in nodes.values():
            path = _path(each, nodes)
            assert [node.position for node in path] == list(range(len(path)))
            assert sum(node.log_prob for node in path) == pytest.approx(each.total)
            if each.outcome in ("finished", "length"):
                outputs[tuple(node.token for node in path if node.token != END)] = each.score
        assert all(outputs[each.tokens] == pytest.approx(each.score) for each in result)
        assert all(each.tokens[:2] == (7, 4) for each in result)


def _path(node: Candidate, nodes: dict[int, Candidate]) -> list[Candidate]:
    """Return the tokens from the first one to this one."""
    before = [] if node.parent == ROOT else _path(nodes[node.parent], nodes)
    return [*before, node]
