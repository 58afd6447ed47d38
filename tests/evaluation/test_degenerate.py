"""Degenerate outputs: repetition loops and untranslated copies."""

import pytest

from clearhead.evaluation.metrics import OutputCounts, count_outputs, has_loop, is_copy


@pytest.mark.parametrize(
    ("text", "is_loop"),
    [
        ("na na na na", True),
        ("it is the end of the end of the end of the end of", True),
        ("kamamamamama", True),
        ("well , , , , , , .", True),
        ("one, two, one, two, one, two.", False),  # three times
        ("hahaha", False),
        ("--------", True),
        ("1,000,000,000", False),
        ("", False),
        ("的的的的的的的的", True),
        ("A plain sentence about a plain thing, and no more than that.", False),
    ],
)
def test_a_unit_four_times_in_a_row_is_a_loop(text: str, is_loop: bool) -> None:
    assert has_loop(text) is is_loop


@pytest.mark.parametrize(
    ("output", "source", "expected"),
    [
        ("the old house", "the  old house ", True),
        ("New York", "New York", False),  # two words
        ("the old horse", "the old house", False),
        ("これは翻訳されていない長い日本語の文章です", "これは翻訳されていない長い日本語の文章です", True),
    ],
)
def test_copy_of_a_source_of_several_words(output: str, source: str, expected: bool) -> None:
    assert is_copy(output, source) is expected


def test_loops_and_copies_in_the_reference_are_not_counted() -> None:
    sources = ["a b c", "d e f", "la la la la", "x y z"]
    references = ["a b c", "D E F", "la la la la", "X Y Z"]
    outputs = ["a b c", "d e f", "la la la la", "z z z z z"]
    counts = count_outputs(outputs, references, sources)
    assert counts == OutputCounts(examples=4, loops=1, copies=1)
    assert str(counts) == "repetition loops 1 of 4\nuntranslated copies 1 of 4"
    assert counts.summary == "1 repetition loop, 1 untranslated copy"
    assert count_outputs(outputs, references) == OutputCounts(4, 1, None)
