"""Settings of the tokenizer, and the names of special tokens."""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clearhead.config.section import Section

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
"""The first four entries of every vocabulary: ids 0 to 3."""
SPECIAL_FORM = re.compile(r"<[^\s<>▁]+>")
BYTE_FORM = re.compile(r"<0x[0-9A-F]{2}>")


class TokenizerConfig(Section):
    """How text is cut into pieces."""

    kind: Literal["bpe", "unigram", "wordpiece", "word", "char", "pretokenised", "imported"] = Field(
        default="bpe",
        description="bpe, unigram (both know every text), wordpiece, word, char, pretokenised (already split), or "
        "imported with a model of another toolkit",
    )
    vocab_size: int = Field(default=6000, gt=len(SPECIALS), description="upper bound on the number of pieces")
    normalisation: Literal["nfc", "nfkc", "none"] = Field(
        default="nfc",
        description="Unicode form of the text; nfc and nfkc also make any run of white space one space, none keeps all",
    )
    lowercase: bool = Field(default=False, description="lower-case the text; what is decoded is then lower case too")
    joiner: str = Field(
        default="", description="pretokenised only: the mark of a token joined to the next when decoding, such as @@"
    )
    min_frequency: int | None = Field(
        default=None,
        ge=1,
        description="how often a character, merge or word must occur to be learned (default 2, and 1 for char)",
    )
    specials: tuple[str, ...] = Field(
        default=(), description="special tokens besides <pad>, <unk>, <s> and </s>, such as <mask>; ids from 4"
    )

    @field_validator("specials")
    @classmethod
    def _specials_have_their_form(cls, specials: tuple[str, ...]) -> tuple[str, ...]:
        for index, special in enumerate(specials):
            if not SPECIAL_FORM.fullmatch(special) or BYTE_FORM.fullmatch(special):
                raise ValueError(f"a special token is a name in angle brackets such as <mask>, got {special!r}")
            if special in SPECIALS or special in specials[:index]:
                raise ValueError(f"the special token {special} is there already; leave it out")
        return specials

    @model_validator(mode="after")
    def _joiner_is_used(self) -> Self:
        if self.joiner and self.kind != "pretokenised":
            raise ValueError(f"joiner={self.joiner!r} has no meaning for kind={self.kind}; set kind=pretokenised")
        if self.joiner != "".join(self.joiner.split()):
            raise ValueError(f"joiner={self.joiner!r} must not hold white space; try @@")
        return self

    @property
    def all_specials(self) -> tuple[str, ...]:
        return SPECIALS + self.specials

    @property
    def threshold(self) -> int:
        """The minimum frequency in force."""
        return self.min_frequency or (1 if self.kind == "char" else 2)

    @property
    def has_bytes(self) -> bool:
        """Whether characters without a piece are spelled in bytes, so that nothing is unknown."""
        return self.kind in ("bpe", "unigram")
