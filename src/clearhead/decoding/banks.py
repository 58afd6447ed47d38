"""Words that must be written: grid beam search (Hokamp and Liu, 2017) over banks.

A hypothesis stands in the bank of how many tokens of the wanted phrases it has written; each bank keeps its own `beam`
best, so that those who have paid for a phrase are not pushed out by those who have not. Only the last bank may end.
Where there is just room for what is missing, nothing else may follow: so phrases are always written if the limit has
room for them and no other rule stands in the way.

M sentences, G banks, W hypotheses of each bank, R = M*G*W rows, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.beams import Beams
from clearhead.decoding.candidates import NEVER, Candidates, Ints, best_candidates
from clearhead.decoding.choosing import stacked
from clearhead.decoding.rules import Spelling, exactly

_OTHER, _JOINING, _OPENING = -1, -2, -3
"""Stand for any token that has to do with no phrase; one that goes on with the word before; one that parts words."""
LETTER = -4
"""Stands for a prompt that ends with a letter: what follows right behind it begins no word."""


@dataclass(frozen=True)
class Phrases:
    """What must be written: the tokens that write each phrase where nothing else does, and every way to write it."""

    wanted: tuple[tuple[int, ...], ...] = ()
    joining: frozenset[int] = frozenset()
    """Tokens that go on with the word before them: right behind a phrase they may make it another word."""
    words: tuple[Spelling, ...] = ()
    """How else each phrase may be written; if not given, only in its tokens."""
    lead: tuple[int, ...] = ()
    """What is taken to stand before the output: nothing, or `LETTER`."""

    @property
    def size(self) -> int:
        """Tokens of all phrases."""
        return sum(map(len, self.wanted))

    @cached_property
    def spellings(self) -> tuple[Spelling, ...]:
        """Of each phrase."""
        return self.words or tuple(exactly(phrase, self.joining) for phrase in self.wanted)

    @cached_property
    def parting(self) -> list[int]:
        """The tokens that part words, if any phrase needs that."""
        pairs = zip(self.wanted, self.spellings, strict=True)
        return sorted(frozenset[int]().union(*(word.opening for each, word in pairs if _needs_edge(each, word))))

    def state(self, tokens: Sequence[int]) -> "Written":
        """What is written of each phrase by these tokens."""
        return Written(self, [*self.lead, *tokens])

    def bank(self, tokens: Sequence[int]) -> int:
        """How many tokens of phrases are written: of whole ones, and of the longest that is being written."""
        return self.state(tokens).after().bank

    def needed(self, tokens: Sequence[int]) -> int:
        """How many tokens more it takes to write what is missing."""
        return self.state(tokens).after().needed


class Standing(NamedTuple):
    """Where a hypothesis stands: its bank, and how many more tokens it needs at most."""

    bank: int
    needed: int


class Written:
    """What some tokens write of each phrase, so that one more of them is looked at quickly."""

    def __init__(self, phrases: Phrases, tokens: Sequence[int]) -> None:
        self.phrases, self.tokens = phrases, list(tokens)
        ends = [word.written(tokens) for word in phrases.spellings]
        self.is_whole = [bool(each) and each[0] < len(tokens) for each in ends]  # for good
        self.is_fresh = [each == [len(tokens)] for each in ends]  # if nothing goes on with it

    def telling(self) -> set[int]:
        """The tokens that write a phrase or may be a part of one."""
        missing = [word for word, is_whole in zip(self.phrases.spellings, self.is_whole, strict=True) if not is_whole]
        ends = {token for word in missing for token in word.ends(self.tokens)}
        return ends | {token for phrase in self.phrases.wanted for token in phrase}

    def after(self, *more: int) -> Standing:
        """Where the tokens stand, or where they would with one more of them."""
        tokens, bank, needed, begun, saved = [*self.tokens, *more], 0, 0, 0, 0
        for place, (phrase, word) in enumerate(zip(self.phrases.wanted, self.phrases.spellings, strict=True)):
            if self._has(place, word, *more):
                bank += len(phrase)
                continue
            needs_edge = _needs_edge(phrase, word)
            size, is_open = _begun(phrase, tokens, word.opening if needs_edge else None)
            begun, saved = max(begun, size), max(saved, size + (needs_edge and is_open))
            needed += len(phrase) + needs_edge  # a token that parts it from the word before
        return Standing(bank + begun, needed - saved)

    def _has(self, place: int, word: Spelling, *more: int) -> bool:
        if self.is_whole[place] or not more:
            return self.is_whole[place] or self.is_fresh[place]
        is_broken = more[0] in word.joining or (more[0] == _JOINING and bool(word.joining))
        return (self.is_fresh[place] and not is_broken) or more[0] in word.ends(self.tokens)


def _needs_edge(phrase: tuple[int, ...], word: Spelling) -> bool:
    """Whether it can begin only where no letter stands before it, for it brings no space of its own."""
    return phrase[0] in word.begin_open and phrase[0] not in word.begin


def _begun(phrase: tuple[int, ...], tokens: Sequence[int], opening: frozenset[int] | None) -> tuple[int, bool]:
    """How much of a phrase the tokens end with, less than all of it; and whether it may begin there.

    `opening`: the tokens behind which alone it can begin, where not all are such.
    """
    longest = min(len(phrase) - 1, len(tokens))
    for size in range(longest, -1, -1):
        start = len(tokens) - size
        is_open = opening is None or start == 0 or tokens[start - 1] in opening or tokens[start - 1] == _OPENING
        if size == 0 or (is_open and tuple(tokens[start:]) == phrase[:size]):
            return size, is_open
    raise AssertionError("of every phrase at least nothing is written")


class Banks:
    """Chooses the candidates of each bank."""

    def __init__(self, phrases: Sequence[Phrases], limits: Sequence[int], end_id: int) -> None:
        """Of each sentence; all have as many tokens to write."""
        self.phrases, self.limits, self.end_id = phrases, limits, end_id
        self.last = phrases[0].size
        assert all(each.size == self.last for each in phrases), "sentences with unlike banks in one batch"

    def choose(self, log_probs_RV: Tensor, beams: Beams) -> Candidates:
        """Bank by bank."""
        groups, width = self.last + 1, beams.totals_NW.shape[1]
        banks_RV = torch.full(log_probs_RV.shape, -1, dtype=torch.int32)
        for row in beams.live_rows().tolist():
            self._sort(banks_RV[row], beams.tokens_RT[row].tolist(), int(beams.searches_N[row // width]) // groups)
        banks_RV = banks_RV.to(log_probs_RV.device)
        totals_MW = beams.totals_NW.reshape(-1, groups * width)
        found = []
        for bank in range(groups):
            inside_RV = log_probs_RV.masked_fill(banks_RV != bank, NEVER)
            each = best_candidates(inside_RV, totals_MW, 2 * width + 1)
            parents_NK: Ints = each.parents_NK - bank * width  # from the bank's own first row
            # What is no candidate has no parent elsewhere.
            parents_NK = np.where(each.totals_NK > -np.inf, parents_NK, 0)
            found.append(Candidates(each.totals_NK, each.log_probs_NK, parents_NK, each.tokens_NK))
        return stacked(found)

    def _sort(self, banks_V: Tensor, tokens: list[int], sentence: int) -> None:
        """The bank that each token leads to behind these; it stays -1 for those that may not follow."""
        phrases = self.phrases[sentence]
        written = phrases.state(tokens)
        now, room = written.after(), self.limits[sentence] - len(tokens) - 1  # behind the next token

        def target(token: int) -> int:
            bank, needed = written.after(token)
            return bank if needed <= room or needed < now.needed else -1

        banks_V.fill_(target(_OTHER))
        if phrases.parting:
            banks_V[phrases.parting] = target(_OPENING)
        if any(written.is_fresh):
            banks_V[list(phrases.joining)] = target(_JOINING)
        for token in written.telling():
            banks_V[token] = target(token)
        banks_V[self.end_id] = self.last if now.bank == self.last else -1
