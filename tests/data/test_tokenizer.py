"""The tokenizer: exactness, readable tokens, offsets, words, repeatability, and refused input."""

import hashlib
import json
import os
import subprocess
import sys
import unicodedata
from functools import cache
from itertools import pairwise
from typing import Literal, get_args

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clearhead.data.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig
from clearhead.data.tokenizer.word_indices import word_indices
from clearhead.errors import TokenizerError

Kind = Literal["bpe", "unigram", "wordpiece", "word", "char", "pretokenized"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TEXTS = [
    "A small dog runs through the house.",
    "Ein kleiner Hund läuft durch das Haus.",
    "The dogs don't run, they walk (slowly).",
    "Die Hunde laufen nicht; sie gehen: langsam!",
    "In 1985 the house had 27 rooms, a < b and b > c.",
    "Das Haus hatte 1985 Türen & 27 Zimmer. über",
] * 3
TRICKY = [
    "",
    " ",
    "  leading and trailing  ",
    "tab\there\nand\r\nlines",
    "<s> </s> <pad> <unk> <mask>",
    "a<s>b<0x41>c<0xFF>",
    "<0x4",
    "▁ a▁b ▁▁",
    "\\u2581 ▁",
    "## ##s a##b",
    "e\u0301 é ﬁ ①",
    "e\u0301\u0323x \u0301 가각\u11a8 q\u0323\u0307",
    "H\u0331 T\u0308 İ\u0323",
    "👩‍👩‍👧 😀😀 日本語",
    "\x00\x0b\x0c\x1c\x85\u2028\u200b\ufeff",
    "don't ‘quote’ it's '' '",
]
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(
        st.sampled_from([*TRICKY, *SPECIAL_TOKENS, *TEXTS, "<", ">", "0x41", " ", "@@", "Hund", "é"]), max_size=6
    ).map("".join),
)


@cache
def trained(kind: Kind, normalisation: str = "nfc", joiner: str = "", lowercase: bool = False) -> Tokenizer:
    fields = {"kind": kind, "normalization": normalisation, "joiner": joiner, "lowercase": lowercase}
    config = TokenizerConfig.model_validate({**fields, "vocab_size": 449, "special_tokens": ("<mask>",)})
    return Tokenizer.train(TEXTS, config)


@pytest.mark.parametrize("text", TRICKY)
@pytest.mark.parametrize("normalisation", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_tricky_texts_survive_encoding_and_decoding(kind: Kind, normalisation: str, text: str) -> None:
    tokenizer = trained(kind, normalisation)
    assert tokenizer.decode(tokenizer.encode(text).ids) == tokenizer.normalize(text)


@settings(max_examples=300, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(["bpe", "unigram"]), form=st.sampled_from(["nfc", "nfkc", "none"]))
def test_every_text_survives_encoding_and_decoding(text: str, kind: Kind, form: str) -> None:
    tokenizer = trained(kind, form)
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == tokenizer.normalize(text)
    assert tokenizer.unk_id not in ids


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(["wordpiece", "word", "char", "pretokenized"]))
def test_texts_of_known_tokens_survive_encoding_and_decoding(text: str, kind: Kind) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text).ids
    if tokenizer.unk_id not in ids:
        assert tokenizer.decode(ids) == tokenizer.normalize(text)


@pytest.mark.parametrize("kind", ["wordpiece", "char"])
def test_the_training_text_has_no_unknown_tokens(kind: Kind) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode_batch(tokenizer.encode_batch(TEXTS)) == TEXTS


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(KINDS))
def test_text_never_becomes_a_special_token(text: str, kind: Kind) -> None:
    tokenizer = trained(kind)
    assert set(tokenizer.encode(text).ids) & set(tokenizer.special_ids) <= {tokenizer.unk_id}


