"""Lexical constraints from text to tokens: all segmentations of a word, refused and unmet constraints."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import DecodingConfig, TokenizerConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import ClearheadError, ConfigError
from clearhead.tasks.lexical_constraints import (
    _included_phrases,
    build_automaton,
    contains_word,
    find_unmet_constraints,
    resolve_constraints,
)
from tests.decoding.table import TableGenerator

TEXTS = ["Der Hund sieht die Hunde.", "Die Hündin, der Hund und das Hundehaus.", "Der alte Mann schläft."] * 9


def tokenizer_of(kind: str) -> Tokenizer:
    """Return a tokenizer of a few sentences; with byte tokens, a word has very many segmentations."""
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 400 if kind in ("bpe", "unigram") else 60})
    return Tokenizer.train(TEXTS, config)


BPE, CHAR, WORD = (tokenizer_of(kind) for kind in ("bpe", "char", "word"))


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("Der Hund.", "Hund", True), ("Die Hunde.", "Hund", False), ("Hund", "Hund", True), ("„Hund“", "Hund", True),
        ("Schäferhund", "hund", False), ("der alte Mann", "alte Mann", True), ("Hunde Hund", "Hund", True),
        ("nein!", "!", True), ("so-so", "so", True), ("hund", "Hund", False),
    ],
)  # fmt: skip
def test_a_word_is_found_between_boundaries(text: str, word: str, expected: bool) -> None:
    assert contains_word(text, word) is expected


tokens_ = st.integers(4, BPE.vocab_size - 1)
beginnings = st.sampled_from(["Der Hund", "die Hunde.", "„Hund", "Hündin", "Hu", " H", "Hundehaus und", ""])


@given(beginnings, st.lists(tokens_, max_size=3), st.sampled_from(["Hund", "Hündin", "alte Mann", "."]), tokens_)
@settings(max_examples=300, deadline=None)
def test_exactly_the_completing_tokens_are_banned(start: str, more: list[int], word: str, token: int) -> None:
    """Compare with the text of the tokens, including byte tokens, of which a letter may need two."""
    tokens = [*BPE.encode(start).ids, *more]
    surfaces = b"".join(BPE.token_bytes(each) for each in tokens)
    after = surfaces + BPE.token_bytes(token)
    try:
        before_text, text = surfaces.decode(), after.decode()
    except UnicodeDecodeError:
        return  # an incomplete character is neither a letter nor a boundary
    new = text[len(before_text) :]
    ends = [end for end in range(1, len(text) + 1) if text[:end].endswith(word) and end > len(text) - len(new)]
    completes = any(
        contains_word(text[:end], word) and _is_last(text[:end], word) for end in ends if _closes(text, end, word)
    )
    assert (token in build_automaton(BPE, word).completing_tokens(tokens)) == completes


def _is_last(text: str, word: str) -> bool:
    """Return whether the word at the end of the text has a boundary before it."""
    before = text[: -len(word)]
    return not before or not word[0].isalnum() or not before[-1].isalnum()


def _closes(text: str, end: int, word: str) -> bool:
    """Return whether the word ends with the text, or before a character that is not a letter."""
    return end == len(text) or not word[-1].isalnum() or not text[end].isalnum()


def test_every_segmentation_of_an_excluded_word_is_banned() -> None:
    """The word may be one token, bytes, or letters after a token that contains its beginning."""
    constraints = resolve_constraints(DecodingConfig(exclude=("Hund",)), BPE)
    assert constraints is not None
    [word] = constraints.exclude
    byte = {value: BPE.token_id(f"<0x{value:02X}>") for value in b"Hund "}
    assert byte[ord("d")] in word.completing_tokens([byte[ord(" ")], byte[ord("H")], byte[ord("u")], byte[ord("n")]])  # type: ignore[list-item]
    whole = BPE.encode("Hund").ids
    assert whole[-1] in word.completing_tokens(whole[:-1])
    assert byte[ord("d")] not in word.completing_tokens(BPE.encode("un").ids)


def test_phrases_are_the_tokens_of_their_words() -> None:
    constraints = resolve_constraints(DecodingConfig(prefix="Der", include=("alte Mann", "Mann", "Hund")), BPE)
    assert constraints is not None
    assert constraints.prefix == tuple(BPE.encode("Der").ids)
    expected = {tuple(BPE.encode(word).ids) for word in ("alte Mann", "Hund")}
    assert {*constraints.include.phrases} == expected, "a word inside another one is not a separate phrase"
    joining = constraints.include.joining
    assert BPE.encode("Hund").ids[0] not in joining
    assert BPE.token_id("e") in joining and BPE.token_id(".") not in joining
    assert resolve_constraints(DecodingConfig(), BPE) is None


@pytest.mark.parametrize(
    ("tokenizer", "word", "text", "expected"),
    [
        (BPE, ".", "Der Hund.", True), (BPE, "Hund", "(Hund", True), (BPE, "Hund", "Die Hunde.", False),
        (BPE, "Hund", "Die Hunde, der Hund.", True), (BPE, "(Hund", "der (Hund", True),
        (BPE, "alte Mann", "Der alte Mann", True),
        (BPE, "Mann", "der Ma", False), (CHAR, "er", "der", False), (CHAR, "er", "er", True),
        (CHAR, "er", "der er.", True),
        (CHAR, "er", "erst", False), (CHAR, ".", "der.", True), (WORD, "Hund", "Der Hund.", True),
    ],
)  # fmt: skip
def test_a_phrase_is_found_wherever_its_word_occurs(tokenizer: Tokenizer, word: str, text: str, expected: bool) -> None:
    """Tokens match if their text does, even where the first or last letters are part of a larger token."""
    phrases = _included_phrases(DecodingConfig(include=(word,)), tokenizer)
    ids = tokenizer.encode(text).ids
    assert (phrases.bank(ids) == phrases.num_tokens) is expected
    assert (phrases.needed(ids) == 0) is expected
    assert contains_word(tokenizer.decode(ids), word) is expected


@given(st.lists(tokens_, max_size=9), st.sampled_from(["Hund", "die", ".", "alte Mann", "ie"]))
@settings(max_examples=200, deadline=None)
def test_random_tokens_contain_a_phrase_if_their_text_does(ids: list[int], word: str) -> None:
    try:
        text = b"".join(BPE.token_bytes(each) for each in ids).decode()
    except UnicodeDecodeError:
        return
    phrases = _included_phrases(DecodingConfig(include=(word,)), BPE)
    assert (phrases.bank(ids) == phrases.num_tokens) is contains_word(text, word)


def test_a_full_stop_needs_no_space_before_it() -> None:
    phrases = _included_phrases(DecodingConfig(include=(".", "Hund")), BPE)
    assert [b"".join(map(BPE.token_bytes, ids)) for ids in phrases.phrases] == [b".", b" Hund"]


def test_words_without_a_leading_space_need_one_between_them() -> None:
    """Adjacent letters form one word, so the count of needed tokens includes a separator."""
    phrases = _included_phrases(DecodingConfig(include=("er", "sie")), CHAR)
    assert phrases.needed([]) == len("er sie")
    assert phrases.needed(CHAR.encode("er").ids) == len(" sie")
    assert phrases.needed(CHAR.encode("er s").ids[:3]) == len("sie")
    assert phrases.needed(CHAR.encode("ersi").ids) == len(" er sie")
    assert phrases.needed(CHAR.encode("er si").ids) == len("e")


@pytest.mark.parametrize("limit", [6, 7, 11])
def test_narrow_beams_generate_words_of_letters(limit: int) -> None:
    table, constraints = (
        TableGenerator(CHAR.vocab_size),
        resolve_constraints(DecodingConfig(include=("er", "sie")), CHAR),
    )
    assert constraints is not None
    results = search(SearchBatch(
        table, [[key] for key in range(5)], DecodingConfig(beam_size=2), [limit] * 5, CHAR.eos_id, CHAR.pad_id, 1, None,
        [constraints] * 5,
    ))  # fmt: skip
    for [best] in results:
        assert contains_word(CHAR.decode(best.tokens), "er") and contains_word(CHAR.decode(best.tokens), "sie")


@pytest.mark.parametrize(
    ("tokenizer", "change", "message"),
    [
        (WORD, {"prefix": "Der Igel"}, "decoding.prefix='Der Igel' cannot be generated with the tokens"),
        (WORD, {"include": "Igel"}, "decoding.include='Igel' cannot be generated"),
        (CHAR, {"exclude": "x@"}, "decoding.exclude='x@' cannot be generated"),
        (BPE, {"include": "der Hund", "exclude": "Hund"}, "decoding.exclude='Hund' contradicts decoding.include"),
        (
            CHAR,
            {"include": "Hunde", "exclude": "Hund"},
            "contradicts decoding.include='Hunde', which contains a word that begins with it",
        ),
        (BPE, {"prefix": "Der Hund sieht", "exclude": "Hund"}, "contradicts decoding.prefix='Der Hund sieht'"),
        (BPE, {"include": "Hund Hund Hund", "no_repeat_ngram_size": 1}, "contains the same 1 tokens in a row twice"),
        (BPE, {"include": " "}, "expected words, got an empty one"),
        (BPE, {"beam_groups": 3}, "beam_groups=3 does not divide beam_size=4; try 2 or 4"),
        (BPE, {"beam_size": 0}, "decoding.beam_size=0"),
        (BPE, {"beam_groups": 2, "include": "Hund"}, "include works with neither beam_groups nor sampling"),
        (BPE, {"method": "sample", "include": "Hund"}, "unset method=sample"),
        (BPE, {"min_length": 9, "max_length": "8"}, "min_length=9 is more than max_length=8"),
        (BPE, {"method": "sample", "beam_groups": 2}, "beam_groups has no meaning with method=sample"),
    ],
)
def test_impossible_constraints_are_refused(tokenizer: Tokenizer, change: dict[str, Any], message: str) -> None:
    from clearhead.config import parse

    with pytest.raises(ClearheadError) as caught:
        resolve_constraints(parse({"decoding": change}).decoding, tokenizer)
    assert message in str(caught.value)
    assert isinstance(caught.value, ConfigError) or "decoding." in str(caught.value)


def test_unmet_constraints_are_returned() -> None:
    decoding = DecodingConfig(prefix="Der", include=("Hund", "Mann"), exclude=("die", "Katze"))
    assert find_unmet_constraints(decoding, BPE, "Der Hund und der Mann.") == ()
    assert find_unmet_constraints(decoding, BPE, "Der Hund und die Hunde.") == ("Mann", "die")
    assert find_unmet_constraints(decoding, BPE, "Ein Hundehaus.") == ("Der", "Hund", "Mann")
    assert find_unmet_constraints(DecodingConfig(), BPE, "") == ()
