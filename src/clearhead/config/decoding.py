"""Settings of search and sampling."""

import re
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clearhead.config.base import Section

MAX_LENGTH_PATTERN = re.compile(
    r"(?P<input>(?:(?P<factor>[0-9]+(?:\.[0-9]+)?)\*)?input\+)?(?P<constant>[0-9]+)", re.ASCII
)


def _to_tuple(value: object) -> object:
    """Return a single string as a tuple of one."""
    return (value,) if isinstance(value, str) else value


StringTuple = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]


class SamplingConfig(Section):
    """Settings of sampling. `max_tokens`, `stop` and `add_start_token` apply to language models."""

    max_tokens: int = Field(200, ge=1, description="maximum number of new tokens")
    temperature: float = Field(
        1.0, ge=0, le=100, description="divisor of the logits; 0 selects the most probable token"
    )
    top_k: int = Field(0, ge=0, description="sample from the k most probable tokens; 0: from all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample from the most probable tokens whose probabilities sum to p; 1: from all"
    )
    min_p: float = Field(
        0.0, ge=0, le=1, description="minimum probability, relative to the most probable token; 0: sample from all"
    )
    seed: int = Field(0, ge=0, description="random seed; the same seed gives the same text")
    stop: StringTuple = Field((), description="strings that end the text; not part of it")
    add_start_token: bool = Field(True, description="insert <s> before the prompt; GPT-2 was trained without it")

    @field_validator("temperature")
    @classmethod
    def _check_temperature(cls, temperature: float) -> float:
        if 0 < temperature < 0.01:
            raise ValueError(f"expected 0, or 0.01 to 100, got {temperature:g}; 0 selects the most probable token")
        return temperature

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("expected strings that end the text, got an empty one; leave it out")
        return stop


class DecodingConfig(Section):
    """Settings of text generation."""

    beam_size: int = Field(4, ge=1, description="beam size; 1 is greedy search")
    length_penalty: float = Field(0.6, ge=0, le=10, description="exponent alpha of the length penalty")
    length_penalty_form: Literal["gnmt", "length", "none"] = Field(
        "length", description="divisor of a score: gnmt ((5+n)/6)^alpha as in the paper, length n^alpha, or none"
    )
    stopping_rule: Literal["beam_finished", "cannot_improve", "no_better_now"] = Field(
        "beam_finished",
        description="stop when beam_size hypotheses are finished; cannot_improve: and no other can still score "
        "higher; no_better_now: and none scores higher at its current length (Hugging Face)",
    )
    max_length: str = Field(
        "input+50", description="maximum output length in tokens: a number, input+N, or F*input+N such as 1.5*input+10"
    )
    min_length: int = Field(0, ge=0, description="minimum output length in tokens")
    coverage_penalty: float = Field(
        0.0, ge=0, le=1000, description="weight of the penalty for source tokens with little attention"
    )
    beam_groups: int = Field(
        1, ge=1, description="diverse beam search: number of groups that beam_size is divided into"
    )
    diversity_penalty: float = Field(
        0.5,
        ge=0,
        le=1000,
        description="diverse beam search: penalty of a token that an earlier group chose at the same position",
    )
    no_repeat_ngram_size: int = Field(0, ge=0, description="length of n-grams that may occur only once; 0: no limit")
    prefix: str = Field("", description="text that every output begins with")
    include: StringTuple = Field((), description="words that every output must contain")
    exclude: StringTuple = Field((), description="words that no output may contain")
    method: Literal["search", "sample"] = Field("search", description="beam search or sampling")
    sampling: SamplingConfig = Field(default_factory=SamplingConfig, description="settings of sampling")

    @field_validator("max_length", mode="before")
    @classmethod
    def _check_max_length(cls, value: object) -> str:
        if not MAX_LENGTH_PATTERN.fullmatch(str(value)) or re.fullmatch("0+", str(value)):
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
    def _check_combinations(self) -> Self:
        if self.beam_size % self.beam_groups:
            divisors = [str(number) for number in range(2, self.beam_size + 1) if self.beam_size % number == 0]
            raise ValueError(
                f"beam_groups={self.beam_groups} does not divide beam_size={self.beam_size}; "
                f"try {' or '.join(divisors) or 'a larger beam_size'}"
            )
        if self.max_length.isdecimal() and self.min_length > int(self.max_length):
            raise ValueError(f"min_length={self.min_length} is more than max_length={self.max_length}; lower one")
        for name, is_on in (("beam_groups", self.beam_groups > 1), ("method=sample", self.method == "sample")):
            if is_on and self.include:
                raise ValueError(f"include works with neither beam_groups nor sampling; unset {name}")
        if self.method == "sample" and self.beam_groups > 1:
            raise ValueError("beam_groups has no meaning with method=sample; unset one of them")
        return self

    @property
    def has_constraints(self) -> bool:
        """Whether the text must have a prefix, or contain or exclude words."""
        return bool(self.prefix or self.include or self.exclude)

    def max_output_length(self, input_length: int) -> int:
        """Return the maximum output length, in tokens, for an input of `input_length` tokens."""
        factor, constant = _length_formula(self.max_length)
        return int(factor * input_length) + constant


@lru_cache(maxsize=64)
def _length_formula(max_length: str) -> tuple[float, int]:
    """Return factor and constant of `max_length`."""
    match = MAX_LENGTH_PATTERN.fullmatch(max_length)
    assert match is not None, "validated by _check_max_length"
    return (float(match["factor"] or 1) if match["input"] else 0.0), int(match["constant"])
