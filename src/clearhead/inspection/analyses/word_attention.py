"""Attention between words, and which heads align them as the gold does.

H heads, T queries, S keys, L layers, I words looked at, J words that look
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import InspectionError
from clearhead.evaluation.alignment import alignment_error_rate
from clearhead.inspection.trace.head_ref import HeadRef, Kind
from clearhead.inspection.trace.trace_types import TokenSpan, Trace

Links = Collection[tuple[int, int]]


@dataclass(frozen=True)
class WordAttention:
    """Attention between words; `weights_LHJI` sums to the share of attention that went to words, not to the frame."""

    source_words: list[str]
    target_words: list[str]
    weights_LHJI: NDArray[np.float32]

    def links(self, layer: int, head: int | None = None) -> frozenset[tuple[int, int]]:
        """For each target word the source word that a head, or those of a layer, look at most, as (source, target)."""
        weights_HJI = self.weights_LHJI[layer]
        weights_JI = weights_HJI.mean(0) if head is None else weights_HJI[head]
        return frozenset((int(i), j) for j, i in enumerate(weights_JI.argmax(1))) if weights_JI.size else frozenset()


def word_attention(trace: Trace, kind: Kind = "cross") -> WordAttention:
    """The attention of a trace, from pieces to words.

    The attention that belongs to a written piece is that of the step which predicts it. A word of several pieces gets
    the sum over the pieces looked at and the mean over those that look.
    """
    layers = trace.layers(kind)
    if not layers:
        what = "between source and target" if kind == "cross" else f"of kind {kind}"
        raise InspectionError(f"this model has no attention {what}; it has {', '.join(trace.kinds) or 'none'}")
    rows = (trace.source, trace.source_text) if kind == "encoder" else (trace.outputs, trace.target_text)
    column_text = trace.target_text if kind == "decoder" else trace.source_text
    weights_LHTS = np.stack([one.weights_HTS for one in layers])
    return by_words(weights_LHTS, WordSpans(*rows), WordSpans(trace.columns(kind), column_text))


class WordSpans(NamedTuple):
    """Places, and the text that they stand in."""

    places: Sequence[TokenSpan]
    text: str


def by_words(weights_LHTS: NDArray[np.float32], rows: WordSpans, columns: WordSpans) -> WordAttention:
    """Attention from pieces to words: the sum over the pieces looked at, the mean over those that look."""
    to_rows, to_columns = _membership(rows.places), _membership(columns.places)
    by_word = np.einsum("lhts,si,tj->lhji", weights_LHTS, to_columns, to_rows) / to_rows.sum(0)[:, None]
    return WordAttention(_texts(*columns), _texts(*rows), by_word)


@dataclass(frozen=True)
class HeadAlignment:
    """How far the links of one head, or of the mean of a layer's, are from the gold: 0 at best, 1 at worst."""

    part: HeadRef
    error_rate: float


def align_heads(found: Sequence[WordAttention], gold: Sequence[Links]) -> list[HeadAlignment]:
    """The alignment error rate over a whole corpus, the best first: of each head between source and target, and of
    the mean of the heads of each layer (a part without a head)."""
    if not found:
        raise InspectionError("expected sentence pairs to measure alignment on, got none")
    truth = {(number, *link) for number, links in enumerate(gold) for link in links}
    num_layers, num_heads = found[0].weights_LHJI.shape[:2]
    heads: list[int | None] = [*range(num_heads), None] if num_heads > 1 else [None]
    rates = []
    for part in (HeadRef("cross", layer, head) for layer in range(num_layers) for head in heads):
        links = {(number, *link) for number, one in enumerate(found) for link in one.links(part.layer, part.head)}
        rates.append(HeadAlignment(part, alignment_error_rate(links, truth)))
    return sorted(rates, key=lambda one: one.error_rate)


def _membership(places: Sequence[TokenSpan]) -> NDArray[np.float32]:
    """A 1 where a piece belongs to a word."""
    member = np.zeros((len(places), max((place.word for place in places), default=-1) + 1), dtype=np.float32)
    for number, place in enumerate(places):
        if place.word >= 0:
            member[number, place.word] = 1
    return member


def _texts(places: Sequence[TokenSpan], text: str) -> list[str]:
    """The words as they stand in the text."""
    bounds: dict[int, tuple[int, int]] = {}
    for place in places:
        if place.word >= 0 and place.start is not None and place.end is not None:
            start, end = bounds.get(place.word, (place.start, place.end))
            bounds[place.word] = min(start, place.start), max(end, place.end)
    return [text[start:end] for _, (start, end) in sorted(bounds.items())]
