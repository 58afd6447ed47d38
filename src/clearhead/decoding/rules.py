"""Rules of search: which tokens may not follow a hypothesis. Each is a pure function of what was written.

N searches, W hypotheses of each, R = N*W rows, T tokens so far, V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.beams import Beams
from clearhead.decoding.candidates import NEVER

if TYPE_CHECKING:
    from clearhead.decoding.layout import Constraints

Bans = Iterator[tuple[int, Sequence[int]]]
"""Rows with the tokens that may not follow there."""


class Rule(Protocol):
    """Says what may not follow."""

    def bans(self, beams: Beams, /) -> Bans:
        """Rows, and the tokens that may not follow there."""


def forbid(log_probs_RV: Tensor, rules: Sequence[Rule], beams: Beams) -> None:
    """Takes what the rules ban out of the candidates; `log_probs_RV` is changed in place."""
    rows: list[int] = []
    tokens: list[int] = []
    for rule in rules:
        for row, banned in rule.bans(beams):
            rows += [row] * len(banned)
            tokens += banned
    if rows:
        log_probs_RV[torch.tensor(rows), torch.tensor(tokens)] = NEVER


@dataclass(frozen=True)
class MinLength:
    """No end before so many tokens."""

    least: int
    end_id: int

    def bans(self, beams: Beams) -> Bans:
        """The end, everywhere."""
        if beams.length < self.least:
            for row in range(beams.totals_NW.size):
                yield row, (self.end_id,)


@dataclass(frozen=True)
class NoRepeat:
    """No so many tokens in a row twice."""

    size: int
    before_N: Sequence[Sequence[int]]
    """What stands before the output of each search, and is not to be repeated either."""

    def bans(self, beams: Beams) -> Bans:
        """What followed the same `size` - 1 tokens before."""
        for row, search, tokens in _live(beams):
            yield row, repeating([*self.before_N[search], *tokens], self.size)


def repeating(tokens: Sequence[int], size: int) -> list[int]:
    """The tokens that would write `size` tokens in a row for the second time."""
    before = tokens[len(tokens) - size + 1 :]
    starts = range(len(tokens) - size + 1) if len(tokens) >= size else range(0)
    return [tokens[start + size - 1] for start in starts if list(tokens[start : start + size - 1]) == list(before)]


@dataclass(frozen=True)
class Spelling:
    """All the ways to write one word in tokens: how far each token gets, in bytes of the word.

    Compiled from what tokens spell, so that search need not know. A word begins where no letter stands before it.
    """

    length: int
    go_on: tuple[dict[int, int], ...]
    """By how far the word is written: the tokens that go on with it, and how far they get."""
    begin: dict[int, tuple[int, ...]]
    """Tokens that begin the word after something of their own, such as a space."""
    begin_open: dict[int, tuple[int, ...]]
    """Tokens that begin the word with their first byte."""
    opening: frozenset[int]
    """Tokens behind which a word can begin: they end with no letter."""
    joining: frozenset[int] = frozenset()
    """Tokens that go on with the last letter: right behind the word they would make it another one."""
    _ends: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def reached(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """How far the word may be written at the end of these tokens, all ways of it; -1 where it can begin."""
        tail = tokens[-self.length :]
        is_open = len(tail) == len(tokens) or tokens[-self.length - 1] in self.opening
        places: set[int] = set()
        for token in tail:
            places, is_open = self._moved(places, is_open, token) - {self.length}, token in self.opening
        return (*((-1,) if is_open else ()), *sorted(places))

    def written(self, tokens: Sequence[int]) -> list[int]:
        """How many of these tokens it takes, each time that the word is written and not made another one."""
        found, places, is_open = [], set[int](), True
        for end, token in enumerate(tokens, 1):
            moved = self._moved(places, is_open, token)
            if self.length in moved and (end == len(tokens) or tokens[end] not in self.joining):
                found.append(end)
            places, is_open = moved - {self.length}, token in self.opening
        return found

    def _moved(self, places: set[int], is_open: bool, token: int) -> set[int]:
        """How far the word is written with one more token."""
        moved = {self.go_on[place][token] for place in places if token in self.go_on[place]}
        moved.update(self.begin.get(token, ()))
        if is_open:
            moved.update(self.begin_open.get(token, ()))
        return moved

    def ends(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that would complete the word behind these."""
        places = self.reached(tokens)
        if places not in self._ends:
            found = {token for token, reach in self.begin.items() if self.length in reach}
            if -1 in places:
                found |= {token for token, reach in self.begin_open.items() if self.length in reach}
            for place in places:
                if place >= 0:
                    found |= {token for token, reach in self.go_on[place].items() if reach == self.length}
            self._ends[places] = sorted(found)
        return self._ends[places]


def exactly(tokens: Sequence[int], joining: frozenset[int] = frozenset()) -> Spelling:
    """The one way to write a word that has no other, wherever it stands: its length is counted in tokens."""
    go_on = tuple({token: place + 1} if place else {} for place, token in enumerate(tokens))
    return Spelling(len(tokens), go_on, {tokens[0]: (1,)}, {}, frozenset(), joining)


@dataclass(frozen=True)
class Exclude:
    """No word of a list, however it is cut into tokens; also not as the beginning of a longer one."""

    words_N: Sequence[Sequence[Spelling]]
    """Of each search."""
    before_N: Sequence[Sequence[int]]
    """What stands before the output of each search: a word may have begun there."""

    def bans(self, beams: Beams) -> Bans:
        """What would complete a word."""
        for row, search, tokens in _live(beams):
            for word in self.words_N[search]:
                yield row, word.ends([*self.before_N[search], *tokens])


def _live(beams: Beams) -> Iterator[tuple[int, int, list[int]]]:
    """Each row with a hypothesis, its search, and what it has written."""
    tokens_RT, width = beams.tokens_RT, beams.totals_NW.shape[1]
    for row in beams.live_rows().tolist():
        yield row, int(beams.searches_N[row // width]), tokens_RT[row].tolist()


def rules_of(settings: DecodingConfig, end_id: int, asked_N: "Sequence[Constraints]") -> list[Rule]:
    """The rules that are on; `asked_N` is what is asked of each search."""
    rules: list[Rule] = []
    words_N, before_N = [each.exclude for each in asked_N], [each.before for each in asked_N]
    if settings.min_length:
        rules.append(MinLength(settings.min_length, end_id))
    if settings.no_repeat_ngram_size:
        rules.append(NoRepeat(settings.no_repeat_ngram_size, before_N))
    if any(words_N):
        rules.append(Exclude(words_N, before_N))
    return rules
