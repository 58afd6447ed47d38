"""Holes in a text, marked by sentinels (T5, section 3.1.4): made at random, and written and read by people.

Sentinels such as <x0> are special tokens: text never turns into one, except where a user marks holes by them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clearhead.data.corpus.id_arrays import IdArrays, PairIds
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError

MEAN_SPAN = 3
SENTINEL_FORM = re.compile(r"<x[0-9]+>")
FIXED_SEED = 0  # of the holes in validation and test texts: every model and every run gets the same


class CorruptedText(NamedTuple):
    """A text with sentinels for the holes, and the sentinels each with what was in its hole."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class SpanCorruption:
    """How holes are made: which share of the pieces is hidden, in spans of mean length 3."""

    sentinels: tuple[int, ...]
    share: float

    def counts(self, length: int) -> tuple[int, int]:
        """How many pieces of a text are hidden, and in how many spans: always the same for the same length."""
        hidden = min(max(1, round(length * self.share)), length - 1)
        spans = max(1, min(round(hidden / MEAN_SPAN), len(self.sentinels) - 1, length - hidden + 1))
        return hidden, spans

    def apply(self, ids: Sequence[int], rng: np.random.Generator) -> CorruptedText:
        """The text with holes, all places of the spans being equally probable. At least one piece lies between two."""
        hidden, spans = self.counts(len(ids))
        gone = _compose(hidden, spans, rng)
        kept = _compose(len(ids) - hidden + 2, spans + 1, rng)
        kept[0] -= 1  # the text may begin or end with a hole
        source: list[int] = []
        target: list[int] = []
        place = 0
        for sentinel, kept_here, gone_here in zip(self.sentinels, kept, gone, strict=False):
            source += [*ids[place : place + kept_here], sentinel]
            target += [sentinel, *ids[place + kept_here : place + kept_here + gone_here]]
            place += kept_here + gone_here
        return CorruptedText([*source, *ids[place:]], [*target, self.sentinels[spans]])

    def fixed(self, texts: Sequence[Sequence[int]], lines: Sequence[int]) -> PairIds:
        """The texts with holes that never change."""
        made = [self.apply(ids, np.random.default_rng([FIXED_SEED, index])) for index, ids in enumerate(texts)]
        sources, targets = IdArrays.build(one.source for one in made), IdArrays.build(one.target for one in made)
        return PairIds(sources, targets, np.asarray(lines, dtype=np.int64))


def _compose(total: int, count: int, rng: np.random.Generator) -> list[int]:
    """`count` numbers of at least 1 that add up to `total`, all ways equally probable."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return [int(part) for part in np.diff(np.concatenate(([0], cuts, [total])))]


def find_sentinels(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of <x0>, <x1>, ... in a tokenizer."""
    found = [name for name in tokenizer.config.special_tokens if SENTINEL_FORM.fullmatch(name)]
    if len(found) < 2:
        raise ConfigError(
            f"denoising needs a tokenizer with two or more sentinels such as <x0>, this one has {len(found)}; "
            "name them in tokenizer.special_tokens, or do not start from this model."
        )
    return tuple(tokenizer.config.all_special_tokens.index(name) for name in found)


def spans_by_sentinel(ids: Sequence[int], sentinels: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """What stands behind each sentinel; a sentinel that is written twice counts once, with what comes first."""
    spans: dict[int, tuple[int, ...]] = {}
    starts = [place for place, token in enumerate(ids) if token in sentinels]
    for start, end in pairwise([*starts, len(ids)]):
        spans.setdefault(ids[start], tuple(ids[start + 1 : end]))
    return spans


def encode_with_sentinels(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text in which the tokenizer's sentinels are marks and not text."""
    names = {tokenizer.config.all_special_tokens[index]: index for index in find_sentinels(tokenizer)}
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
    ids: list[int] = []
    for number, part in enumerate(parts):
        if number % 2:
            ids.append(names[part])
        elif part:
            ids += _encode_between(tokenizer, part, is_first=number == 0, is_last=number == len(parts) - 1)
    return ids


def _encode_between(tokenizer: Tokenizer, part: str, is_first: bool, is_last: bool) -> list[int]:
    """The pieces of what stands between two marks, as they would be in the whole text.

    A tokenizer gives every text a space in front, and takes spaces at its ends off. Here only a space that is there
    counts: a strange character before the part and behind it, whose pieces are taken off again, keeps it as it is.
    Where spaces are parts of the words behind them, the one before a mark belongs to what is hidden.
    """
    if tokenizer.config.kind != "char" and not is_last:
        part = part.rstrip()
    if not part:
        return []
    has_space = part[0].isspace() and tokenizer.config.kind != "char"
    part = part[1:] if has_space and not is_first else part
    before = "" if is_first or has_space else _stranger(part[0])
    behind = "" if is_last or tokenizer.config.kind != "char" else "0"
    lengths = [len(tokenizer.encode_batch([edge])[0]) if edge else 0 for edge in (before, behind)]
    ids = tokenizer.encode_batch([before + part + behind])[0]
    return ids[lengths[0] : len(ids) - lengths[1]]


def _stranger(char: str) -> str:
    """A character that no kind of tokenizer joins with this one."""
    return "." if char.isdecimal() else "0"


def decode_with_sentinels(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of the ids with the sentinels in it."""
    sentinels = find_sentinels(tokenizer)
    starts = [0, *(place for place, token in enumerate(ids) if token in sentinels), len(ids)]
    parts = []
    for start, end in pairwise(starts):
        run = ids[start:end]
        name = tokenizer.piece(run[0]) if len(run) and run[0] in sentinels else ""
        parts += [part for part in (name, tokenizer.decode(run)) if part]
    return " ".join(parts)
