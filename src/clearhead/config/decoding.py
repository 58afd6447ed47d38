"""Settings of search."""

import re
from typing import Literal

from pydantic import Field, field_validator

from clearhead.config.section import Section


class DecodingConfig(Section):
    """How text is searched for."""

    beam: int = Field(4, ge=1, description="hypotheses kept; 1 is greedy")
    alpha: float = Field(0.6, ge=0, description="exponent of the length normalisation")
    length_norm: Literal["paper", "length", "none"] = Field(
        "length", description="divisor of a score: paper ((5+n)/6)^alpha, length n^alpha, or none"
    )
    stop: Literal["beam_finished", "cannot_improve"] = Field(
        "beam_finished", description="stop when `beam` hypotheses are finished, or when none can get better"
    )
    max_length: str = Field("input+50", description="longest output in pieces: a number, or input+N")

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
