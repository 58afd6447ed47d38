"""Settings of data and training."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from clearhead.config.section import Section

TAG_FORM = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
LANGUAGE_FORM = re.compile(r"(?:[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)?")  # empty: unknown
NO_TAGS = ("pad", "unk", "s", "mask")  # whose pieces are others
COLUMNS_FORM = "expected columns by number or header name, such as text=2,label=3 or text=review,label=stars"
Decay = Literal["inverse_sqrt", "cosine", "none"]


class TrainingConfig(Section):
    """How the weights are found."""

    seed: int = Field(1, ge=0, description="everything random follows from it")
    steps: int = Field(0, ge=0, description="number of updates; 0: from epochs or minutes")
    epochs: float = Field(0, ge=0, description="passes over the data; 0: from steps or minutes")
    minutes: float = Field(0, ge=0, description="time to train; 0: from steps or epochs")
    batch_tokens: int = Field(
        4096, ge=1, description="largest number of tokens a batch, source or target, with padding"
    )
    accumulate: int = Field(1, ge=1, description="batches an update")
    learning_rate: float = Field(0.0, ge=0, description="highest learning rate; 0: the paper's, by width and warmup")
    warmup: int = Field(
        4000, ge=0, description="updates until the learning rate is highest; at most a quarter of the run"
    )
    decay: Decay = Field(
        "inverse_sqrt",
        description="how the rate falls from its peak: by 1/sqrt(update) as in the paper, by a cosine, or not",
    )
    cooldown: float = Field(0.0, ge=0, le=1, description="last share of the updates, in which the rate falls to zero")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability given to all pieces alike")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's first decay")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's second decay")
    epsilon: float = Field(1e-9, gt=0, description="Adam's small constant")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    clip_norm: float = Field(1.0, ge=0, description="largest norm of the gradient; 0: no clipping")
    validate_every: int = Field(0, ge=0, description="updates between validations; 0: chosen from the run's length")
    save_every: int = Field(0, ge=0, description="updates between checkpoints; 0: at every validation")
    validate_lines: int = Field(500, ge=1, description="tasks that write text: so many are written for the score")
    patience: int = Field(0, ge=0, description="validations without gain before stopping early; 0: never")
    average: int = Field(5, ge=1, description="last checkpoints that are averaged at the end")
    ema: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of a moving average of the weights, such as 0.999, tried at the end; 0: none",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of matrix products in training; weights, sums and what is saved stay float32"
    )
    recompute: bool = Field(
        False, description="layers of attention: computed again on the way back instead of kept, to save memory"
    )
    sharding: Literal["none", "full"] = Field(
        "none", description="full: several processes divide weights, gradients and moments between them"
    )
    max_bad_steps: int = Field(20, ge=1, description="updates in a row with infinite loss or gradient before giving up")


class DataConfig(Section):
    """Which text is used."""

    columns: str = Field(
        "", description="tables: the columns by number or by name in the header, such as text=2,label=3; empty: the "
        "first two, or those that a header names"
    )  # fmt: skip
    header: Literal["auto", "yes", "no"] = Field(
        "auto", description="TSV and CSV: whether the first line holds the names of the columns; auto: detected"
    )
    quoting: bool = Field(False, description="TSV: fields may be quoted, as those of CSV always may")
    delimiter: Literal["auto", "comma", "semicolon", "tab"] = Field(
        "auto", description="TSV and CSV: what separates the fields; auto: a TAB, in a .csv file a comma or semicolon"
    )
    valid_share: float = Field(0.02, gt=0, lt=0.5, description="share held out where no validation file is given")
    valid_max: int = Field(2000, ge=1, description="largest number of pairs held out")
    replay_share: float = Field(
        0.2, gt=0, lt=1, description="with --replay: share of the predictions of each batch (target tokens, masked "
        "tokens, tagged words, texts) that come from the replay files"
    )  # fmt: skip
    max_chars: int = Field(2000, ge=1, description="longer lines are skipped and counted")
    max_ratio: float = Field(
        0, ge=0, description="translation: pairs with one side so many times as long as the other, in characters, or "
        "longer are skipped and counted; 0: none"
    )  # fmt: skip
    deduplicate: bool = Field(False, description="translation: pairs that came before are skipped and counted")
    weights: tuple[PositiveFloat, ...] = Field(
        (), description="translation: how often the pairs of each file are seen in an epoch, as in a.tsv:2; empty: once"
    )
    temperature: float = Field(
        1.0, ge=1, description="translation: above 1, files are seen as if each had its size to the power of 1/this"
    )
    tags: tuple[str, ...] = Field(
        (), description="translation: the tag of each file, put before its sources as one piece, as in a.tsv@de; "
        "empty: none"
    )  # fmt: skip
    valid_tags: tuple[str, ...] = Field((), description="translation: the tag of each validation file, as in v.tsv@de")
    bpe_dropout: float = Field(
        0.0, ge=0, lt=1, description="translation: chance that a merge of pieces is left out, drawn anew for each pair "
        "and epoch; 0: always the same pieces"
    )  # fmt: skip
    max_pieces: int = Field(
        256, ge=2, description="longer sentences are skipped and counted, in pieces; language models: the context"
    )
    languages: tuple[str, ...] = Field(
        (), description="translation: ISO 639 codes of source and target, as in en:de; empty: from the suffixes of two "
        "line files, such as train.en and train.de, else unknown"
    )  # fmt: skip
    split: Literal["auto", "sentences", "lines", "none"] = Field(
        "auto", description="translation: where a text of several sentences is split before it is translated; auto: at "
        "sentence ends if the training data has one sentence per line"
    )  # fmt: skip
    shift_pixels: int = Field(0, ge=0, description="pictures: moved by up to so many pixels while training")
    documents: Literal["line", "paragraph", "file"] = Field("line", description="plain text: what one document is")
    mask_share: float = Field(0.15, gt=0, lt=1, description="masked language models: share of the pieces hidden")
    whole_words: bool = Field(False, description="masked language models: hide all pieces of a word together")
    cross_documents: bool = Field(False, description="language models: a token sees the documents before its own too")

    @field_validator("columns", mode="before")
    @classmethod
    def _join_columns(cls, value: Any) -> Any:
        return ",".join(f"{name}={column}" for name, column in value.items()) if isinstance(value, Mapping) else value

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, value: str) -> str:
        found = parse_columns(value)
        if len(set(found.values())) < len(found):
            raise ValueError(f"{COLUMNS_FORM}, each another one, got {value!r}")
        return ",".join(f"{name}={column}" for name, column in found.items())

    @property
    def column_map(self) -> dict[str, str]:
        """The number or header name of each selected column."""
        return parse_columns(self.columns)

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        names = [column for column in self.column_map.values() if not column.isdecimal()]
        if names and self.header == "no":
            raise ValueError(f"columns by name need a header, and header is no; give {names[0]!r} by its number")
        return self

    @field_validator("tags", "valid_tags", mode="before")
    @classmethod
    def _split_tags(cls, value: Any) -> Any:
        return [tag.strip() for tag in value.split(",") if tag.strip()] if isinstance(value, str) else value

    def language_facts(self) -> dict[str, Any]:
        """Return languages and split mode for the manifest; nothing if the task has neither."""
        return {} if self.split == "auto" else {"languages": list(self.languages), "split": self.split}

    @field_validator("languages", mode="before")
    @classmethod
    def _split_languages(cls, value: Any) -> Any:
        return [code.strip() for code in re.split("[:,]", value)] if isinstance(value, str) and value else value or ()

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        if codes and (len(codes) != 2 or not all(LANGUAGE_FORM.fullmatch(code) for code in codes)):
            raise ValueError(f"expected the codes of source and target, as in en:de, got {':'.join(codes)!r}")
        return codes

    @field_validator("tags", "valid_tags")
    @classmethod
    def _check_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not TAG_FORM.fullmatch(tag) or tag in NO_TAGS:
                raise ValueError(f"a tag is letters, digits, - and _, such as de or medical, got {tag!r}")
        return tags

    @model_validator(mode="after")
    def _check_valid_tags(self) -> Self:
        strange = [tag for tag in self.valid_tags if tag not in self.tags]
        if strange:
            known = (
                f"of the training files: {', '.join(self.tags)}" if self.tags else "and the training files have none"
            )
            raise ValueError(f"expected tags {known}; got {strange[0]} for a validation file")
        return self

    @field_validator("max_ratio")
    @classmethod
    def _check_ratio(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError(f"expected 0 (none is skipped) or more than 1, got {value:g}; try 9")
        return value


def parse_columns(text: str) -> dict[str, str]:
    """Return `text=2,label=stars` as a dictionary; raises ValueError."""
    columns: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, column = (each.strip() for each in part.partition("="))
        if not (name and equals and column) or name in columns or column == "0":
            raise ValueError(f"{COLUMNS_FORM}, got {text!r}")
        columns[name] = column
    return columns
