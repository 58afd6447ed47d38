"""Translations at the limits of search: alternatives at the last positions, constraints that are already satisfied."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.data.readers.pairs import Pair
from clearhead.errors import DecodingError
from clearhead.tasks.lexical_constraints import contains_word
from tests.trained_model import Trained

LINES = ["The dog sees the cat.", "", "A child laughs."]


@pytest.fixture(scope="module")
def model(trained: Trained) -> clearhead.Model:
    return clearhead.load(trained.folder)


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_alternatives_up_to_the_last_position(model: clearhead.Model, limit: int) -> None:
    """Tokens that fill the limit are returned without an error about a prefix."""
    overrides: dict[str, Any] = {"max_length": str(limit), "min_length": limit}
    best = model.translate(LINES[0], **overrides)
    assert len(best.tokens) == limit and best.finish_reason == "length"
    results = model.alternatives(LINES[0], limit - 1, 3, **overrides)
    assert [len(result.tokens) for result in results] == [limit] * 3
    assert {result.tokens[:-1] for result in results} == {best.tokens[:-1]} and len(
        {result.tokens for result in results}
    ) == 3
    with pytest.raises(
        DecodingError, match=rf"of 0 to {limit - 1}, found {limit}; .* has {limit} tokens and may have {limit}"
    ):
        model.alternatives(LINES[0], limit, 3, **overrides)


def test_alternatives_without_room_for_a_word_are_returned(model: clearhead.Model) -> None:
    plain = model.translate(LINES[0], min_length=6, max_length="6")
    word = next(result for result in ("Katze", "Hund", "Kind") if not contains_word(plain.text, result))
    results = model.alternatives(LINES[0], 4, 3, max_length="6", min_length=6, include=[word])
    assert len(results) == 3
    assert all((result.unmet_constraints == ()) is contains_word(result.text, word) for result in results)


def test_an_output_that_satisfies_its_constraints_is_not_changed(model: clearhead.Model) -> None:
    """The model is hardly trained, so searches with more beams find shorter outputs."""
    lines = [f"The {noun} {verb}." for noun in ("dog", "cat", "child", "king") for verb in ("sleeps", "sees the cat")]
    plain = model.translate_many(lines)
    having = [result for result in plain if contains_word(result.text, ".") and result.finish_reason == "end"]
    assert having, "the test needs an output with the word"
    for n_best in (1, 2):
        results = [results[0] for results in model.translate_n_best(lines, n_best, model.decoding(include=["."]))]
        assert all(result.unmet_constraints == () for result in results)
        assert all(other.text == result.text for result, other in zip(plain, results, strict=True) if result in having)
    assert [model.translate(line, include=["."]).text for line in lines] == [result.text for result in results]


def test_errors_name_the_line(model: clearhead.Model) -> None:
    """Empty lines are counted too."""
    with pytest.raises(DecodingError, match=r"^line 3 may have an output of"):
        model.translate_many(["", *LINES[1:]], min_length=900)


@given(st.integers(0, 3), st.integers(1, 4), st.sampled_from([LINES[0], LINES[2]]))
@settings(max_examples=8, deadline=None)
def test_alternatives_do_not_depend_on_their_number(
    model: clearhead.Model, position: int, count: int, line: str
) -> None:
    """Each has the same continuation, whatever the number of alternatives."""
    most = model.alternatives(line, position, 4)
    results = model.alternatives(line, position, count)
    assert [result.tokens for result in results] == [result.tokens for result in most[:count]]
    assert [result.score for result in results] == pytest.approx([result.score for result in most[:count]], abs=1e-4)


@given(st.permutations(range(9)), st.integers(1, 9))
@settings(max_examples=8, deadline=None)
def test_scores_do_not_depend_on_the_batch(
    trained: Trained, model: clearhead.Model, order: list[int], count: int
) -> None:
    """Other pairs and their padding do not change the probability of a target."""
    rows = [line.split("\t") for line in trained.test.read_text().splitlines()[:9]]
    pairs = [Pair(source, target, number) for number, (source, target, *_) in enumerate(rows, 1)]
    results = model.score([pairs[index] for index in order[:count]])
    for index, scored in zip(order, results, strict=False):
        [alone] = model.score([pairs[index]])
        assert scored.tokens == alone.tokens
        assert scored.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-4)
        assert scored.score == pytest.approx(alone.score, abs=1e-4)
