"""BPE dropout: plain tokens at probability 0, unchanged text, and the distribution of the paper."""

from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
from clearhead.data.tokenizer.bpe_dropout import BpeDropout
from clearhead.errors import ConfigError
from tests.data.test_tokenizer import ANY_TEXT, TEXTS


@cache
def trained(normalisation: str = "nfc") -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=420, normalization=normalisation))


@settings(max_examples=150, deadline=None)
@given(ANY_TEXT, st.sampled_from(["nfc", "nfkc", "none"]), st.integers(0, 3))
def test_text_is_unchanged_and_so_are_tokens_without_dropout(text: str, normalisation: str, seed: int) -> None:
    tokenizer = trained(normalisation)
    ids = tokenizer.encode(text).ids
    assert BpeDropout(tokenizer, 0.0).sample_tokens(ids, seed) == ids
    cut = BpeDropout(tokenizer, 0.5).sample_tokens(ids, seed)
    assert tokenizer.decode(cut) == tokenizer.decode(ids) and len(cut) >= len(ids)


def test_tokens_are_a_function_of_the_seed() -> None:
    tokenizer = trained()
    ids = tokenizer.encode(" ".join(TEXTS)).ids
    first, again = BpeDropout(tokenizer, 0.1), BpeDropout(tokenizer, 0.1)
    again.sample_tokens(ids[::-1][:0], 9)
    again.sample_tokens(tokenizer.encode("The dogs walk.").ids, 4)
    assert first.sample_tokens(ids, 1, 2, 3) == again.sample_tokens(ids, 1, 2, 3)
    others = {
        tuple(first.sample_tokens(ids, *seed))
        for seed in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (12, 3), (1, 23))
    }
    assert len(others) == 6


def test_dropout_near_one_leaves_characters() -> None:
    tokenizer = trained()
    ids = tokenizer.encode("a dog").ids
    assert [tokenizer.token(index) for index in BpeDropout(tokenizer, 0.999999).sample_tokens(ids, 1)] == [
        "▁",
        "a",
        "▁",
        "d",
        "o",
        "g",
    ]


def exact(tokens: tuple[str, ...], ranks: dict[tuple[str, str], int], chance: float) -> dict[tuple[str, ...], float]:
    """Return the probability of every tokenization of a word, by algorithm 1 of the paper.

    The library's dropout differs: after a merge became impossible, skipped merges are considered again.
    """
    merges = sorted((ranks[pair], position) for position, pair in enumerate(pairwise(tokens)) if pair in ranks)
    result = {tokens: chance ** len(merges)}  # all merges are skipped
    for number, (_, position) in enumerate(merges):  # this merge is applied, those before it are skipped
        merged = (*tokens[:position], tokens[position] + tokens[position + 1], *tokens[position + 2 :])
        for way, share in exact(merged, ranks, chance).items():
            result[way] = result.get(way, 0) + chance**number * (1 - chance) * share
    return result


@pytest.mark.parametrize("chance", [0.1, 0.5])
@pytest.mark.parametrize("word", [" house", " Hund", " dogs"])
def test_distribution_matches_the_paper(word: str, chance: float) -> None:
    tokenizer, count = trained(), 3000
    ids, merges = tokenizer.merges()
    names = {index: token for token, index in ids.items()}
    expected = exact(tuple(word), {pair: rank for rank, pair in enumerate(merges)}, chance)
    assert sum(expected.values()) == pytest.approx(1) and len(expected) > 3
    dropout, baseline = BpeDropout(tokenizer, chance), tokenizer.encode(word).ids
    actual = Counter(tuple(names[index] for index in dropout.sample_tokens(baseline, seed)) for seed in range(count))
    assert actual.keys() <= expected.keys()
    for way, share in expected.items():
        deviation = (share * (1 - share) / count) ** 0.5
        assert abs(actual[way] / count - share) < 4 * deviation + 2 / count, way


def test_other_kinds_are_refused() -> None:
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="unigram", vocab_size=420))
    with pytest.raises(ConfigError, match=r"data\.bpe_dropout requires tokenizer\.kind=bpe, found unigram"):
        BpeDropout(tokenizer, 0.1)
