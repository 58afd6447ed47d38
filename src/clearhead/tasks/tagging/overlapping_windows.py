"""Tokens of the words of a sentence, and overlapping windows over sentences with more tokens than the model accepts."""

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
    """The tokens of a sentence. Word i has `ids[bounds[i]:bounds[i + 1]]`."""

    ids: list[int]
    firsts: list[int]
    """Position at which the tag of each word is predicted: that of its first token that is not only a space."""

    @property
    def bounds(self) -> list[int]:
        """Start of each word and end of the last one; a separate space token belongs to the word before it."""
        return [0, *self.firsts[1:], len(self.ids)] if self.firsts else [0]


class WordWindow(NamedTuple):
    """Window over the words from `start` up to, but not including, `end`."""

    start: int
    end: int


def tokenize_words(tokenizer: Tokenizer, words: Sequence[str]) -> WordTokens:
    """Return the tokens of the words, joined by single spaces."""
    encoding = tokenizer.encode(" ".join(words))
    space = "" if tokenizer.config.kind == "pretokenized" else SPACE_MARK
    firsts: list[int] = []
    position = start = 0
    for word in words:
        while position < len(encoding.ids) - 1 and (
            encoding.offsets[position][1] <= start or encoding.tokens[position] == space
        ):
            position += 1
        firsts.append(position)
        start += len(word) + 1
    return WordTokens(encoding.ids, firsts)


def truncate_words(sentence: WordTokens, max_tokens: int) -> WordTokens:
    """Return the sentence with each word truncated to `max_tokens` tokens, so that every word fits into a window.

    The predictions remain possible, because the tag of a word is predicted at its first token.
    """
    bounds = sentence.bounds
    if all(end - start <= max_tokens for start, end in pairwise(bounds)):
        return sentence
    ids, firsts = list[int](), list[int]()
    for (start, end), first in zip(pairwise(bounds), sentence.firsts, strict=True):
        firsts.append(len(ids) + min(first - start, max_tokens - 1))
        ids += sentence.ids[start:end][:max_tokens]
    return WordTokens(ids, firsts)


def cover_words(bounds: Sequence[int], max_tokens: int) -> list[WordWindow]:
    """Return windows of at most `max_tokens` tokens that cover all words and overlap by about half."""
    last = len(bounds) - 1
    windows: list[WordWindow] = []
    start = end = 0
    while end < last:
        end = bisect_right(bounds, bounds[start] + max_tokens) - 1
        assert end > start, "a word is larger than a window"
        windows.append(WordWindow(start, end))
        middle = bisect_left(bounds, (bounds[start] + bounds[end]) / 2)
        start = min(max(middle, start + 1), end)
        if bounds[last] - bounds[start] <= max_tokens:  # the last window begins as early as possible
            start = bisect_left(bounds, bounds[last] - max_tokens)
    return windows


def best_windows(bounds: Sequence[int], windows: Sequence[WordWindow]) -> list[int]:
    """Return, for each word, the index of the window that maximizes the smaller of left and right context.

    Where a window begins or ends with the sentence, the context on that side is complete and counts as infinite.
    """
    last = len(bounds) - 1
    best = [(-1.0, 0)] * last
    for number, (start, end) in enumerate(windows):
        for word in range(start, end):
            left = bounds[word] - bounds[start] if start else math.inf
            right = bounds[end] - bounds[word + 1] if end < last else math.inf
            best[word] = max(best[word], (min(left, right), -number))
    return [-number for _, number in best]
