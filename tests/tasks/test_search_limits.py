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
    found = model.alternatives(LINES[0], limit - 1, 3, **overrides)
    assert [len(one.tokens) for one in found] == [limit] * 3
    assert {one.tokens[:-1] for one in found} == {best.tokens[:-1]} and len({one.tokens for one in found}) == 3
    with pytest.raises(
        DecodingError, match=rf"of 0 to {limit - 1}, found {limit}; .* has {limit} tokens and may have {limit}"
    ):
        model.alternatives(LINES[0], limit, 3, **overrides)


def test_alternatives_without_room_for_a_word_are_returned(model: clearhead.Model) -> None:
    plain = model.translate(LINES[0], min_length=6, max_length="6")
    word = next(one for one in ("Katze", "Hund", "Kind") if not contains_word(plain.text, one))
    found = model.alternatives(LINES[0], 4, 3, max_length="6", min_length=6, include=[word])
    assert len(found) == 3
    assert all((one.unmet_constraints == ()) is contains_word(one.text, word) for one in found)


def test_an_output_that_satisfies_its_constraints_is_not_changed(model: clearhead.Model) -> None:
    """The model has hardly learned: its wider searches find shorter outputs."""
    lines = [f"The {noun} {verb}." for noun in ("dog", "cat", "child", "king") for verb in ("sleeps", "sees the cat")]
    plain = model.translate_many(lines)
    having = [one for one in plain if contains_word(one.text, ".") and one.finish_reason == "end"]
    assert having, "the test needs an output with the word"
    for n_best in (1, 2):
        found = [found[0] for found in model.translate_n_best(lines, n_best, model.decoding(include=["."]))]
        assert all(one.unmet_constraints == () for one in found)
        assert all(other.text == one.text for one, other in zip(plain, found, strict=True) if one in having)
    assert [model.translate(line, include=["."]).text for line in lines] == [one.text for one in found]


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
    found = model.alternatives(line, position, count)
    assert [one.tokens for one in found] == [one.tokens for one in most[:count]]
    assert [one.score for one in found] == pytest.approx([one.score for one in most[:count]], abs=1e-4)


@given(st.permutations(range(9)), st.integers(1, 9))
@settings(max_examples=8, deadline=None)
def test_scores_do_not_depend_on_the_batch(
    trained: Trained, model: clearhead.Model, order: list[int], count: int
) -> None:
    """Other pairs and their padding do not change the probability of a target."""
    rows = [line.split("\t") for line in trained.test.read_text().splitlines()[:9]]
    pairs = [Pair(source, target, number) for number, (source, target, *_) in enumerate(rows, 1)]
    found = model.score([pairs[index] for index in order[:count]])
    for index, scored in zip(order, found, strict=False):
        [alone] = model.score([pairs[index]])
        assert scored.tokens == alone.tokens
        assert scored.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-4)
        assert scored.score == pytest.approx(alone.score, abs=1e-4)
