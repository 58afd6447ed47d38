"""Word alignments from attention: each target word is linked to the source word that a head looks at most.

Which head aligns best differs from model to model: it is chosen by the alignment error rate against gold.

L decoder layers, H heads, T target length, S source length, J target words, I source words
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.config import ModelConfig
from clearhead.config.model import RECURRENT
from clearhead.data.readers.pairs import AlignedPair, Links, Pair
from clearhead.errors import DataError, InspectionError, TaskError
from clearhead.inspection.analyses.word_attention import WordAttention, WordSpans, align_heads, by_words
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.token_spans import source_token_spans, target_token_spans
from clearhead.tasks.registry import get_task
from clearhead.tasks.scoring import EncodedPair, decode_forced, encode_pairs
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class ChosenHead:
    """The head that aligns best (or the mean of a layer's), and its error rate over the pairs it was chosen on."""

    head: HeadRef
    error_rate: float
    sentences: int


@dataclass(frozen=True)
class WordAlignment:
    """Which words of a pair belong together."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: Links

    @property
    def pharaoh(self) -> str:
        """As in `0-0 1-2`: source word, target word, in their order."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links))

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "alignment": [list(link) for link in sorted(self.links)],
            "source_words": list(self.source_words),
            "target_words": list(self.target_words),
        }


def align(model: LoadedModel, pairs: Sequence[Pair], head: HeadRef, path: Path | str) -> Iterator[WordAlignment]:
    """The alignment of each pair by one head; errors name the pair's line in `path`."""
    _check(model, head)
    return (
        WordAlignment(tuple(found.source_words), tuple(found.target_words), found.links(0, head.head))
        for found in _attention(model, pairs, path, head.layer)
    )


def choose_head(model: LoadedModel, gold: Sequence[AlignedPair], path: Path | str) -> ChosenHead:
    """The head, or the mean over a layer's heads, with the lowest alignment error rate; of equal ones the first."""
    num_layers, _ = cross_attention_shape(model.config.model)
    of_layers = [_attention(model, [one.pair for one in gold], path, layer) for layer in range(num_layers)]
    found = [_stack(layers) for layers in zip(*of_layers, strict=True)]
    for one, attention in zip(gold, found, strict=True):
        sizes = len(attention.source_words), len(attention.target_words)
        if any(source >= sizes[0] or target >= sizes[1] for source, target in one.links):
            raise DataError.at(
                path, one.pair.line, f"the alignment names words beyond the {sizes[0]} and {sizes[1]} that there are; "
                "count words and punctuation marks from 0",
            )  # fmt: skip
    best = align_heads(found, [one.links for one in gold])[0]
    return ChosenHead(best.part, best.error_rate, len(gold))


def default_head(model: LoadedModel) -> HeadRef:
    """Return the mean of the last layer but one, which often aligns best, for a model without gold alignments."""
    return HeadRef("cross", max(0, cross_attention_shape(model.config.model)[0] - 2))


def cross_attention_shape(config: ModelConfig) -> tuple[int, int]:
    """Return the number of layers with cross-attention and of their heads; raise InspectionError if there are none."""
    if config.family == "transformer":
        return config.num_decoder_layers, config.num_heads
    if config.family in RECURRENT and config.attention != "none":
        return 1, 1
    raise InspectionError("this model has no attention between source and target: there is nothing to align by")


def _check(model: LoadedModel, head: HeadRef) -> None:
    num_layers, num_heads = cross_attention_shape(model.config.model)
    if not (0 <= head.layer < num_layers and (head.head is None or 0 <= head.head < num_heads)):
        raise TaskError(
            f"expected a layer of 0 to {num_layers - 1} and a head of 0 to {num_heads - 1}, got {head}; choose one"
        )


def _attention(model: LoadedModel, pairs: Sequence[Pair], path: Path | str, layer: int) -> Iterator[WordAttention]:
    """Yield the cross-attention of one layer between the words of each pair, under forced decoding of its target."""
    encoded = encode_pairs(model, pairs, path)
    for one in encoded:
        if not one.source or not one.target or model.tokenizer.target.unk_id in one.target:
            problem = (
                "a side has no pieces, or the target has some that the tokenizer does not know; leave the line out"
            )
            raise DataError.at(path, one.pair.line, problem)
    engine = model.scoring_engine
    return (
        _by_words(model, one, weights_HTS[None])
        for one, _, weights_HTS in decode_forced(engine, encoded, model.tokenizer.eos_id, layer)
        if weights_HTS is not None
    )


def _by_words(model: LoadedModel, pair: EncodedPair, weights_1HTS: NDArray[np.float32]) -> WordAttention:
    """Return the attention between words from that between tokens."""
    tokenizer, spell = model.tokenizer, get_task(model.config.task).codec.detokenize
    read = [*pair.source, tokenizer.eos_id]
    written = [model.config.model.decoder_start_id, *pair.target, tokenizer.eos_id]
    source = WordSpans(source_token_spans(tokenizer, pair.pair.source, read), pair.pair.source)
    target = WordSpans(target_token_spans(tokenizer.target, spell, written)[1:], spell(tokenizer.target, written))
    return by_words(weights_1HTS, target, source)


def _stack(layers: Sequence[WordAttention]) -> WordAttention:
    """Return the attention of all layers of one pair."""
    return replace(layers[0], weights_LHJI=np.concatenate([layer.weights_LHJI for layer in layers]))
