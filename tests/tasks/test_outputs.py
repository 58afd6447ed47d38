"""What a user gets of search near its limits: alternatives at the last places, words that come by themselves, lines."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.data.readers.pairs import Pair
from clearhead.errors import DecodingError
from clearhead.tasks.lexical_constraints import contains_word
from tests.whole import Trained

LINES = ["The dog sees the cat.", "", "A child laughs."]


@pytest.fixture(scope="module")
def model(trained: Trained) -> clearhead.Model:
    return clearhead.load(trained.folder)


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_alternatives_up_to_the_last_place(model: clearhead.Model, limit: int) -> None:
    """Pieces that fill the limit are given as they are; no error speaks of a prefix that nobody gave."""
    asked: dict[str, Any] = {"max_length": str(limit), "min_length": limit}
    best = model.translate(LINES[0], **asked)
    assert len(best.tokens) == limit and best.finish_reason == "length"
    found = model.alternatives(LINES[0], limit - 1, 3, **asked)
    assert [len(one.tokens) for one in found] == [limit] * 3
    assert {one.tokens[:-1] for one in found} == {best.tokens[:-1]} and len({one.tokens for one in found}) == 3
    with pytest.raises(DecodingError, match=rf"has {limit} tokens and may have {limit}; .* 0 to {limit - 1}, not"):
        model.alternatives(LINES[0], limit, 3, **asked)


def test_alternatives_without_room_for_a_word_are_given_as_they_are(model: clearhead.Model) -> None:
    plain = model.translate(LINES[0], min_length=6, max_length="6")
    word = next(one for one in ("Katze", "Hund", "Kind") if not contains_word(plain.text, one))
    found = model.alternatives(LINES[0], 4, 3, max_length="6", min_length=6, include=[word])
    assert len(found) == 3
    assert all((one.unmet_constraints == ()) is contains_word(one.text, word) for one in found)


def test_what_plain_search_writes_is_kept(model: clearhead.Model) -> None:
    """Of a model that has hardly learned, in which wider search finds shorter outputs."""
    lines = [f"The {noun} {verb}." for noun in ("dog", "cat", "child", "king") for verb in ("sleeps", "sees the cat")]
    plain = model.translate_many(lines)
    having = [one for one in plain if contains_word(one.text, ".") and one.finish_reason == "end"]
    assert having, "this shows nothing"
    for n_best in (1, 2):
        found = [found[0] for found in model.translate_n_best(lines, n_best, model.decoding(include=["."]))]
        assert all(one.unmet_constraints == () for one in found)
        assert all(other.text == one.text for one, other in zip(plain, found, strict=True) if one in having)
    assert [model.translate(line, include=["."]).text for line in lines] == [one.text for one in found]


def test_errors_name_the_line(model: clearhead.Model) -> None:
    """Not the number among those that are not empty."""
    with pytest.raises(DecodingError, match=r"^line 3 may have an output of"):
        model.translate_many(["", *LINES[1:]], min_length=900)


@given(st.integers(0, 3), st.integers(1, 4), st.sampled_from([LINES[0], LINES[2]]))
@settings(max_examples=8, deadline=None)
def test_alternatives_in_any_company(model: clearhead.Model, place: int, count: int, line: str) -> None:
    """Each goes on in the same way however many others do."""
    most = model.alternatives(line, place, 4)
    found = model.alternatives(line, place, count)
    assert [one.tokens for one in found] == [one.tokens for one in most[:count]]
    assert [one.score for one in found] == pytest.approx([one.score for one in most[:count]], abs=1e-4)


@given(st.permutations(range(9)), st.integers(1, 9))
@settings(max_examples=8, deadline=None)
def test_scores_in_any_company(trained: Trained, model: clearhead.Model, order: list[int], count: int) -> None:
    """Other pairs and their padding change nothing of how probable a target is."""
    rows = [line.split("\t") for line in trained.test.read_text().splitlines()[:9]]
    pairs = [Pair(source, target, number) for number, (source, target, *_) in enumerate(rows, 1)]
    found = model.score([pairs[index] for index in order[:count]])
    for index, scored in zip(order, found, strict=False):
        [alone] = model.score([pairs[index]])
        assert scored.tokens == alone.tokens
        assert scored.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-4)
        assert scored.score == pytest.approx(alone.score, abs=1e-4)
