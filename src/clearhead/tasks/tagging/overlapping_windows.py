"""Sentences given in words, as pieces: where each word begins, and windows where a sentence does not fit at once.

Knows words and pieces, nothing of tags.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import SPACE_MARK


@dataclass(frozen=True)
class WordTokens:
    """The pieces of a sentence. Word i has `ids[bounds[i]:bounds[i + 1]]`."""

    ids: list[int]
    firsts: list[int]
    """The piece that stands for each word: the first that is no mere space."""

    @property
    def bounds(self) -> list[int]:
        """Where each word begins, and where the last ends; a space before a word belongs to the word before."""
        return [0, *self.firsts[1:], len(self.ids)] if self.firsts else [0]


class WordWindow(NamedTuple):
    """The words from `start` up to, not including, `end`."""

    start: int
    end: int


def tokenize_words(tokenizer: Tokenizer, words: Sequence[str]) -> WordTokens:
    """Return the tokens of the words, joined by single spaces."""
    encoding = tokenizer.encode(" ".join(words))
    space = "" if tokenizer.config.kind == "pretokenized" else SPACE_MARK
    firsts: list[int] = []
    piece = begin = 0
    for word in words:
        while piece < len(encoding.ids) - 1 and (
            encoding.offsets[piece][1] <= begin or encoding.pieces[piece] == space
        ):
            piece += 1
        firsts.append(piece)
        begin += len(word) + 1
    return WordTokens(encoding.ids, firsts)


def truncate_words(pieces: WordTokens, most: int) -> WordTokens:
    """Return the tokens without those of each word after its first `most`, so that a window can hold any word.

    The tag of a word is read at its first token.
    """
    bounds = pieces.bounds
    if all(end - start <= most for start, end in pairwise(bounds)):
        return pieces
    ids, firsts = list[int](), list[int]()
    for (start, end), first in zip(pairwise(bounds), pieces.firsts, strict=True):
        firsts.append(len(ids) + min(first - start, most - 1))
        ids += pieces.ids[start:end][:most]
    return WordTokens(ids, firsts)


def cover_words(bounds: Sequence[int], room: int) -> list[WordWindow]:
    """Windows of whole words with at most `room` pieces that cover all words; each overlaps the next by about half."""
    last = len(bounds) - 1
    found: list[WordWindow] = []
    start = end = 0
    while end < last:
        end = bisect_right(bounds, bounds[start] + room) - 1
        assert end > start, "a word is larger than a window"
        found.append(WordWindow(start, end))
        middle = bisect_left(bounds, (bounds[start] + bounds[end]) / 2)
        start = min(max(middle, start + 1), end)
        if bounds[last] - bounds[start] <= room:  # the last one may as well reach back as far as it can
            start = bisect_left(bounds, bounds[last] - room)
    return found


def best_windows(bounds: Sequence[int], found: Sequence[WordWindow]) -> list[int]:
    """For each word the number of the window in which it has most context on its poorer side.

    Where a window begins or ends with the sentence, no context is missing on that side.
    """
    last = len(bounds) - 1
    best = [(-1.0, 0)] * last
    for number, (start, end) in enumerate(found):
        for word in range(start, end):
            left = bounds[word] - bounds[start] if start else math.inf
            right = bounds[end] - bounds[word + 1] if end < last else math.inf
            best[word] = max(best[word], (min(left, right), -number))
    return [-number for _, number in best]
