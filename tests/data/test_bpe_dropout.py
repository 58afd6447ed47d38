"""BPE dropout: without chance the plain pieces, always the same text, distributed as the library's own."""

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
def test_the_text_stays_and_without_chance_so_do_the_pieces(text: str, normalisation: str, seed: int) -> None:
    tokenizer = trained(normalisation)
    ids = tokenizer.encode(text).ids
    assert BpeDropout(tokenizer, 0.0).sample_tokens(ids, seed) == ids
    cut = BpeDropout(tokenizer, 0.5).sample_tokens(ids, seed)
    assert tokenizer.decode(cut) == tokenizer.decode(ids) and len(cut) >= len(ids)


def test_pieces_follow_from_the_seed_alone() -> None:
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


def test_almost_all_merges_gone_leaves_characters() -> None:
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


def exact(pieces: tuple[str, ...], ranks: dict[tuple[str, str], int], chance: float) -> dict[tuple[str, ...], float]:
    """The probability of every way to cut a word, by algorithm 1 of the paper.

    (The library's own dropout is another: a merge that is not possible any more gives those left out a new chance.)
    """
    merges = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in ranks)
    found = {pieces: chance ** len(merges)}  # all of them are left out
    for number, (_, place) in enumerate(merges):  # this is made, those before it are left out
        merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
        for way, share in exact(merged, ranks, chance).items():
            found[way] = found.get(way, 0) + chance**number * (1 - chance) * share
    return found


@pytest.mark.parametrize("chance", [0.1, 0.5])
@pytest.mark.parametrize("word", [" house", " Hund", " dogs"])
def test_it_is_distributed_as_in_the_paper(word: str, chance: float) -> None:
    tokenizer, count = trained(), 3000
    ids, merges = tokenizer.merges()
    names = {index: piece for piece, index in ids.items()}
    wanted = exact(tuple(word), {pair: rank for rank, pair in enumerate(merges)}, chance)
    assert sum(wanted.values()) == pytest.approx(1) and len(wanted) > 3
    dropout, plain = BpeDropout(tokenizer, chance), tokenizer.encode(word).ids
    found = Counter(tuple(names[index] for index in dropout.sample_tokens(plain, seed)) for seed in range(count))
    assert found.keys() <= wanted.keys()
    for way, share in wanted.items():
        deviation = (share * (1 - share) / count) ** 0.5
        assert abs(found[way] / count - share) < 4 * deviation + 2 / count, way


def test_other_kinds_have_no_merges() -> None:
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="unigram", vocab_size=420))
    with pytest.raises(ConfigError, match=r"data\.bpe_dropout requires tokenizer\.kind=bpe, found unigram"):
        BpeDropout(tokenizer, 0.1)
