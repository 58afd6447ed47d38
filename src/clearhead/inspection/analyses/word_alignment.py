"""Word alignments from encoder-decoder attention: each target word is linked to its most attended source word.

The head that aligns best differs between models, so `choose_head` selects it by the alignment error rate against gold
alignments.

L decoder layers, H heads, T target length, S source length, J target words, I source words
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.config import RECURRENT, ModelConfig
from clearhead.data.readers.pairs import AlignedPair, Links, Pair
from clearhead.errors import DataError, InspectionError, TaskError
from clearhead.inspection.analyses.word_attention import (
    WordAttention,
    WordSpans,
    aggregate_by_word,
    rank_heads_by_alignment,
)
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.token_spans import source_token_spans, target_token_spans
from clearhead.tasks.registry import get_task
from clearhead.tasks.scoring import EncodedPair, decode_forced, encode_pairs
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class ChosenHead:
    """The head with the lowest alignment error rate."""

    head_ref: HeadRef
    """A single head, or a layer if the mean of its heads aligns best."""
    error_rate: float
    """Alignment error rate on the pairs from which the head was chosen."""
    num_pairs: int


@dataclass(frozen=True)
class WordAlignment:
    """Links between the words of a sentence pair."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: Links

    @property
    def pharaoh(self) -> str:
        """The sorted links in Pharaoh format, `SOURCE-TARGET` with words counted from 0: `0-0 1-2`."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links))

    def to_json(self) -> dict[str, Any]:
        """Return the alignment as a JSON object."""
        return {
            "alignment": [list(link) for link in sorted(self.links)],
            "source_words": list(self.source_words),
            "target_words": list(self.target_words),
        }


def align(model: LoadedModel, pairs: Sequence[Pair], head_ref: HeadRef, path: Path | str) -> Iterator[WordAlignment]:
    """Return an iterator over the alignments of the pairs by one head, or by the mean of a layer's heads.

    Raises DataError, with the line in `path`, for a pair that cannot be aligned.
    """
    _check_head(model, head_ref)
    return (
        WordAlignment(tuple(attention.source_words), tuple(attention.target_words), attention.links(0, head_ref.head))
        for attention in _word_attentions(model, pairs, path, head_ref.layer)
    )


def choose_head(model: LoadedModel, gold: Sequence[AlignedPair], path: Path | str) -> ChosenHead:
    """Return the head, or layer mean, with the lowest alignment error rate on the gold pairs; the first of equals."""
    num_layers, _ = cross_attention_shape(model.config.model)
    pairs = [aligned.pair for aligned in gold]
    by_layer = [_word_attentions(model, pairs, path, layer) for layer in range(num_layers)]
    attentions = [_concatenate_layers(layers) for layers in zip(*by_layer, strict=True)]
    for aligned, attention in zip(gold, attentions, strict=True):
        num_source, num_target = len(attention.source_words), len(attention.target_words)
        if any(source >= num_source or target >= num_target for source, target in aligned.links):
            raise DataError.at(
                path, aligned.pair.line, f"the alignment refers to words beyond the {num_source} source words and "
                f"{num_target} target words of the pair; count words and punctuation marks from 0",
            )  # fmt: skip
    best = rank_heads_by_alignment(attentions, [aligned.links for aligned in gold])[0]
    return ChosenHead(best.head_ref, best.error_rate, len(gold))


def default_head(model: LoadedModel) -> HeadRef:
    """Return the mean of the penultimate layer's heads, which often aligns best, for use without gold alignments."""
    return HeadRef("cross", max(0, cross_attention_shape(model.config.model)[0] - 2))


def cross_attention_shape(config: ModelConfig) -> tuple[int, int]:
    """Return the number of layers with cross-attention and the number of heads per layer.

    Raises InspectionError if the model has no cross-attention.
    """
    if config.family == "transformer":
        return config.num_decoder_layers, config.num_heads
    if config.family in RECURRENT and config.attention != "none":
        return 1, 1
    raise InspectionError("this model has no attention between source and target; words cannot be aligned")


def _check_head(model: LoadedModel, head_ref: HeadRef) -> None:
    """Raise TaskError if the model has no such layer or head."""
    num_layers, num_heads = cross_attention_shape(model.config.model)
    has_head = head_ref.head is None or 0 <= head_ref.head < num_heads
    if not (0 <= head_ref.layer < num_layers and has_head):
        raise TaskError(
            f"expected a layer from 0 to {num_layers - 1} and a head from 0 to {num_heads - 1}, got {head_ref}"
        )


def _word_attentions(
    model: LoadedModel, pairs: Sequence[Pair], path: Path | str, layer: int
) -> Iterator[WordAttention]:
    """Return an iterator over the cross-attention of one layer between the words of each pair, by forced decoding.

    Raises DataError, before the first result, for a pair with an empty side or unknown target words.
    """
    encoded_pairs = encode_pairs(model, pairs, path)
    for encoded in encoded_pairs:
        if not encoded.source or not encoded.target or model.tokenizer.target.unk_id in encoded.target:
            raise DataError.at(
                path, encoded.pair.line, "a side has no tokens, or the target has words that are not in the "
                "vocabulary; leave the line out",
            )  # fmt: skip
    engine = model.scoring_engine
    return (
        _word_attention(model, encoded, weights_HTS[None])
        for encoded, _, weights_HTS in decode_forced(engine, encoded_pairs, model.tokenizer.eos_id, layer)
        if weights_HTS is not None
    )


def _word_attention(model: LoadedModel, pair: EncodedPair, weights_1HTS: NDArray[np.float32]) -> WordAttention:
    """Return the attention between the words of a pair, computed from the attention between its tokens."""
    tokenizer, detokenize = model.tokenizer, get_task(model.config.task).codec.detokenize
    source_ids = [*pair.source, tokenizer.eos_id]
    target_ids = [model.config.model.decoder_start_id, *pair.target, tokenizer.eos_id]
    source = WordSpans(source_token_spans(tokenizer, pair.pair.source, source_ids), pair.pair.source)
    target_spans = target_token_spans(tokenizer.target, detokenize, target_ids)[1:]
    target = WordSpans(target_spans, detokenize(tokenizer.target, target_ids))
    return aggregate_by_word(weights_1HTS, target, source)


def _concatenate_layers(layers: Sequence[WordAttention]) -> WordAttention:
    """Return the attention of one pair with all layers, from its attention in single layers."""
    return replace(layers[0], weights_LHJI=np.concatenate([layer.weights_LHJI for layer in layers]))
