"""BPE dropout: without chance the plain pieces, always the same text, distributed as the library's own."""

from collections import Counter
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
from clearhead.data.tokenizer.dropout import BpeDropout
from clearhead.errors import ConfigError
from tests.data.test_tokenizer import ANY_TEXT, TEXTS


@cache
def trained(normalisation: str = "nfc") -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=420, normalisation=normalisation))  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(ANY_TEXT, st.sampled_from(["nfc", "nfkc", "none"]), st.integers(0, 3))
def test_the_text_stays_and_without_chance_so_do_the_pieces(text: str, normalisation: str, seed: int) -> None:
    tokenizer = trained(normalisation)
    ids = tokenizer.encode(text).ids
    assert BpeDropout(tokenizer, 0.0).cut(ids, seed) == ids
    cut = BpeDropout(tokenizer, 0.5).cut(ids, seed)
    assert tokenizer.decode(cut) == tokenizer.decode(ids) and len(cut) >= len(ids)


def test_pieces_follow_from_the_seed_alone() -> None:
    tokenizer = trained()
    ids = tokenizer.encode(" ".join(TEXTS)).ids
    first, again = BpeDropout(tokenizer, 0.1), BpeDropout(tokenizer, 0.1)
    again.cut(ids[::-1][:0], 9)
    again.cut(tokenizer.encode("The dogs walk.").ids, 4)
    assert first.cut(ids, 1, 2, 3) == again.cut(ids, 1, 2, 3)
    others = {tuple(first.cut(ids, *seed)) for seed in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (12, 3), (1, 23))}
    assert len(others) == 6


def test_almost_all_merges_gone_leaves_characters() -> None:
    tokenizer = trained()
    ids = tokenizer.encode("a dog").ids
    assert [tokenizer.piece(index) for index in BpeDropout(tokenizer, 0.999999).cut(ids, 1)] == [
        "▁",
        "a",
        "▁",
        "d",
        "o",
        "g",
    ]


@pytest.mark.parametrize("chance", [0.1, 0.5])
def test_it_is_distributed_as_the_librarys(chance: float) -> None:
    """The library's own draws cannot be seeded; over many of both, each way to cut a word is about as frequent."""
    tokenizer, count = trained(), 4000
    library = tokenizers.Tokenizer.from_str(tokenizer._pipeline.to_str())
    library.model.dropout = chance
    ours = BpeDropout(tokenizer, chance)
    for word in ("house", "langsam", "dogs'"):
        ids = tokenizer.encode(word).ids
        found = Counter(tuple(ours.cut(ids, seed)) for seed in range(count))
        theirs = Counter(tuple(library.encode(word, add_special_tokens=False).ids) for _ in range(count))
        for way in found | theirs:
            share = (found[way] + theirs[way]) / 2 / count
            deviation = (2 * share * (1 - share) / count) ** 0.5
            assert abs(found[way] - theirs[way]) / count < 5 * deviation + 1e-9, (word, way)
        assert len(found) > 3


def test_other_kinds_have_no_merges() -> None:
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="unigram", vocab_size=420))
    with pytest.raises(ConfigError, match=r"data\.bpe_dropout is for tokenizer\.kind=bpe, this is unigram"):
        BpeDropout(tokenizer, 0.1)
