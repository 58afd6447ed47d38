"""Attention between words, and the alignment error rate of each head against gold alignments.

H heads, T queries, S keys, L layers, I key words, J query words
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import InspectionError
from clearhead.evaluation.alignment import alignment_error_rate
from clearhead.inspection.trace.head_ref import AttentionKind, HeadRef
from clearhead.inspection.trace.trace_types import TokenSpan, Trace

Links = Collection[tuple[int, int]]


@dataclass(frozen=True)
class WordAttention:
    """Attention between words.

    The names fit encoder-decoder attention; in self-attention, both lists contain words of the same text.
    """

    source_words: list[str]
    """The words of the keys."""
    target_words: list[str]
    """The words of the queries."""
    weights_LHJI: NDArray[np.float32]
    """Rows sum to less than 1 if special tokens get attention, because they belong to no word."""

    def links(self, layer: int, head: int | None = None) -> frozenset[tuple[int, int]]:
        """Return (source, target) for each target word, with the source word that has the largest weight.

        Without a head, the mean weights of the layer's heads are used.
        """
        weights_HJI = self.weights_LHJI[layer]
        weights_JI = weights_HJI.mean(0) if head is None else weights_HJI[head]
        return frozenset((int(i), j) for j, i in enumerate(weights_JI.argmax(1))) if weights_JI.size else frozenset()


def word_attention(trace: Trace, kind: AttentionKind = "cross") -> WordAttention:
    """Return the attention of a trace between words, for all layers and heads of one kind.

    The query of a generated token is the decoding step that predicts it. The weight between two words is the sum over
    the tokens of the key word and the mean over the tokens of the query word. Raises InspectionError if the model has
    no attention of this kind.
    """
    layers = trace.layers(kind)
    if not layers:
        missing = "between source and target" if kind == "cross" else f"of kind {kind}"
        raise InspectionError(f"this model has no attention {missing}; it has {', '.join(trace.kinds) or 'none'}")
    rows = (trace.source, trace.source_text) if kind == "encoder" else (trace.outputs, trace.target_text)
    column_text = trace.target_text if kind == "decoder" else trace.source_text
    weights_LHTS = np.stack([attention.weights_HTS for attention in layers])
    return aggregate_by_word(weights_LHTS, WordSpans(*rows), WordSpans(trace.key_positions(kind), column_text))


class WordSpans(NamedTuple):
    """Token spans and the text that contains them."""

    positions: Sequence[TokenSpan]
    text: str


def aggregate_by_word(weights_LHTS: NDArray[np.float32], rows: WordSpans, columns: WordSpans) -> WordAttention:
    """Return attention between words from attention between tokens: the sum over key, the mean over query tokens."""
    to_rows, to_columns = _membership(rows.positions), _membership(columns.positions)
    weights_LHJI = np.einsum("lhts,si,tj->lhji", weights_LHTS, to_columns, to_rows) / to_rows.sum(0)[:, None]
    return WordAttention(_word_texts(*columns), _word_texts(*rows), weights_LHJI)


@dataclass(frozen=True)
class HeadAlignment:
    """Alignment error rate of one head, or of the mean of a layer's heads."""

    head_ref: HeadRef
    """A single head, or a layer for the mean of its heads."""
    error_rate: float
    """0 is perfect, 1 is worst."""


def rank_heads_by_alignment(attentions: Sequence[WordAttention], gold: Sequence[Links]) -> list[HeadAlignment]:
    """Return the alignment error rate of each cross-attention head and layer mean over a corpus, lowest first."""
    if not attentions:
        raise InspectionError("expected sentence pairs to measure alignment on, got none")
    gold_links = {(number, *link) for number, links in enumerate(gold) for link in links}
    num_layers, num_heads = attentions[0].weights_LHJI.shape[:2]
    heads: list[int | None] = [*range(num_heads), None] if num_heads > 1 else [None]
    alignments = []
    for head_ref in (HeadRef("cross", layer, head) for layer in range(num_layers) for head in heads):
        links = {
            (number, *link)
            for number, attention in enumerate(attentions)
            for link in attention.links(head_ref.layer, head_ref.head)
        }
        alignments.append(HeadAlignment(head_ref, alignment_error_rate(links, gold_links)))
    return sorted(alignments, key=lambda alignment: alignment.error_rate)


def _membership(positions: Sequence[TokenSpan]) -> NDArray[np.float32]:
    """Return a matrix of positions by words that is 1 if the token belongs to the word, else 0."""
    num_words = max((position.word for position in positions), default=-1) + 1
    membership = np.zeros((len(positions), num_words), dtype=np.float32)
    for number, position in enumerate(positions):
        if position.word >= 0:
            membership[number, position.word] = 1
    return membership


def _word_texts(positions: Sequence[TokenSpan], text: str) -> list[str]:
    """Return the text of each word, from the first to the last character of its tokens."""
    bounds: dict[int, tuple[int, int]] = {}
    for position in positions:
        if position.word >= 0 and position.start is not None and position.end is not None:
            start, end = bounds.get(position.word, (position.start, position.end))
            bounds[position.word] = min(start, position.start), max(end, position.end)
    return [text[start:end] for _, (start, end) in sorted(bounds.items())]
