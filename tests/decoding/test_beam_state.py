"""Decisions of one step, stopping rules and margins, against cases worked out by hand."""

import numpy as np
import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.beam_state import decide
from clearhead.decoding.candidates import Candidates
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import Constraints
from clearhead.decoding.search import run_search, search
from clearhead.decoding.search_batch import SearchBatch
from tests.decoding.table import END, PAD, Doubles, TableGenerator

INF = float("inf")


@pytest.mark.parametrize(
    ("tokens", "totals", "is_last", "finished", "kept", "margin"),
    [
        # No end token: the third candidate is the closest one outside of the beam.
        ([5, 6, 7, 8, 9], [-1.0, -2.0, -2.5, -4.0, -5.0], False, [], [0, 1], 0.5),
        # An end token inside the beam finishes its hypothesis, and the third candidate continues instead.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -2.75, -4.0, -5.0], False, [1], [0, 2], 0.75),
        # An end token outside of the beam is dropped; the third word is the closest one outside of the beam.
        ([5, 6, 7, END, 9], [-1.0, -2.0, -2.5, -4.0, -5.0], False, [], [0, 1], 0.5),
        # At the length limit, the best two candidates finish.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -2.75, -4.0, -5.0], True, [0, 1], [0, 2], 0.75),
        # With fewer possible candidates than hypotheses, the margin is infinite.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -INF, -INF, -INF], False, [1], [0, 2], INF),
    ],
)
def test_outcomes_of_candidates(
    tokens: list[int],
    totals: list[float],
    is_last: bool,
    finished: list[int],
    kept: list[int],
    margin: float,
) -> None:
    zeros = np.zeros((1, 5), np.float32)
    candidates = Candidates(np.array([totals], np.float32), zeros, zeros.astype(np.int64), np.array([tokens]))
    decision = decide(candidates, END, np.array([is_last]), 2)
    assert np.flatnonzero(decision.finished_NK[0]).tolist() == finished
    assert decision.kept_NW[0].tolist() == kept
    assert min(decision.finish_margin_N[0], decision.keep_margin_N[0]) == margin


class Scripted(TableGenerator):
    """Generator with the same probabilities for every sentence, by position. Padding is never generated."""

    def __init__(self, script: list[dict[int, float]]) -> None:
        super().__init__(vocab_size=7)
        self.script = script

    def logits(self, key: int, history: tuple[int, ...]) -> Doubles:
        probabilities = np.full(self.vocab_size, 1e-9)
        for token, probability in self.script[min(len(history), len(self.script)) - 1].items():
            probabilities[token] = probability
        return np.asarray(np.log(probabilities))


def test_cannot_improve_waits_for_what_length_may_still_win() -> None:
    """Ending at once has the higher total, but the longer output has the higher mean log-probability."""
    generator = Scripted([{END: 0.5, 5: 0.45}, {6: 1.0}, {6: 1.0}, {END: 1.0}])
    for stop, expected in (("beam_finished", ()), ("cannot_improve", (5, 6, 6))):
        settings = DecodingConfig.model_validate({"beam_size": 1, "length_penalty": 1.0, "stopping_rule": stop})
        [[actual]] = search(SearchBatch(generator, [[0]], settings, [9], END, PAD))
        assert actual.tokens == expected


def test_banks_wait_for_a_later_but_more_probable_phrase() -> None:
    """Token 6 followed by the end fills the last bank of a greedy search, but a longer output is more probable."""
    generator = Scripted([{5: 0.9, 6: 0.1}, {4: 0.4, END: 0.6}, {6: 1.0}, {END: 1.0}])
    src_NS, constraints = [[0]], [Constraints(include=LexicalConstraints(((6,),)))]
    [[hypothesis]] = search(
        SearchBatch(generator, src_NS, DecodingConfig(beam_size=1), [9], END, PAD, 1, None, constraints)
    )
    assert hypothesis.tokens == (5, 4, 6)


def test_the_margin_of_a_sentence_is_that_of_its_closest_choice() -> None:
    """The second and third token of the first position are almost equally probable; all other margins are large."""
    generator = Scripted([{4: 0.5, 5: 0.2, 6: 0.2 * np.exp(-0.001)}, {END: 1.0}])
    src_NS = [[0]]
    [result] = run_search(SearchBatch(generator, src_NS, DecodingConfig(beam_size=2), [9], END, PAD))
    assert result.margin == pytest.approx(0.001, abs=1e-5)
    [greedy] = run_search(SearchBatch(generator, src_NS, DecodingConfig(beam_size=1), [9], END, PAD))
    assert greedy.margin == pytest.approx(np.log(0.5 / 0.2), abs=1e-5)


@pytest.mark.parametrize("gap", [0.05, 0.001, -0.001])
def test_the_margin_of_the_stop_rule(gap: float) -> None:
    """The unfinished hypothesis of a greedy search could reach a score `gap` above or below the finished one."""
    end, limit = 0.5, 2
    word = float(np.exp(limit * (np.log(end) + gap)))  # log(word) / limit is log(end) + gap
    generator = Scripted([{END: end, 5: word, PAD: 1 - end - word}, {5: 0.6, 6: 0.3, END: 0.1}])
    settings = DecodingConfig(beam_size=1, length_penalty=1.0, stopping_rule="cannot_improve")
    [result] = run_search(SearchBatch(generator, [[0]], settings, [limit], END, PAD))
    assert result.margin == pytest.approx(abs(gap), rel=0.05)


@pytest.mark.parametrize("rule", ["cannot_improve", "no_better_now"])
def test_an_unfinished_hypothesis_that_can_only_equal_the_worst_is_dropped(rule: str) -> None:
    """The end token and the word are equally probable, so the end token is first; the next token is certain."""
    generator = Scripted([{END: 0.25, 5: 0.25, PAD: 0.5}, {6: 1.0}, {END: 1.0}])
    settings = DecodingConfig.model_validate({"beam_size": 1, "length_penalty_form": "none", "stopping_rule": rule})
    [[hypothesis]] = search(SearchBatch(generator, [[0]], settings, [9], END, PAD))
    assert hypothesis.tokens == () and generator.rows_seen == [1]
