"""Outputs of the search."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["end", "length", "blocked", "stop"]


@dataclass(frozen=True)
class Hypothesis:
    """One output. All numbers are float32 values."""

    tokens: tuple[int, ...]
    """Generated tokens, without the start and end tokens."""
    score: float
    """`log_prob` divided by the length penalty, plus the coverage penalty: hypotheses are ranked by it."""
    log_prob: float
    """Sum of `token_log_probs`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each token, and of the end token if it was generated."""
    finish_reason: FinishReason
    """`end`: the end token was generated; `length`: the limit was reached; `blocked`: the rules allowed no further
    token; `stop`: a stop condition was met."""


@dataclass(frozen=True)
class SearchResult:
    """Hypotheses of one sentence, best first."""

    hypotheses: list[Hypothesis]
    margin: float
    """Smallest difference in log-probability by which a decision of the search was made: if all log-probabilities
    move by less than about half of it per token, the output stays the same."""
