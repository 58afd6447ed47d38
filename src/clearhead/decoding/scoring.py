"""What a hypothesis is worth: the sum of its log-probabilities, divided by a power of its length."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config import DecodingConfig

FinishReason = Literal["end", "length", "blocked", "stop"]


@dataclass(frozen=True)
class Hypothesis:
    """One output."""

    tokens: tuple[int, ...]
    """What was written, without the start and the end token."""
    score: float
    """`log_prob`, normalised by length, and the penalty for coverage: what hypotheses are ranked by."""
    log_prob: float
    """Sum of `token_log_probs`."""
    token_log_probs: tuple[float, ...]
    """Of every token, and of the end token where it was written."""
    finish_reason: FinishReason
    """`end`: the end token was written; `length`: the limit was reached; `blocked`: rules allowed no token more;
    `stop`: what an output is to end with was written."""


def divisor(length: int, settings: DecodingConfig) -> float:
    """What the log-probability of `length` generated tokens, the end token included, is divided by."""
    if settings.length_penalty_form == "gnmt":
        return float(((5 + length) / 6) ** settings.length_penalty)
    if settings.length_penalty_form == "length":
        return float(length**settings.length_penalty)
    return 1.0
