"""The coverage penalty (Wu et al., 2016, section 7): outputs that leave parts of the source unattended score less.

    coverage * sum over source places i of log(min(attention that i got from all tokens, 1))

It is added to the normalised score of finished hypotheses. The attention is the mean over the heads of the last layer;
the end and the padding of a source do not count.

M sentences, R rows (as many of each sentence), S source length, H heads, T tokens given at once
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from clearhead.decoding.candidates import Floats
from clearhead.errors import DecodingError

_LEAST = 1e-6  # attention, so that none at all is no infinite penalty


class Coverage:
    """How much attention each place of the sources of a batch has got from each row."""

    def __init__(self, weight: float, counts_MS: Tensor | None, rows_a_sentence: int) -> None:
        """`counts_MS`: the places that count; None: all."""
        self.weight = weight
        self.counts_RS = None if counts_MS is None else counts_MS.repeat_interleave(rows_a_sentence, 0)
        self.seen_RS: Tensor | None = None

    def add(self, attention: Sequence[Any] | None) -> Floats:
        """Takes up what one step attended to; penalty_R: what a row's score loses if it ends with the next token."""
        if not attention or not hasattr(attention[-1], "cross_RHTS"):
            raise DecodingError(
                "decoding.coverage_penalty needs a model that attends to its source, and this one does not; set it to 0"
            )
        now_RS = attention[-1].cross_RHTS.double().mean(1).sum(1)
        self.seen_RS = now_RS if self.seen_RS is None else self.seen_RS + now_RS
        logs_RS = self.seen_RS.clamp(_LEAST, 1.0).log()
        if self.counts_RS is not None:
            logs_RS = logs_RS * self.counts_RS
        penalty_R: Floats = (self.weight * logs_RS.sum(1)).cpu().numpy()
        return penalty_R

    def select(self, rows_R: Tensor) -> None:
        """The rows that go on."""
        assert self.seen_RS is not None, "rows move after a step"
        self.seen_RS = self.seen_RS[rows_R]
        self.counts_RS = None if self.counts_RS is None else self.counts_RS[rows_R]


def places_that_count(src: Tensor, pad_id: int, end_id: int) -> Tensor | None:
    """counts_MS: the places of sources that are ids, but for end and padding; all places of pictures."""
    return None if src.is_floating_point() else (src != pad_id) & (src != end_id)