@pytest.mark.parametrize("kind", KINDS)
def test_special_spellings_learned_from_text_stay_text(kind: Kind) -> None:
    corpus = ["<s> <mask> </s> <0x41> <pad> <unk>", "a<s>b ##a a##b", "▁ ▁a a▁ \\u2581"] * 20
    tokenizer = Tokenizer.train(corpus, TokenizerConfig(kind=kind, vocab_size=400, special_tokens=("<mask>",)))
    assert [tokenizer.token(index) for index in tokenizer.special_ids] == [*SPECIAL_TOKENS, "<mask>"]
    assert len({tokenizer.token(index) for index in range(tokenizer.vocab_size)}) == tokenizer.vocab_size
    for text in corpus[:3]:
        ids = tokenizer.encode(text).ids
        assert set(ids) & set(tokenizer.special_ids) <= {tokenizer.unk_id}
        if kind != "pretokenized":
            assert tokenizer.decode(ids) == text


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT, form=st.sampled_from(["nfc", "nfkc", "none"]), lowercase=st.booleans())
def test_normalization_of_any_text_is_idempotent(text: str, form: str, lowercase: bool) -> None:
    tokenizer = trained("char", form, lowercase=lowercase)
    once = tokenizer.normalize(text)
    assert tokenizer.normalize(once) == once
    assert form != "none" or lowercase or once == text


@pytest.mark.parametrize("text", TRICKY)
@pytest.mark.parametrize("form", ["nfc", "nfkc", "none"])
def test_normalization_of_tricky_texts_is_idempotent(text: str, form: str) -> None:
    tokenizer = trained("char", form, lowercase=True)
    assert tokenizer.normalize(tokenizer.normalize(text)) == tokenizer.normalize(text)


def test_normalization_is_unicode_with_single_spaces() -> None:
    assert trained("bpe").normalize("  e\u0301 \t\u00a0x\n") == unicodedata.normalize("NFC", "e\u0301") + " x"
    assert trained("bpe", "nfkc").normalize("ﬁ①") == "fi1"
    assert trained("bpe", lowercase=True).normalize("ÄB") == "äb"


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_begins_with_special_tokens_and_has_the_maximum_size(kind: Kind) -> None:
    tokenizer = trained(kind)
    assert [tokenizer.token(index) for index in range(5)] == ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert tokenizer.vocab_size <= 449
    displayed = [tokenizer.token(index) for index in range(tokenizer.vocab_size)]
    assert len(set(displayed)) == len(displayed)
    assert [tokenizer.token_id(token) for token in displayed] == list(range(len(displayed)))


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("bpe", ["▁The", "▁house", "<0xE2>", "<0x82>", "<0xAC>", "."]),
        ("unigram", ["▁", "The", "▁house", "<0xE2>", "<0x82>", "<0xAC>", "."]),
        ("wordpiece", ["▁The", "▁house", "<unk>", "."]),
        ("word", ["▁The", "▁house", "<unk>", "."]),
        ("char", [*"The▁house", "<unk>", "."]),
        ("pretokenized", ["The", "<unk>"]),
    ],
)
def test_tokens_are_readable(kind: Kind, tokens: list[str]) -> None:
    corpus = ["The house.", "The house .", "house The ."] * 40
    tokenizer = Tokenizer.train(corpus, TokenizerConfig(kind=kind, vocab_size=299))
    encoding = tokenizer.encode("The  house€.")
    assert "".join(encoding.tokens) == "".join(tokens)
    if kind != "unigram":  # unigram splits where its estimate decides
        assert encoding.tokens == tokens


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(KINDS))
def test_offsets_point_into_the_text_in_order(text: str, kind: Kind) -> None:
    tokenizer = trained(kind)
    encoding = tokenizer.encode(text)
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets)
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert all(left[0] <= right[0] and left[1] <= right[1] for left, right in pairwise(encoding.offsets))
    covered = {position for start, end in encoding.offsets for position in range(start, end)}
    missed = "".join(char for position, char in enumerate(text) if position not in covered)
    assert missed == "" or missed.isspace()


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_match_the_tokens(kind: Kind) -> None:
    text = "  The dogs   run, 1985 \t(slowly)."
    encoding = trained(kind).encode(text)
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        if token not in SPECIAL_TOKENS and not token.startswith("<0x"):
            assert text[start:end] == token.removeprefix("##").lstrip("▁")


