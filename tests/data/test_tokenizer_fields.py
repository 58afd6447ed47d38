"""Every field of the tokenizer section changes the tokenizer or is refused by name, for every kind."""

from typing import Any

import pytest
from pydantic import ValidationError

from clearhead.config import TokenizerConfig
from clearhead.data.tokenizer import Tokenizer

KINDS = ("bpe", "unigram", "wordpiece", "word", "char", "pretokenized")
# Rare words and letters, capitals, double spaces and a ligature, so that every field has an effect.
TEXTS = ["The  cat sat on the mat .", "the dog \ufb01nds THE cat", "a dog and a cat", "Xylo@@ phone , once"] * 2 + [
    "Zoë"
]
OTHERS: dict[str, Any] = {
    "vocab_size": 300, "normalization": "none", "lowercase": True, "joiner": "@@", "min_frequency": 3,
    "special_tokens": ("<mask>",),
}  # fmt: skip


def trained(kind: str, **settings: Any) -> str:
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, **settings))
    texts = [*TEXTS, "Xylo@@ cat"]
    return repr([(tokenizer.encode(text).tokens, tokenizer.decode(tokenizer.encode(text).ids)) for text in texts])


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_changes_something_or_is_refused(kind: str) -> None:
    usual, size = trained(kind), Tokenizer.train(TEXTS, TokenizerConfig(kind=kind)).vocab_size
    for field, value in OTHERS.items():
        if field == "joiner" and kind != "pretokenized":
            with pytest.raises(ValidationError, match=f"joiner='@@' has no meaning for kind={kind}"):
                trained(kind, joiner=value)
        elif field == "special_tokens":
            assert Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, special_tokens=value)).special_ids[-1] == 4
        else:
            value = size - 1 if field == "vocab_size" else value
            assert trained(kind, **{field: value}) != usual, field


def test_all_fields_are_tested() -> None:
    assert {*OTHERS, "kind"} == set(TokenizerConfig.model_fields)
