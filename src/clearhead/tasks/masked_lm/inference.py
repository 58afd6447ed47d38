"""Gaps in a text filled by a masked language model (S7): each gap with the pieces that fit it best.

M gaps of a text, V vocabulary, S length
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from clearhead.data.segmentation import Segmenter
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError
from clearhead.tasks.long_texts import LongTexts, segment_texts
from clearhead.tasks.masked_lm.mask_tokens import MASK_PATTERN, encode_with_masks, find_mask_id
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import SPECIAL_TOKENS, EncoderCodec, max_input_tokens

SPACE_SHOWN = "▁"


@dataclass(frozen=True)
class MaskFilling:
    """One piece in one gap. `text` is the whole text with it; other gaps stay open."""

    gap: int  # counted from 1
    word: str
    piece: str  # as the vocabulary has it: with the space before it, which is shown as "▁"
    probability: float
    text: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "gap": self.gap,
            "word": self.word,
            "piece": self.piece,
            "probability": self.probability,
            "text": self.text,
        }


def fill(
    model: LoadedModel, texts: Sequence[str], top: int, first_line: int = 1, long_texts: LongTexts | None = None
) -> list[list[list[MaskFilling]]]:
    """Return for each mask of each text the `top` most probable tokens, best first; nothing for a text without a mask.

    A long text is split, and each mask is filled in the part that contains it. Errors name a text by its line.
    """
    if top < 1:
        raise DataError(f"expected at least 1 filling per mask, not {top}; try 5")
    limit = max_input_tokens(model.config) - SPECIAL_TOKENS
    segmenter = Segmenter("none", "", limit, partial(_count_tokens, model.tokenizer))
    results: list[list[list[MaskFilling]]] = []
    tally = long_texts or LongTexts()
    for line, text in enumerate(texts, first_line):
        [segmented] = segment_texts([text], segmenter, tally, line) if MASK_PATTERN.search(text) else [None]
        parts = [part for part in segmented.parts if MASK_PATTERN.search(part)] if segmented else []
        results.append(_fill_parts(model, text, parts, top) if parts else [])
    return results


def _count_tokens(tokenizer: Tokenizer, parts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each part; a mask is one token."""
    plain = iter(tokenizer.encode_batch([part for part in parts if not MASK_PATTERN.search(part)]))
    return [len(encode_with_masks(tokenizer, part) if MASK_PATTERN.search(part) else next(plain)) for part in parts]


def _fill_parts(model: LoadedModel, text: str, parts: Sequence[str], top: int) -> list[list[MaskFilling]]:
    """Return the fillings of the masks of a text; `parts` are those of its parts that contain masks."""
    tokenizer, gaps = model.tokenizer, list(MASK_PATTERN.finditer(text))
    mask_id = find_mask_id(tokenizer)
    rows = [EncoderCodec().add_special_tokens(tokenizer, encode_with_masks(tokenizer, part)) for part in parts]
    positions = [[position for position, token in enumerate(row) if token == mask_id] for row in rows]
    log_probs_MV = np.concatenate(model.encoder_engine.masked_lm(rows, positions))
    log_probs_MV[:, list(tokenizer.special_ids)] = -np.inf  # special tokens are not text
    count = min(top, tokenizer.vocab_size - len(tokenizer.special_ids))
    best_MK = np.argsort(-log_probs_MV, axis=1, kind="stable")[:, :count]
    return [
        [_filling(tokenizer, text, gaps, number, index, float(np.exp(log_probs_V[index]))) for index in best_K.tolist()]
        for number, (log_probs_V, best_K) in enumerate(zip(log_probs_MV, best_MK, strict=True))
    ]


def _filling(
    tokenizer: Tokenizer, text: str, gaps: Sequence[re.Match[str]], number: int, index: int, share: float
) -> MaskFilling:
    piece, kind = tokenizer.piece(index), tokenizer.config.kind
    spelled = tokenizer.decode_pieces([index])
    if "\ufffd" in spelled:  # a byte that is no character alone
        spelled = piece
    before, after = text[: gaps[number].start()], text[gaps[number].end() :]
    if kind != "char" and not (kind == "pretokenized" or piece.startswith(SPACE_SHOWN)):
        before = before.rstrip()  # what goes on with the word before has no space
    elif kind != "char" and before and not before[-1].isspace():
        before += " "
    word = spelled if spelled.strip() else piece
    return MaskFilling(number + 1, word, piece, share, before + spelled + after)
