"""Which source word each target word looked at: encoder-decoder attention, from pieces to words.

L decoder layers, H heads, T target pieces, S source pieces, I source words, J target words
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.generator import Generator
from clearhead.errors import TaskError


@dataclass(frozen=True)
class WordAttention:
    """Attention between words; `weights_LHJI` sums to the share of attention that went to words, not to the end."""

    source_words: list[str]
    target_words: list[str]
    weights_LHJI: NDArray[np.float32]

    def links(self, layer: int) -> frozenset[tuple[int, int]]:
        """For each target word the source word that the heads of a layer look at most, as (source, target)."""
        best_J = self.weights_LHJI[layer].mean(0).argmax(1)
        return frozenset((int(i), j) for j, i in enumerate(best_J))


@torch.inference_mode()
def word_attention(model: Generator[Any, Any], tokenizer: Tokenizer, source: str, target: str) -> WordAttention:
    """Attention while the model is made to write `target`.

    The attention that belongs to a piece is that of the step which predicts it. A word of several pieces gets the
    sum over its source pieces and the mean over its target pieces.
    """
    src, tgt = tokenizer.encode(source), tokenizer.target.encode(target)
    memory = model.encode(torch.tensor([[*src.ids, tokenizer.eos_id]]))
    first, state = model.start(memory, 1)
    step = model.step(torch.cat((first, torch.tensor([tgt.ids], dtype=first.dtype)), 1), state, want_attention=True)
    if not step.attention:
        raise TaskError("this model has no attention between source and target: model.attention=none")
    weights_LHTS = torch.stack([layer.cross_RHTS[0] for layer in step.attention]).numpy()
    source_of, target_of = tokenizer.words(src.ids), tokenizer.target.words(tgt.ids)
    to_source = _membership(source_of)
    to_target = _membership(target_of)
    by_word = np.einsum("lhts,si,tj->lhji", weights_LHTS[:, :, : len(tgt.ids), : len(src.ids)], to_source, to_target)
    by_word /= to_target.sum(0)[:, None]
    return WordAttention(_texts(tokenizer, src.ids, source_of), _texts(tokenizer.target, tgt.ids, target_of), by_word)


def _membership(word_of: Sequence[int]) -> NDArray[np.float32]:
    """A 1 where a piece belongs to a word."""
    member = np.zeros((len(word_of), max(word_of, default=-1) + 1), dtype=np.float32)
    for piece, word in enumerate(word_of):
        if word >= 0:
            member[piece, word] = 1
    return member


def _texts(tokenizer: Tokenizer, ids: Sequence[int], word_of: Sequence[int]) -> list[str]:
    groups: dict[int, list[int]] = {}
    for index, word in zip(ids, word_of, strict=True):
        groups.setdefault(word, []).append(index)
    return [tokenizer.decode(groups[word]).strip() for word in sorted(groups) if word >= 0]
