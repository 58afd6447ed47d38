"""A text with its words, their tags and the spans that the tags mark: what tagging gives.

Knows characters and tags, nothing of pieces or networks.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.evaluation.labels import find_spans

# Letters and digits with apostrophes inside, or any other character alone; U+0301 stands for all that joins the
# character before it: accents, which \w does not know where they stand alone, and joiners.
_WORD = re.compile(r"(?:\w\u0301*)+(?:['’](?:\w\u0301*)+)*|[^\w\s]\u0301*")
_JOINERS = "\u200c\u200d"
_BRACKETS = re.compile(r"[\\\[\]]")


@dataclass(frozen=True)
class Entity:
    """A span of a text, in characters; `score` is the mean probability of the tags of its words."""

    type: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text, in characters, and its tag."""

    word: str
    start: int
    end: int
    tag: str


@dataclass(frozen=True)
class TaggedText:
    """A text, its words with their tags, and the spans that the tags mark. The tags are a sound BIO sequence."""

    text: str
    entities: tuple[Entity, ...]
    words: tuple[TaggedWord, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "text": self.text,
            "entities": [asdict(entity) for entity in self.entities],
            "words": [asdict(word) for word in self.words],
        }

    def __str__(self) -> str:
        """The text with its spans marked: `[Nairobi LOC]`. Brackets and backslashes of the text get a backslash."""
        parts, done = [], 0
        for entity in self.entities:
            parts.append(_escape(self.text[done : entity.start]))
            parts.append(f"[{_escape(entity.text)} {_escape(entity.type)}]")
            done = entity.end
        return "".join(parts) + _escape(self.text[done:])


def _escape(text: str) -> str:
    return _BRACKETS.sub(r"\\\g<0>", text)


def find_words(text: str, is_split: bool = False) -> list[tuple[int, int]]:
    """Where the words of a text begin and end; together they hold every character that is no white space.

    Of a text that came already split, words are what stands between white space.
    """
    if is_split:
        return [match.span() for match in re.finditer(r"\S+", text)]
    joined = ("\u0301" if unicodedata.category(char)[0] == "M" or char in _JOINERS else char for char in text)
    return [match.span() for match in _WORD.finditer("".join(joined))]


def mark_spans(
    text: str, places: Sequence[tuple[int, int]], tags: Sequence[str], share_W: NDArray[np.float64]
) -> TaggedText:
    """A text with the words at these places, their tags and the probabilities of the tags."""
    entities = []
    for span in find_spans(tags):
        start, end = places[span.start][0], places[span.end - 1][1]
        score = float(share_W[span.start : span.end].mean())
        entities.append(Entity(span.type, start, end, text[start:end], score))
    words = [TaggedWord(text[start:end], start, end, tag) for (start, end), tag in zip(places, tags, strict=True)]
    return TaggedText(text, tuple(entities), tuple(words))


def tag_split_words(words: Sequence[str], tags: Sequence[str]) -> TaggedText:
    """Words that came split, with tags that are certain."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    places = [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]
    return mark_spans(" ".join(words), places, tags, np.ones(len(words)))
