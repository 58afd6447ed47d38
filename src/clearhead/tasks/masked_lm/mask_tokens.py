"""Masks in texts: [MASK] or <mask> becomes the mask token, the rest is encoded as the text without masks."""

import re
from collections.abc import Sequence
from itertools import islice

from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK
from clearhead.errors import ConfigError

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>")


def find_mask_id(tokenizer: Tokenizer) -> int:
    """Return the id of the mask token; raise ConfigError if the tokenizer has none."""
    require_mask(tokenizer.config.special_tokens)
    assert tokenizer.mask_id is not None
    return tokenizer.mask_id


def require_mask(specials: Sequence[str]) -> None:
    """Refuses a vocabulary that has no sign for a hidden piece."""
    if MASK not in specials:
        found = ", ".join(specials) or "none"
        raise ConfigError(
            f"the task mlm needs {MASK} among tokenizer.special_tokens, found {found}; add it, or start from a "
            "model with it"
        )


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text with <mask> in each gap; elsewhere the pieces are those of the text without gaps.

    A character that is no letter, digit or space is always cut off from its neighbours, so one that the text does not
    hold stands in for each gap while it is encoded. The space before a word is part of the word's first piece: so is
    the one before a gap, except where every character is a piece.
    """
    mask_id = find_mask_id(tokenizer)
    read = tokenizer.encode_masked(MASK_PATTERN.sub("<mask>", text))
    if read is not None:
        return read
    stand_ins = _unused(text, 2)  # two in turn: a run of the same one would not be cut
    encoded, starts = "", []
    behind = 0
    for number, gap in enumerate(MASK_PATTERN.finditer(text)):
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
