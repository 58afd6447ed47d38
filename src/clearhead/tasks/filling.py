"""Gaps in a text filled by a masked language model (S7): each gap with the pieces that fit it best.

M gaps of a text, V vocabulary, S length
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from clearhead.data.segmentation import Segmenter
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_encoder_engine import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.tasks.examples import framed, most_pieces
from clearhead.tasks.framed_texts import SPECIAL_TOKENS
from clearhead.tasks.long_texts import LongTexts, segment_texts
from clearhead.tasks.masked import vocabulary_of
from clearhead.tasks.task import Ready

GAP = re.compile(r"\[MASK\]|<mask>")
SPACE_SHOWN = "▁"


@dataclass(frozen=True)
class Filling:
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
    model: Ready, texts: Sequence[str], top: int, first_line: int = 1, long_texts: LongTexts | None = None
) -> list[list[list[Filling]]]:
    """Return for each mask of each text the `top` most probable tokens, best first; nothing for a text without a mask.

    A long text is split, and each mask is filled in the part that contains it. Errors name a text by its line.
    """
    if top < 1:
        raise DataError(f"expected at least 1 filling per mask, not {top}; try 5")
    limit = most_pieces(model.config) - SPECIAL_TOKENS
    segmenter = Segmenter("none", "", limit, partial(_count_tokens, model.tokenizer))
    results: list[list[list[Filling]]] = []
    tally = long_texts or LongTexts()
    for line, text in enumerate(texts, first_line):
        [segmented] = segment_texts([text], segmenter, tally, line) if GAP.search(text) else [None]
        parts = [part for part in segmented.parts if GAP.search(part)] if segmented else []
        results.append(_fill_parts(model, text, parts, top) if parts else [])
    return results


def _count_tokens(tokenizer: Tokenizer, parts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each part; a mask is one token."""
    plain = iter(tokenizer.encode_batch([part for part in parts if not GAP.search(part)]))
    return [len(encode_gaps(tokenizer, part) if GAP.search(part) else next(plain)) for part in parts]


def _fill_parts(model: Ready, text: str, parts: Sequence[str], top: int) -> list[list[Filling]]:
    """Return the fillings of the masks of a text; `parts` are those of its parts that contain masks."""
    tokenizer, gaps = model.tokenizer, list(GAP.finditer(text))
    mask_id = vocabulary_of(tokenizer).mask_id
    rows = [framed(tokenizer, encode_gaps(tokenizer, part)) for part in parts]
    positions = [[position for position, token in enumerate(row) if token == mask_id] for row in rows]
    log_probs_MV = np.concatenate(TorchEncoderEngine(model.network).masked_lm(rows, positions))
    log_probs_MV[:, list(tokenizer.special_ids)] = -np.inf  # special tokens are not text
    count = min(top, tokenizer.vocab_size - len(tokenizer.special_ids))
    best_MK = np.argsort(-log_probs_MV, axis=1, kind="stable")[:, :count]
    return [
        [_filling(tokenizer, text, gaps, number, index, float(np.exp(log_probs_V[index]))) for index in best_K.tolist()]
        for number, (log_probs_V, best_K) in enumerate(zip(log_probs_MV, best_MK, strict=True))
    ]


def encode_gaps(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text with <mask> in each gap; elsewhere the pieces are those of the text without gaps.

    A character that is no letter, digit or space is always cut off from its neighbours, so one that the text does not
    hold stands in for each gap while it is encoded. The space before a word is part of the word's first piece: so is
    the one before a gap, except where every character is a piece.
    """
    mask_id = vocabulary_of(tokenizer).mask_id
    read = tokenizer.encode_masked(GAP.sub("<mask>", text))
    if read is not None:
        return read
    stand_ins = _unused(text, 2)  # two in turn: a run of the same one would not be cut
    encoded, starts = "", []
    behind = 0
    for number, gap in enumerate(GAP.finditer(text)):
        encoded += text[behind : gap.start()]
        is_split = tokenizer.config.kind == "pretokenized"
        if is_split and encoded and not encoded[-1].isspace():
            encoded += " "
        starts.append(len(encoded))
        encoded += stand_ins[number % 2]
        behind = gap.end()
        if is_split and behind < len(text) and not text[behind].isspace():
            encoded += " "
    encoded += text[behind:]
    return _with_masks(tokenizer, encoded, starts, mask_id)


def _with_masks(tokenizer: Tokenizer, text: str, starts: Sequence[int], mask_id: int) -> list[int]:
    """The ids of a text where what is spelled at each of these places is one <mask>."""
    found = tokenizer.encode(text)
    gaps, keeps_space = set(starts), tokenizer.config.kind == "char"
    ids: list[int] = []
    open_gap = -1
    for index, (start, end) in zip(found.ids, found.offsets, strict=True):
        if start not in gaps or (keeps_space and start == end):
            ids.append(index)
        elif start != open_gap:  # the first of the pieces that spell the stand-in
            ids.append(mask_id)
            open_gap = start
    return ids


def _unused(text: str, count: int) -> list[str]:
    """Characters for private use that the text does not hold."""
    return list(islice((char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text), count))


def _filling(
    tokenizer: Tokenizer, text: str, gaps: Sequence[re.Match[str]], number: int, index: int, share: float
) -> Filling:
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
    return Filling(number + 1, word, piece, share, before + spelled + after)
