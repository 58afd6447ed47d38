"""Settings of the tokenizer, and the names of special tokens."""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clearhead.config.base import Section

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""The first four entries of every vocabulary: ids 0 to 3."""
SPECIAL_FORM = re.compile(r"<[^\s<>▁]+>")
BYTE_FORM = re.compile(r"<0x[0-9A-F]{2}>")


class TokenizerConfig(Section):
    """Settings of the tokenizer."""

    kind: Literal["bpe", "unigram", "wordpiece", "word", "char", "pretokenized", "imported"] = Field(
        default="bpe",
        description="bpe or unigram (both with byte fallback), wordpiece, word, char, pretokenized (tokens separated "
        "by spaces), or imported with a model of another toolkit",
    )
    vocab_size: int = Field(default=6000, gt=len(SPECIAL_TOKENS), description="maximum vocabulary size")
    normalization: Literal["nfc", "nfkc", "none"] = Field(
        default="nfc",
        description="Unicode normalization; nfc and nfkc also collapse white space, none keeps the text unchanged",
    )
    lowercase: bool = Field(default=False, description="lowercase the text; decoded text is lowercase too")
    joiner: str = Field(
        default="", description="pretokenized: mark of a token that is joined to the next when decoding, such as @@"
    )
    min_frequency: int | None = Field(
        default=None,
        ge=1,
        description="minimum frequency of a character, merge or word in the training data (default 2, and 1 for char)",
    )
    special_tokens: tuple[str, ...] = Field(
        default=(), description="special tokens besides <pad>, <unk>, <s> and </s>, such as <mask>; ids from 4"
    )

    @field_validator("special_tokens")
    @classmethod
    def _check_special_tokens(cls, tokens: tuple[str, ...]) -> tuple[str, ...]:
        for index, token in enumerate(tokens):
            if not SPECIAL_FORM.fullmatch(token) or BYTE_FORM.fullmatch(token):
                raise ValueError(f"a special token is a name in angle brackets such as <mask>, got {token!r}")
            if token in SPECIAL_TOKENS or token in tokens[:index]:
                raise ValueError(f"the special token {token} exists already; leave it out")
        return tokens

    @model_validator(mode="after")
    def _check_joiner(self) -> Self:
        if self.joiner and self.kind != "pretokenized":
            raise ValueError(f"joiner={self.joiner!r} has no meaning for kind={self.kind}; set kind=pretokenized")
        if self.joiner != "".join(self.joiner.split()):
            raise ValueError(f"joiner={self.joiner!r} must not contain white space; try @@")
        return self

    @property
    def all_special_tokens(self) -> tuple[str, ...]:
        """The special tokens of every vocabulary, then the additional ones, in the order of their ids."""
        return SPECIAL_TOKENS + self.special_tokens

    @property
    def threshold(self) -> int:
        """`min_frequency`, or its default for this kind."""
        return self.min_frequency or (1 if self.kind == "char" else 2)

    @property
    def has_bytes(self) -> bool:
        """Whether characters outside the vocabulary are encoded as bytes, so that no token is unknown."""
        return self.kind in ("bpe", "unigram")