def test_offsets_refer_to_the_original_text() -> None:
    encoding = trained("char").encode(" e\u0301😀 dog")
    assert encoding.offsets[0] == (1, 3)
    assert encoding.offsets[-3:] == [(5, 6), (6, 7), (7, 8)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_separate_texts(kind: Kind) -> None:
    tokenizer = trained(kind)
    assert tokenizer.encode_batch([*TEXTS, *TRICKY]) == [tokenizer.encode(text).ids for text in [*TEXTS, *TRICKY]]


def test_decoding_omits_special_tokens_and_invalid_bytes() -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode("the dog").ids
    assert tokenizer.decode([2, *ids[:1], 4, *ids[1:], 3, 0, 0, 1]) == "the dog"
    first_of_two = tokenizer.token_id("<0xC3>")
    assert first_of_two is not None
    assert tokenizer.decode([*ids, first_of_two]) == "the dog\ufffd"


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_decodes_the_same(kind: Kind) -> None:
    tokenizer = trained(kind)
    inner = tokenizers.Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_json())["tokenizer"]))
    known = [[index for index in ids if index not in tokenizer.special_ids] for ids in tokenizer.encode_batch(TEXTS)]
    assert inner.decode_batch(known) == tokenizer.decode_batch(known)


def test_pretokenized_text_is_joined_for_display_only() -> None:
    config = TokenizerConfig(kind="pretokenized", joiner="@@")
    tokenizer = Tokenizer.train(["un@@ related dogs@@ , 1 @ 2"] * 2, config)
    encoding = tokenizer.encode("un@@ related dogs@@ ,")
    assert encoding.tokens == ["un@@", "related", "dogs@@", ","]
    assert tokenizer.decode(encoding.ids) == "unrelated dogs,"
    assert tokenizer.decode_tokens(encoding.ids) == "un@@ related dogs@@ ,"
    assert tokenizer.decode(encoding.ids[:1]) == "un"
    assert tokenizer.word_indices([2, *encoding.ids, 3]) == [-1, 0, 0, 1, 1, -1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A small dog", ["A", "small", "dog"]),
        ("dogs don't run, (1985)...", ["dogs", "don't", "run", ",", "(", "1985", ")", "..."]),
        ("über 日本 हिन्दी!", ["über", "日本", "हिन्दी", "!"]),
        (" ", []),
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_tokens_are_grouped_into_words(kind: Kind, text: str, words: list[str]) -> None:
    tokenizer = Tokenizer.train([text, *TEXTS], TokenizerConfig(kind=kind, vocab_size=400))
    ids = tokenizer.encode(text).ids
    grouped: dict[int, list[int]] = {}
    for index, word in zip(ids, tokenizer.word_indices(ids), strict=True):
        grouped.setdefault(word, []).append(index)
    assert [tokenizer.decode(group).strip() for group in grouped.values()] == words
    assert list(grouped) == list(range(len(words)))


def test_special_tokens_have_no_word_and_unknown_tokens_one_each() -> None:
    tokenizer = trained("word")
    ids = tokenizer.encode("the zebra house").ids
    assert ids[1] == tokenizer.unk_id
    assert tokenizer.word_indices([tokenizer.bos_id, *ids, tokenizer.eos_id]) == [-1, 0, 1, 2, -1]


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT, kind=st.sampled_from(KINDS))
def test_words_count_up_without_gaps(text: str, kind: Kind) -> None:
    tokenizer = trained(kind)
    words = tokenizer.word_indices(tokenizer.encode(text).ids)
    assert words[:1] in ([], [0])
    assert all(right - left in (0, 1) for left, right in pairwise(words))


def test_a_token_of_two_words_belongs_to_the_first() -> None:
    assert word_indices([b" a.", b" ", b"b", b"", "é".encode()[:1], "é".encode()[1:]]) == [0, 1, 1, -1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_loaded_unchanged(kind: Kind) -> None:
    tokenizer = trained(kind)
    loaded = Tokenizer.from_json(tokenizer.to_json())
    assert loaded.to_json() == tokenizer.to_json()
    assert loaded.config == tokenizer.config
    assert loaded.encode_batch(TRICKY) == tokenizer.encode_batch(TRICKY)


_TRAIN_ALL = """
import hashlib, sys
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
texts = sys.stdin.read().splitlines()
for kind in sys.argv[1:]:
    tokenizer = Tokenizer.train(texts, TokenizerConfig(kind=kind, vocab_size=449))
    print(hashlib.sha256(tokenizer.to_json().encode()).hexdigest())
"""


def test_training_is_the_same_in_every_process() -> None:
    words = ["".join(chr(97 + (seed * prime) % 13) for prime in (2, 3, 5, 7)[: 2 + seed % 3]) for seed in range(300)]
    texts = TEXTS + [" ".join(words[start : start + 7]).title() for start in range(0, 290, 3)]
    digests = set()
    for parallelism in ("true", "false", "true"):
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": parallelism, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _TRAIN_ALL, *KINDS]
        done = subprocess.run(
            command, input="\n".join(texts), env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    local_digest = [Tokenizer.train(texts, TokenizerConfig(kind=kind, vocab_size=449)).to_json() for kind in KINDS]
    assert digests == {"".join(hashlib.sha256(state.encode()).hexdigest() + "\n" for state in local_digest)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], [" ", "\t\n"]])
