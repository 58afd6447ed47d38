"""Constraints from text to tokens: every way to write a word, what is refused, and what is reported unmet."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import DecodingConfig, TokenizerConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import ClearheadError, ConfigError
from clearhead.tasks.lexical_constraints import _phrases, constraints_of, contains, spelling, unmet
from tests.decoding.table import TableGenerator

TEXTS = ["Der Hund sieht die Hunde.", "Die Hündin, der Hund und das Hundehaus.", "Der alte Mann schläft."] * 9


def tokenizer_of(kind: str) -> Tokenizer:
    """Learned on a few sentences; with bytes, a word can be written in very many ways."""
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
def test_a_word_stands_on_its_own(text: str, word: str, expected: bool) -> None:
    assert contains(text, word) is expected


pieces = st.integers(4, BPE.vocab_size - 1)
written = st.sampled_from(["Der Hund", "die Hunde.", "„Hund", "Hündin", "Hu", " H", "Hundehaus und", ""])


@given(written, st.lists(pieces, max_size=3), st.sampled_from(["Hund", "Hündin", "alte Mann", "."]), pieces)
@settings(max_examples=300, deadline=None)
def test_exactly_what_completes_a_word_is_banned(start: str, more: list[int], word: str, token: int) -> None:
    """By what the pieces spell; also bytes, of which a letter may need two."""
    tokens = [*BPE.encode(start).ids, *more]
    surfaces = b"".join(BPE.surface(each) for each in tokens)
    after = surfaces + BPE.surface(token)
    try:
        before_text, text = surfaces.decode(), after.decode()
    except UnicodeDecodeError:
        return  # half a character is neither a letter nor none
    new = text[len(before_text) :]
    ends = [end for end in range(1, len(text) + 1) if text[:end].endswith(word) and end > len(text) - len(new)]
    completes = any(
        contains(text[:end], word) and _is_last(text[:end], word) for end in ends if _closes(text, end, word)
    )
    assert (token in spelling(BPE, word).completing_tokens(tokens)) == completes


def _is_last(text: str, word: str) -> bool:
    """Whether the word at the very end stands on its own to the left."""
    before = text[: -len(word)]
    return not before or not word[0].isalnum() or not before[-1].isalnum()


def _closes(text: str, end: int, word: str) -> bool:
    """Whether it ends with the text, or before something that is no letter."""
    return end == len(text) or not word[-1].isalnum() or not text[end].isalnum()


def test_every_way_to_cut_an_excluded_word_is_banned() -> None:
    """As one piece, as bytes, and letter by letter behind a piece that holds its beginning."""
    asked = constraints_of(DecodingConfig(exclude=("Hund",)), BPE)
    assert asked is not None
    [word] = asked.exclude
    byte = {value: BPE.piece_id(f"<0x{value:02X}>") for value in b"Hund "}
    assert byte[ord("d")] in word.completing_tokens([byte[ord(" ")], byte[ord("H")], byte[ord("u")], byte[ord("n")]])  # type: ignore[list-item]
    whole = BPE.encode("Hund").ids
    assert whole[-1] in word.completing_tokens(whole[:-1])
    assert byte[ord("d")] not in word.completing_tokens(BPE.encode("un").ids)


def test_phrases_are_the_pieces_of_their_words() -> None:
    asked = constraints_of(DecodingConfig(prefix="Der", include=("alte Mann", "Mann", "Hund")), BPE)
    assert asked is not None
    assert asked.prefix == tuple(BPE.encode("Der").ids)
    expected = {tuple(BPE.encode(word).ids) for word in ("alte Mann", "Hund")}
    assert {*asked.include.phrases} == expected, "what is inside another comes with it"
    joining = asked.include.joining
    assert BPE.encode("Hund").ids[0] not in joining
    assert BPE.piece_id("e") in joining and BPE.piece_id(".") not in joining
    assert constraints_of(DecodingConfig(), BPE) is None


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
def test_a_phrase_counts_wherever_its_word_stands(tokenizer: Tokenizer, word: str, text: str, expected: bool) -> None:
    """However it is cut into pieces, as the text says; also where the first or the last letters are a part of more."""
    phrases = _phrases(DecodingConfig(include=(word,)), tokenizer)
    ids = tokenizer.encode(text).ids
    assert (phrases.bank(ids) == phrases.num_tokens) is expected
    assert (phrases.needed(ids) == 0) is expected
    assert contains(tokenizer.decode(ids), word) is expected


@given(st.lists(pieces, max_size=9), st.sampled_from(["Hund", "die", ".", "alte Mann", "ie"]))
@settings(max_examples=200, deadline=None)
def test_pieces_in_any_order_have_a_phrase_as_their_text_does(ids: list[int], word: str) -> None:
    try:
        text = b"".join(BPE.surface(each) for each in ids).decode()
    except UnicodeDecodeError:
        return
    phrases = _phrases(DecodingConfig(include=(word,)), BPE)
    assert (phrases.bank(ids) == phrases.num_tokens) is contains(text, word)


def test_a_full_stop_needs_no_space_before_it() -> None:
    phrases = _phrases(DecodingConfig(include=(".", "Hund")), BPE)
    assert [b"".join(map(BPE.surface, ids)) for ids in phrases.phrases] == [b".", b" Hund"]


def test_words_without_a_space_of_their_own_need_one_between_them() -> None:
    """Letters in a row make one word: room for what parts them is counted, and is left where it is scarce."""
    phrases = _phrases(DecodingConfig(include=("er", "sie")), CHAR)
    assert phrases.needed([]) == len("er sie")
    assert phrases.needed(CHAR.encode("er").ids) == len(" sie")
    assert phrases.needed(CHAR.encode("er s").ids[:3]) == len("sie")
    assert phrases.needed(CHAR.encode("ersi").ids) == len(" er sie")
    assert phrases.needed(CHAR.encode("er si").ids) == len("e")


@pytest.mark.parametrize("limit", [6, 7, 11])
def test_words_of_letters_are_written_by_narrow_beams(limit: int) -> None:
    table, asked = TableGenerator(CHAR.vocab_size), constraints_of(DecodingConfig(include=("er", "sie")), CHAR)
    assert asked is not None
    found = search(SearchBatch(
        table, [[key] for key in range(5)], DecodingConfig(beam_size=2), [limit] * 5, CHAR.eos_id, CHAR.pad_id, 1, None,
        [asked] * 5,
    ))  # fmt: skip
    for [best] in found:
        assert contains(CHAR.decode(best.tokens), "er") and contains(CHAR.decode(best.tokens), "sie")


@pytest.mark.parametrize(
    ("tokenizer", "change", "message"),
    [
        (WORD, {"prefix": "Der Igel"}, "decoding.prefix='Der Igel' cannot be written with the pieces"),
        (WORD, {"include": "Igel"}, "decoding.include='Igel' cannot be written"),
        (CHAR, {"exclude": "x@"}, "decoding.exclude='x@' cannot be written"),
        (BPE, {"include": "der Hund", "exclude": "Hund"}, "decoding.exclude='Hund' contradicts decoding.include"),
        (CHAR, {"include": "Hunde", "exclude": "Hund"}, "contradicts decoding.include='Hunde', which begins a word"),
        (BPE, {"prefix": "Der Hund sieht", "exclude": "Hund"}, "contradicts decoding.prefix='Der Hund sieht'"),
        (BPE, {"include": "Hund Hund Hund", "no_repeat_ngram_size": 1}, "has the same 1 pieces in a row twice"),
        (BPE, {"include": " "}, "expected words, got an empty one"),
        (BPE, {"beam_groups": 3}, "beam_groups=3 does not divide beam_size=4; try 2 or 4"),
        (BPE, {"beam_size": 0}, "decoding.beam_size=0"),
        (BPE, {"beam_groups": 2, "include": "Hund"}, "include works with neither beam_groups nor sampling"),
        (BPE, {"method": "sample", "include": "Hund"}, "unset method=sample"),
        (BPE, {"min_length": 9, "max_length": "8"}, "min_length=9 is more than max_length=8"),
        (BPE, {"method": "sample", "beam_groups": 2}, "beam_groups has no meaning with method=sample"),
    ],
)
def test_what_cannot_be_met_is_refused(tokenizer: Tokenizer, change: dict[str, Any], message: str) -> None:
    from clearhead.config import parse

    with pytest.raises(ClearheadError) as caught:
        constraints_of(parse({"decoding": change}).decoding, tokenizer)
    assert message in str(caught.value)
    assert isinstance(caught.value, ConfigError) or "decoding." in str(caught.value)


def test_what_is_unmet_is_named() -> None:
    decoding = DecodingConfig(prefix="Der", include=("Hund", "Mann"), exclude=("die", "Katze"))
    assert unmet(decoding, BPE, "Der Hund und der Mann.") == ()
    assert unmet(decoding, BPE, "Der Hund und die Hunde.") == ("Mann", "die")
    assert unmet(decoding, BPE, "Ein Hundehaus.") == ("Der", "Hund", "Mann")
    assert unmet(DecodingConfig(), BPE, "") == ()
