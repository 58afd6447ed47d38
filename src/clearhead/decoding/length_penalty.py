"""Length penalties: the divisor of a hypothesis's total log-probability, by its number of tokens.

There is one table, in float32: each entry is computed in double precision and rounded once. Scores and stopping rules
of every search, the native one included, read it.
"""

from functools import lru_cache

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Floats

_LARGEST = float(np.finfo(np.float32).max)


def length_penalties(settings: DecodingConfig, max_length: int) -> Floats:
    """Return penalties_L for 0 to `max_length` generated tokens, the end token included; read-only.

    gnmt: ((5 + n) / 6) ** alpha (Wu et al., 2016); length: n ** alpha; none: 1. Entry 0 equals entry 1.
    """
    return _table(settings.length_penalty_form, settings.length_penalty, max(1, max_length))[: max_length + 1]


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
def _table(form: str, exponent: float, max_length: int) -> Floats:
    penalties = np.array([_penalty(form, exponent, max(1, length)) for length in range(max_length + 1)], np.float32)
    penalties.flags.writeable = False
    return penalties


def _penalty(form: str, exponent: float, length: int) -> float:
    if form == "none":
        return 1.0
    base = (5 + length) / 6 if form == "gnmt" else float(length)
    return min(float(base**exponent), _LARGEST)