def test_an_empty_corpus_is_refused(kind: Kind, texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match="found none"):
        Tokenizer.train(texts, TokenizerConfig(kind=kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [["a"], ["\x00"], ["日本"], ["a b"] * 2, ["▁"] * 3])
def test_a_tiny_corpus_is_sufficient(kind: Kind, texts: list[str]) -> None:
    tokenizer = Tokenizer.train(iter(texts), TokenizerConfig(kind=kind))
    ids = tokenizer.encode(texts[0]).ids
    assert tokenizer.decode(ids) == texts[0] or tokenizer.unk_id in ids


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_vocabulary_too_small_is_refused_with_its_minimum(kind: Kind) -> None:
    with pytest.raises(TokenizerError, match="at least") as caught:
        Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, vocab_size=37))
    minimum = int(str(caught.value).split("at least ")[1].split()[0])
    assert Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, vocab_size=minimum)).vocab_size == minimum
    with pytest.raises(TokenizerError, match=str(minimum)):
        Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, vocab_size=minimum - 1))


def test_half_a_surrogate_pair_is_refused() -> None:
    for call in (trained("bpe").encode, trained("bpe").normalize, lambda text: trained("bpe").encode_batch([text])):
        with pytest.raises(TokenizerError, match="character 2"):
            call("a\ud800")
    with pytest.raises(TokenizerError, match="surrogate"):
        Tokenizer.train(["a\ud800"], TokenizerConfig())


def _damages() -> dict[str, str]:
    whole = json.loads(trained("bpe").to_json())
    own, inner = whole["clearhead"], whole["tokenizer"]
    added = {"id": 2, "content": "<s>", "special": True, "single_word": False}
    added |= {"lstrip": False, "rstrip": False, "normalized": False}
    vocabulary = dict(inner["model"]["vocab"])
    swapped = vocabulary | {"<pad>": 1, "<unk>": 0}
    variants: dict[str, object] = {
        "no object": [],
        "no settings": {"tokenizer": inner},
        "unknown setting": {**whole, "clearhead": {**own, "config": {**own["config"], "colour": 1}}},
        "version": {**whole, "clearhead": {**own, "version": 99}},
        "added tokens": {**whole, "tokenizer": {**inner, "added_tokens": [added]}},
        "no normalizer": {**whole, "tokenizer": {**inner, "normalizer": None}},
        "no model": {**whole, "tokenizer": {**inner, "model": {"type": "BPE"}}},
        "swapped": {**whole, "tokenizer": {**inner, "model": {**inner["model"], "vocab": swapped}}},
        "other kind": {**whole, "tokenizer": json.loads(trained("word").to_json())["tokenizer"]},
    }
    texts = {name: json.dumps(state) for name, state in variants.items()}
    return texts | {"empty": "", "cut off": trained("bpe").to_json()[:-50], "no JSON": "\x00\x01"}


@pytest.mark.parametrize("name", _damages())
def test_a_damaged_file_is_refused(name: str) -> None:
    with pytest.raises(TokenizerError, match=r"(damaged: .+|format version 99.+); "):
        Tokenizer.from_json(_damages()[name])


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "syllable"},
        {"vocab_size": 4},
        {"colour": 1},
        {"joiner": "@@"},
        {"kind": "pretokenized", "joiner": "@ @"},
        {"special_tokens": ["mask"]},
        {"special_tokens": ["<0x41>"]},
        {"special_tokens": ["<pad>"]},
        {"special_tokens": ["<mask>", "<mask>"]},
        {"min_frequency": 0},
    ],
)
def test_invalid_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TokenizerConfig.model_validate(fields)


def test_every_setting_is_described() -> None:
    assert all(field.description for field in TokenizerConfig.model_fields.values())
