"""Settings of search."""

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clearhead.config.section import Section

MAX_LENGTH = re.compile(r"(?P<input>(?:(?P<factor>[0-9]+(?:\.[0-9]+)?)\*)?input\+)?(?P<constant>[0-9]+)", re.ASCII)


def _one_or_more(given: object) -> object:
    """One string stands for a list of one."""
    return (given,) if isinstance(given, str) else given


Texts = Annotated[tuple[str, ...], BeforeValidator(_one_or_more)]


class SamplingConfig(Section):
    """How text is drawn. `max_tokens` and `stop` are for models that write on from a prompt."""

    max_tokens: int = Field(200, ge=1, description="most pieces to write")
    temperature: float = Field(1.0, ge=0, le=100, description="logits are divided by it; 0 takes the likeliest piece")
    top_k: int = Field(0, ge=0, description="only the so many likeliest pieces are drawn; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="only the likeliest pieces up to this sum are drawn; 1: all")
    min_p: float = Field(
        0.0, ge=0, le=1, description="only pieces with at least this share of the likeliest one's probability; 0: all"
    )
    seed: int = Field(0, ge=0, description="the same seed gives the same text")
    stop: Texts = Field((), description="strings before which the text ends")
    start: bool = Field(True, description="put the start piece before a prompt; GPT-2 was trained without")

    @field_validator("temperature")
    @classmethod
    def _check_temperature(cls, temperature: float) -> float:
        if 0 < temperature < 0.01:
            raise ValueError(f"expected 0, or 0.01 to 100, got {temperature:g}; 0 takes the likeliest piece")
        return temperature

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("expected strings to stop before, got an empty one; leave it out")
        return stop


class DecodingConfig(Section):
    """How text is searched for, or drawn."""

    beam: int = Field(4, ge=1, description="hypotheses kept; 1 is greedy")
    alpha: float = Field(0.6, ge=0, le=10, description="exponent of the length normalisation")
    length_norm: Literal["paper", "length", "none"] = Field(
        "length", description="divisor of a score: paper ((5+n)/6)^alpha, length n^alpha, or none"
    )
    stop: Literal["beam_finished", "cannot_improve", "seems_best"] = Field(
        "beam_finished",
        description="stop when `beam` hypotheses are finished; or when, moreover, none can get better; or (as Hugging "
        "Face does) none is better at its present length",
    )
    max_length: str = Field(
        "input+50", description="longest output in tokens: a number, input+N, or F*input+N such as 1.5*input+10"
    )
    min_length: int = Field(0, ge=0, description="shortest output in pieces")
    coverage: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="weight of the penalty for source pieces that got little attention"
    )
    groups: int = Field(1, ge=1, description="parts of the beam that keep away from each other's words")
    diversity: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="what a piece costs that an earlier group writes at the same place"
    )
    no_repeat_ngram: int = Field(0, ge=0, description="no so many pieces in a row are written twice; 0: no such rule")
    prefix: str = Field("", description="what every output begins with")
    include: Texts = Field((), description="words that every output must contain")
    exclude: Texts = Field((), description="words that no output may contain")
    method: Literal["search", "sample"] = Field("search", description="search for the best output, or draw outputs")
    sampling: SamplingConfig = Field(default_factory=SamplingConfig, description="how the next piece is drawn")

    @field_validator("max_length", mode="before")
    @classmethod
    def _check_max_length(cls, value: object) -> str:
        if not MAX_LENGTH.fullmatch(str(value)) or re.fullmatch("0+", str(value)):
            raise ValueError(
                "expected a number of tokens, input+N or F*input+N, such as 100, input+50 or 1.5*input+10, "
                f"not {value!r}"
            )
        return str(value)

    @field_validator("include", "exclude")
    @classmethod
    def _check_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if not all(word.strip() for word in words):
            raise ValueError("expected words, got an empty one; leave it out")
        return tuple(dict.fromkeys(words))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.beam % self.groups:
            fitting = [str(number) for number in range(2, self.beam + 1) if self.beam % number == 0]
            raise ValueError(
                f"groups={self.groups} does not divide beam={self.beam}; try {' or '.join(fitting) or 'a wider beam'}"
            )
        if self.max_length.isdecimal() and self.min_length > int(self.max_length):
            raise ValueError(f"min_length={self.min_length} is more than max_length={self.max_length}; lower one")
        for name, is_on in (("groups", self.groups > 1), ("method=sample", self.method == "sample")):
            if is_on and self.include:
                raise ValueError(f"include needs one beam: it goes with neither groups nor sampling; unset {name}")
        if self.method == "sample" and self.groups > 1:
            raise ValueError("groups are for search, and method=sample draws; unset one of them")
        return self

    def longest(self, input_length: int) -> int:
        """Return the output limit, in tokens, for an input of that many tokens."""
        match = MAX_LENGTH.fullmatch(self.max_length)
        assert match is not None, "checked when it was set"
        factor = float(match["factor"] or 1) if match["input"] else 0.0
        return int(factor * input_length) + int(match["constant"])
