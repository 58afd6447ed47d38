"""The word that each token belongs to, determined from the bytes of the tokens."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

NO_WORD = -1
APOSTROPHES = "'’"


def word_indices(surfaces: Sequence[bytes]) -> list[int]:
    """Return the index of the word of each token, given the bytes of each; NO_WORD for a token without bytes.

    A word is a run of letters, marks and digits, with apostrophes inside it, or a run of one other character. White
    space belongs to the following word. Works on bytes because a token may contain a part of a character.
    """
    text = b"".join(surfaces).decode("utf-8", "surrogateescape")
    word_of_byte: list[int] = []
    for char, word in zip(text, _words_of_characters(text), strict=True):
        word_of_byte += [word] * len(char.encode("utf-8", "surrogateescape"))
    starts = [0]
    for surface in surfaces:
        starts.append(starts[-1] + len(surface))
    words = [word_of_byte[start] if end > start else NO_WORD for start, end in pairwise(starts)]
    # Only words at which some token starts are numbered.
    compact = {word: index for index, word in enumerate(sorted(set(words) - {NO_WORD}))}
    return [compact.get(word, NO_WORD) for word in words]


def _words_of_characters(text: str) -> list[int]:
    """Return the word index of each character."""
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
    """Return whether a character is part of words: a letter, a mark, a digit or an underscore."""
    return unicodedata.category(char)[0] in "LMN" or char == "_"
