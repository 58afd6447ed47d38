"""The choices of one step: candidates against a full sort, fates and margins against cases worked out by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Phrases
from clearhead.decoding.beams import decide
from clearhead.decoding.candidates import Candidates, allowed_log_probs, best_candidates
from clearhead.decoding.search import Constraints, Job, find, search
from tests.decoding.table import END, PAD, TableGenerator

INF = float("inf")


@pytest.mark.parametrize("vocab_size", [7, 127, 128, 131, 257, 1009])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("distinct", [0, 2])
def test_candidates_are_the_first_of_a_full_sort(vocab_size: int, width: int, distinct: int) -> None:
    """Also where many are equal, and wherever in the vocabulary they stand."""
    logits_RV = torch.randn(5 * width, vocab_size)
    if distinct:
        logits_RV = (logits_RV * distinct).round() / distinct
    logits_RV[torch.arange(5) * width, -torch.arange(1, 6)] = 9.0
    given_RV = logits_RV.clone()
    totals_NW = np.where(np.arange(width) == 2, -INF, -np.arange(width) / 2) * np.ones((5, 1))
    banned, num_best = {0, 4}, 2 * width + 1
    found = best_candidates(allowed_log_probs(given_RV, banned), totals_NW, num_best)
    strided_RV = torch.stack((logits_RV, logits_RV), 1)[:, -1]
    assert torch.equal(allowed_log_probs(strided_RV, banned), given_RV)

    log_probs = logits_RV.log_softmax(-1).numpy().astype(np.float64).reshape(5, width, vocab_size)
    totals = log_probs + totals_NW[:, :, None]
    totals[:, :, [*banned]] = -INF
    flat = np.argsort(-totals.reshape(5, -1), 1, kind="stable")[:, : num_best - 1]
    possible = np.take_along_axis(totals.reshape(5, -1), flat, 1) > -INF
    assert (found.parents_NK[:, :-1] * vocab_size + found.tokens_NK[:, :-1])[possible].tolist() == flat[
        possible
    ].tolist()
    np.testing.assert_allclose(
        found.totals_NK[:, :-1][possible], np.take_along_axis(totals.reshape(5, -1), flat, 1)[possible], atol=1e-6
    )


@pytest.mark.parametrize(
    ("tokens", "totals", "is_last", "finished", "kept", "finish_margin", "keep_margin"),
    [
        # Words only: the third just misses.
        ([5, 6, 7, 8, 9], [-1.0, -2.0, -2.5, -4.0, -5.0], False, [], [0, 1], 3.0, 0.5),
        # An end inside the beam is finished and leaves its place to the third.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -2.75, -4.0, -5.0], False, [1], [0, 2], 0.75, 1.25),
        # An end outside is dropped; it is further from the edge than the next word from being kept.
        ([5, 6, 7, END, 9], [-1.0, -2.0, -2.5, -4.0, -5.0], False, [], [0, 1], 2.0, 0.5),
        # At the limit the best two finish as they are.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -2.75, -4.0, -5.0], True, [0, 1], [0, 2], 0.75, 1.25),
        # Too few that are possible: nothing to be close to.
        ([5, END, 7, 8, 9], [-1.0, -2.0, -INF, -INF, -INF], False, [1], [0, 2], INF, INF),
    ],
)
def test_what_becomes_of_candidates(
    tokens: list[int],
    totals: list[float],
    is_last: bool,
    finished: list[int],
    kept: list[int],
    finish_margin: float,
    keep_margin: float,
) -> None:
    zeros = np.zeros((1, 5))
    found = Candidates(np.array([totals]), zeros, zeros.astype(np.int64), np.array([tokens]))
    decision = decide(found, END, np.array([is_last]), 2)
    assert np.flatnonzero(decision.finished_NK[0]).tolist() == finished
    assert decision.kept_NW[0].tolist() == kept
    assert (decision.finish_margin_N[0], decision.keep_margin_N[0]) == (finish_margin, keep_margin)


class Scripted(TableGenerator):
    """The same probabilities for every sentence, by place. What is given to padding is never written."""

    def __init__(self, script: list[dict[int, float]]) -> None:
        super().__init__(vocab_size=7)
        self.script = script

    def logits(self, key: int, history: tuple[int, ...]) -> Tensor:
        probabilities = torch.full((self.vocab_size,), 1e-9)
        for token, probability in self.script[min(len(history), len(self.script)) - 1].items():
            probabilities[token] = probability
        return probabilities.log()


def test_cannot_improve_waits_for_what_length_may_still_win() -> None:
    """Ending at once is likelier; the long way costs a little once and then nothing, so a mean prefers it."""
    generator = Scripted([{END: 0.5, 5: 0.45}, {6: 1.0}, {6: 1.0}, {END: 1.0}])
    for stop, expected in (("beam_finished", ()), ("cannot_improve", (5, 6, 6))):
        settings = DecodingConfig.model_validate({"beam_size": 1, "length_penalty": 1.0, "stopping_rule": stop})
        [[found]] = search(Job(generator, torch.zeros(1, 1, dtype=torch.long), settings, [9], END, PAD))
        assert found.tokens == expected


def test_banks_wait_for_what_says_the_word_in_its_time() -> None:
    """To say 6 at once and end fills the last bank of a greedy search; the likelier way there is longer."""
    generator = Scripted([{5: 0.9, 6: 0.1}, {4: 0.4, END: 0.6}, {6: 1.0}, {END: 1.0}])
    src_NS, asked = torch.zeros(1, 1, dtype=torch.long), [Constraints(phrases=Phrases(((6,),)))]
    [[found]] = search(Job(generator, src_NS, DecodingConfig(beam_size=1), [9], END, PAD, 1, None, asked))
    assert found.tokens == (5, 4, 6)


def test_the_margin_of_a_sentence_is_that_of_its_closest_choice() -> None:
    """The second and third word of the first place are nearly alike; everything else is plain."""
    generator = Scripted([{4: 0.5, 5: 0.2, 6: 0.2 * np.exp(-0.001)}, {END: 1.0}])
    src_NS = torch.zeros(1, 1, dtype=torch.long)
    [found] = find(Job(generator, src_NS, DecodingConfig(beam_size=2), [9], END, PAD))
    assert found.margin == pytest.approx(0.001, abs=1e-5)
    [greedy] = find(Job(generator, src_NS, DecodingConfig(beam_size=1), [9], END, PAD))
    assert greedy.margin == pytest.approx(np.log(0.5 / 0.2), abs=1e-5)


@pytest.mark.parametrize("gap", [0.05, 0.001, -0.001])
def test_the_margin_of_the_stop_rule(gap: float) -> None:
    """Greedy, by mean: what goes on could reach `gap` more or less at the limit than the end that was written first."""
    end, limit = 0.5, 2
    word = float(np.exp(limit * (np.log(end) + gap)))  # log(word) / limit is log(end) + gap
    generator = Scripted([{END: end, 5: word, PAD: 1 - end - word}, {5: 0.6, 6: 0.3, END: 0.1}])
    settings = DecodingConfig(beam_size=1, length_penalty=1.0, stopping_rule="cannot_improve")
    [found] = find(Job(generator, torch.zeros(1, 1, dtype=torch.long), settings, [limit], END, PAD))
    assert found.margin == pytest.approx(abs(gap), rel=0.05)
