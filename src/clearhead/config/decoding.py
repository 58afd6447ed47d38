"""Settings of search."""

import re
from typing import Literal

from pydantic import Field, field_validator

from clearhead.config.section import Section


class SamplingConfig(Section):
    """How text is drawn, by models that write on from a prompt."""

    max_tokens: int = Field(200, ge=1, description="most pieces to write")
    temperature: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="logits are divided by it; 0 takes the likeliest piece"
    )
    top_k: int = Field(0, ge=0, description="only the so many likeliest pieces are drawn; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="only the likeliest pieces up to this sum are drawn; 1: all")
    seed: int = Field(0, ge=0, description="the same seed gives the same text")
    stop: tuple[str, ...] = Field((), description="strings before which the text ends")
    start: bool = Field(True, description="put the start piece before a prompt; GPT-2 was trained without")

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, stop: object) -> object:
        return (stop,) if isinstance(stop, str) else stop

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("expected strings to stop before, got an empty one; leave it out")
        return stop


class DecodingConfig(Section):
    """How text is searched for, or drawn."""

    beam: int = Field(4, ge=1, description="hypotheses kept; 1 is greedy")
    alpha: float = Field(0.6, ge=0, description="exponent of the length normalisation")
    length_norm: Literal["paper", "length", "none"] = Field(
        "length", description="divisor of a score: paper ((5+n)/6)^alpha, length n^alpha, or none"
    )
    stop: Literal["beam_finished", "cannot_improve", "seems_best"] = Field(
        "beam_finished",
        description="stop when `beam` hypotheses are finished; or when, moreover, none can get better; or (as Hugging "
        "Face does) none is better at its present length",
    )
    max_length: str = Field("input+50", description="longest output in pieces: a number, or input+N")
    sampling: SamplingConfig = Field(
        default_factory=SamplingConfig, description="language models: how the next piece is drawn"
    )

    @field_validator("max_length", mode="before")
    @classmethod
    def _check_max_length(cls, value: object) -> str:
        if not re.fullmatch(r"(input\+)?[0-9]+", str(value)) or str(value) == "0":
            raise ValueError(f"expected a number of pieces or input+N, such as 100 or input+50, not {value!r}")
        return str(value)

    def longest(self, input_length: int) -> int:
        """The limit for one input of that many pieces."""
        if self.max_length.startswith("input+"):
            return input_length + int(self.max_length.removeprefix("input+"))
        return int(self.max_length)
