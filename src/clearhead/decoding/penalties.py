"""Length penalties: the divisor of a hypothesis's total log-probability, by its number of tokens.

Penalties are one float32 table: each entry is computed in double precision and rounded once. The scores and stopping
rules of every search, including the native one, use it.

Coverage penalty (Wu et al., 2016, section 7): hypotheses that leave parts of the source unattended score less.

    coverage * sum over source positions i of log(min(attention that i received from all tokens, 1))

It is added to the scores of finished hypotheses. The attention is the mean over the heads of the last layer; the end
token and the padding of a source do not count. Sums are sequential, so that padding does not change them.

M sentences, R rows (the same number for each sentence), S source length, H heads, T tokens per call
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Bools, Floats, Ints, Sources
from clearhead.errors import DecodingError

_MAX_PENALTY = float(np.finfo(np.float32).max)


def length_penalties(settings: DecodingConfig, max_length: int) -> Floats:
    """Return penalties_L for 0 to `max_length` generated tokens, the end token included; read-only.

    gnmt: ((5 + n) / 6) ** alpha (Wu et al., 2016); length: n ** alpha; none: 1. Entry 0 equals entry 1.
    """
    return _penalty_table(settings.length_penalty_form, settings.length_penalty, max(1, max_length))[: max_length + 1]


def length_penalty(length: int, settings: DecodingConfig) -> float:
    """Return the penalty of one length."""
    return float(length_penalties(settings, length)[length])


def normalized_score(total: float, length: int, settings: DecodingConfig) -> float:
    """Return the score of a hypothesis of `length` tokens: its total divided by the penalty, in float32."""
    return float(np.float32(total) / length_penalties(settings, length)[length])


def sum_log_probs(log_probs: list[float] | tuple[float, ...]) -> float:
    """Return the total of a hypothesis: the sum in float32, in the order of the tokens."""
    total = np.float32(0)
    for log_prob in log_probs:
        total = total + np.float32(log_prob)
    return float(total)


@lru_cache(maxsize=64)
def _penalty_table(form: str, exponent: float, max_length: int) -> Floats:
    penalties = np.array([_penalty(form, exponent, max(1, length)) for length in range(max_length + 1)], np.float32)
    penalties.flags.writeable = False
    return penalties


def _penalty(form: str, exponent: float, length: int) -> float:
    if form == "none":
        return 1.0
    base = (5 + length) / 6 if form == "gnmt" else float(length)
    return min(float(base**exponent), _MAX_PENALTY)


_MIN_ATTENTION = 1e-6  # positions without attention get a finite penalty


class Coverage:
    """Attention that each source position has received from each row."""

    def __init__(self, weight: float, sources: Sources, eos_id: int, rows_per_sentence: int) -> None:
        self.weight, self.eos_id = weight, eos_id
        is_image = isinstance(sources, np.ndarray) and sources.dtype.kind == "f"
        self.sources = None if is_image else [list(source) for source in sources]
        self.rows_per_sentence = rows_per_sentence
        self.is_counted_RS: Bools | None = None
        self.received_RS: NDArray[np.float64] | None = None

    def add(self, cross_RHTS: Floats | None) -> Floats:
        """Add the attention of one step; return penalty_R for rows that end with the next token."""
        if cross_RHTS is None:
            raise DecodingError(
                "decoding.coverage_penalty needs a model that attends to its source; set it to 0 for this one"
            )
        attention_RTS = sum(cross_RHTS[:, head].astype(np.float64) for head in range(cross_RHTS.shape[1]))
        attention_RTS = attention_RTS / cross_RHTS.shape[1]
        for index in range(attention_RTS.shape[1]):
            step_RS = attention_RTS[:, index]
            self.received_RS = step_RS if self.received_RS is None else self.received_RS + step_RS
        assert self.received_RS is not None
        if self.is_counted_RS is None:
            self.is_counted_RS = self._counted_positions(*self.received_RS.shape)
        logs_RS = np.log(self.received_RS.clip(_MIN_ATTENTION, 1.0)) * self.is_counted_RS
        return (self.weight * np.cumsum(logs_RS, 1)[:, -1]).astype(np.float32)

    def _counted_positions(self, rows: int, length: int) -> Bools:
        """Return the source positions that count: all of an image, those before the end token of a text."""
        if self.sources is None:
            return np.ones((rows, length), np.bool_)
        is_counted_MS = np.zeros((len(self.sources), length), np.bool_)
        for row, source in enumerate(self.sources):
            is_counted_MS[row, : len(source)] = [token != self.eos_id for token in source]
        return is_counted_MS.repeat(self.rows_per_sentence, 0)

    def reorder(self, rows_R: Ints) -> None:
        """Keep these rows in this order."""
        assert self.received_RS is not None and self.is_counted_RS is not None, "reorder() before the first step"
        self.received_RS, self.is_counted_RS = self.received_RS[rows_R], self.is_counted_RS[rows_R]
