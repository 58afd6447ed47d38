"""Settings of the training data and of the tokenizer."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from clearhead.config.base import Section

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""The first four entries of every vocabulary: ids 0 to 3."""
SPECIAL_TOKEN_PATTERN = re.compile(r"<[^\s<>▁]+>")
BYTE_TOKEN_PATTERN = re.compile(r"<0x[0-9A-F]{2}>")
TAG_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
LANGUAGE_PATTERN = re.compile(r"(?:[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)?")  # empty: unknown language
RESERVED_TAGS = ("pad", "unk", "s", "mask")  # names of special tokens
COLUMNS_ADVICE = "expected columns by number or header name, such as text=2,label=3 or text=review,label=stars"


class DataConfig(Section):
    """Settings of reading, filtering, weighting and augmenting the training data."""

    columns: str = Field(
        "", description="tables: columns by number or header name, such as text=2,label=3; empty: the first two, or "
        "those that a header names"
    )  # fmt: skip
    header: Literal["auto", "yes", "no"] = Field(
        "auto", description="TSV and CSV: whether the first line contains the column names; auto: detected"
    )
    quoting: bool = Field(False, description="TSV: fields may be quoted, as they always may in CSV")
    delimiter: Literal["auto", "comma", "semicolon", "tab"] = Field(
        "auto", description="TSV and CSV: field separator; auto: a TAB, in a .csv file a comma or semicolon"
    )
    validation_share: float = Field(
        0.02, gt=0, lt=0.5, description="fraction of the data held out for validation if no validation file is given"
    )
    validation_max: int = Field(2000, ge=1, description="maximum number of examples held out for validation")
    replay_share: float = Field(
        0.2, gt=0, lt=1, description="with --replay: fraction of the predictions of each batch (target tokens, masked "
        "tokens, tagged words, texts) that come from the replay files"
    )  # fmt: skip
    max_chars: int = Field(2000, ge=1, description="maximum line length in characters; longer lines are skipped")
    max_length_ratio: float = Field(
        0, ge=0, description="translation: pairs with a length ratio in characters of this or more are skipped; 0: none"
    )
    deduplicate: bool = Field(False, description="translation: skip duplicate pairs")
    file_weights: tuple[PositiveFloat, ...] = Field(
        (), description="translation: passes over each file per epoch, as in a.tsv:2; empty: one"
    )
    sampling_temperature: float = Field(
        1.0, ge=1, description="translation: T above 1 samples files in proportion to size^(1/T)"
    )
    source_tags: tuple[str, ...] = Field(
        (), description="translation: tag of each file, prepended to its sources as one token, as in a.tsv@de; "
        "empty: none"
    )  # fmt: skip
    validation_tags: tuple[str, ...] = Field((), description="translation: tag of each validation file, as in v.tsv@de")
    bpe_dropout: float = Field(
        0.0, ge=0, lt=1, description="translation: probability of skipping a BPE merge, sampled for each pair and "
        "epoch; 0: deterministic tokenization"
    )  # fmt: skip
    max_tokens: int = Field(
        256, ge=2, description="maximum example length in tokens; longer ones are skipped; language models: the context"
    )
    languages: tuple[str, ...] = Field(
        (), description="translation: ISO 639 codes of source and target, as in en:de; empty: from the suffixes of two "
        "line files, such as train.en and train.de, else unknown"
    )  # fmt: skip
    split: Literal["auto", "sentences", "lines", "none"] = Field(
        "auto", description="translation: where a text of several sentences is split before it is translated; auto: at "
        "sentence ends if the training data has one sentence per line"
    )  # fmt: skip
    random_shift: int = Field(0, ge=0, description="images: maximum random translation in pixels during training")
    document_unit: Literal["line", "paragraph", "file"] = Field("line", description="plain text: unit of a document")
    mask_probability: float = Field(
        0.15, gt=0, lt=1, description="masked language models: fraction of the tokens that are masked"
    )
    whole_word_masking: bool = Field(False, description="masked language models: mask all tokens of a word together")
    attend_across_documents: bool = Field(
        False, description="language models: tokens attend to earlier documents in the same context window"
    )

    @field_validator("columns", mode="before")
    @classmethod
    def _join_columns(cls, value: Any) -> Any:
        return ",".join(f"{name}={column}" for name, column in value.items()) if isinstance(value, Mapping) else value

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, value: str) -> str:
        columns = parse_columns(value)
        if len(set(columns.values())) < len(columns):
            raise ValueError(f"{COLUMNS_ADVICE}; select different columns, got {value!r}")
        return ",".join(f"{name}={column}" for name, column in columns.items())

    @property
    def column_map(self) -> dict[str, str]:
        """The number or header name of each selected column."""
        return parse_columns(self.columns)

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        names = [column for column in self.column_map.values() if not column.isdecimal()]
        if names and self.header == "no":
            raise ValueError(f"columns by name require a header, but header=no; select {names[0]!r} by its number")
        return self

    @field_validator("source_tags", "validation_tags", mode="before")
    @classmethod
    def _split_tags(cls, value: Any) -> Any:
        return [tag.strip() for tag in value.split(",") if tag.strip()] if isinstance(value, str) else value

    def language_settings(self) -> dict[str, Any]:
        """Return languages and split mode for the manifest; an empty dictionary while `split` is still auto."""
        return {} if self.split == "auto" else {"languages": list(self.languages), "split": self.split}

    @field_validator("languages", mode="before")
    @classmethod
    def _split_languages(cls, value: Any) -> Any:
        return [code.strip() for code in re.split("[:,]", value)] if isinstance(value, str) and value else value or ()

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        if codes and (len(codes) != 2 or not all(LANGUAGE_PATTERN.fullmatch(code) for code in codes)):
            raise ValueError(f"expected the codes of source and target, as in en:de, got {':'.join(codes)!r}")
        return codes

    @field_validator("source_tags", "validation_tags")
    @classmethod
    def _check_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not TAG_PATTERN.fullmatch(tag) or tag in RESERVED_TAGS:
                raise ValueError(f"expected a tag of letters, digits, - and _, such as de or medical, got {tag!r}")
        return tags

    @model_validator(mode="after")
    def _check_validation_tags(self) -> Self:
        unknown = [tag for tag in self.validation_tags if tag not in self.source_tags]
        if unknown:
            training_tags = ", ".join(self.source_tags) or "none"
            raise ValueError(
                f"expected tags of the training files ({training_tags}), got {unknown[0]} for a validation file"
            )
        return self

    @field_validator("max_length_ratio")
    @classmethod
    def _check_length_ratio(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError(f"expected 0 (no limit) or more than 1, got {value:g}; try 9")
        return value


def parse_columns(text: str) -> dict[str, str]:
    """Return `text=2,label=stars` as a dictionary; raise ValueError for another form."""
    columns: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, column = (item.strip() for item in part.partition("="))
        if not (name and equals and column) or name in columns or column == "0":
            raise ValueError(f"{COLUMNS_ADVICE}, got {text!r}")
        columns[name] = column
    return columns


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
            if not SPECIAL_TOKEN_PATTERN.fullmatch(token) or BYTE_TOKEN_PATTERN.fullmatch(token):
                raise ValueError(f"expected a name in angle brackets as a special token, such as <mask>, got {token!r}")
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
    def effective_min_frequency(self) -> int:
        """`min_frequency`, or its default for this kind."""
        return self.min_frequency or (1 if self.kind == "char" else 2)

    @property
    def has_bytes(self) -> bool:
        """Whether characters outside the vocabulary are encoded as bytes, so that no token is unknown."""
        return self.kind in ("bpe", "unigram")
