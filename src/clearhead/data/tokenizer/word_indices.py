"""Which word each piece belongs to, from the text the pieces spell."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

NO_WORD = -1
APOSTROPHES = "'’"


def word_indices(surfaces: Sequence[bytes]) -> list[int]:
    """The index of the word of each piece, given the bytes that each stands for; a piece without bytes has none.

    A word is a run of letters, marks and digits (with apostrophes inside it) or of one and the same other character.
    White space belongs to the word after it. Works on bytes, since a piece may hold a part of a character.
    """
    text = b"".join(surfaces).decode("utf-8", "surrogateescape")
    of_bytes: list[int] = []
    for char, word in zip(text, _words_of_characters(text), strict=True):
        of_bytes += [word] * len(char.encode("utf-8", "surrogateescape"))
    starts = [0]
    for surface in surfaces:
        starts.append(starts[-1] + len(surface))
    words = [of_bytes[start] if end > start else NO_WORD for start, end in pairwise(starts)]
    dense = {word: index for index, word in enumerate(sorted(set(words) - {NO_WORD}))}  # a piece may hold two words
    return [dense.get(word, NO_WORD) for word in words]


def _words_of_characters(text: str) -> list[int]:
    words: list[int] = []
    word, previous = NO_WORD, " "
    for index, char in enumerate(text):
        following = text[index + 1] if index + 1 < len(text) else " "
        if char in APOSTROPHES and is_wordlike(previous) and is_wordlike(following):
            char = previous
        joins = char == previous or (is_wordlike(char) and is_wordlike(previous))
        if not char.isspace() and not joins:
            word += 1
        words.append(word + 1 if char.isspace() else word)
        previous = char
    last = max(word, 0)
    return [min(index, last) for index in words]


@lru_cache(maxsize=4096)
def is_wordlike(char: str) -> bool:
    """Whether words are made of it: a letter, a mark, a digit or an underscore."""
    return unicodedata.category(char)[0] in "LMN" or char == "_"
