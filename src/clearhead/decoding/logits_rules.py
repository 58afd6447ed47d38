"""Rules of the search: tokens that may not follow a hypothesis. Each rule is a pure function of the tokens so far.

N searches, W hypotheses of each, R = N*W rows, T tokens so far, V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beam_state import BeamState
from clearhead.decoding.generator import Floats

Bans = Iterator[tuple[int, Sequence[int]]]
"""Rows with the tokens that may not follow."""


class LogitsRule(Protocol):
    """Rule that bans tokens."""

    def bans(self, beams: BeamState, /) -> Bans:
        """Yield rows and the tokens that may not follow them."""


def apply_rules(log_probs_RV: Floats, rules: Sequence[LogitsRule], beams: BeamState) -> None:
    """Set the log-probabilities of banned tokens to -inf, in place."""
    rows: list[int] = []
    tokens: list[int] = []
    for rule in rules:
        for row, banned in rule.bans(beams):
            rows += [row] * len(banned)
            tokens += banned
    if rows:
        log_probs_RV[rows, tokens] = -np.inf


@dataclass(frozen=True)
class MinLength:
    """Bans the end token before a minimum number of tokens."""

    least: int
    eos_id: int

    def bans(self, beams: BeamState) -> Bans:
        """Yield the end token for every row."""
        if beams.length < self.least:
            for row in range(beams.totals_NW.size):
                yield row, (self.eos_id,)


@dataclass(frozen=True)
class NoRepeatNgram:
    """Forbids n-grams of this length from repeating."""

    size: int
    prompts_N: Sequence[Sequence[int]]
    """Tokens before the output of each search, whose n-grams may not be repeated either."""

    def bans(self, beams: BeamState) -> Bans:
        """Yield the tokens that followed the same `size` - 1 tokens before."""
        for row, search, tokens in _live(beams):
            yield row, repeating([*self.prompts_N[search], *tokens], self.size)


def repeating(tokens: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would repeat an n-gram of `size` tokens."""
    before = tokens[len(tokens) - size + 1 :]
    starts = range(len(tokens) - size + 1) if len(tokens) >= size else range(0)
    return [tokens[start + size - 1] for start in starts if list(tokens[start : start + size - 1]) == list(before)]


@dataclass(frozen=True)
class TokenAutomaton:
    """All segmentations of one word into tokens: states are the number of bytes written.

    Compiled from the surface forms of tokens, so that the search need not know them. A word begins where no letter is
    before it.
    """

    length: int
    """Bytes of the word."""
    go_on: tuple[dict[int, int], ...]
    """For each number of bytes written: the tokens that continue the word, and the bytes written after them."""
    begin: dict[int, tuple[int, ...]]
    """Tokens that begin the word after other characters, such as a space."""
    begin_open: dict[int, tuple[int, ...]]
    """Tokens that begin the word with their first byte."""
    opening: frozenset[int]
    """Tokens after which a word can begin: they do not end with a letter."""
    joining: frozenset[int] = frozenset()
    """Tokens that begin with a letter: directly after the word they would make it another one."""
    _ends: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def reached(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the possible numbers of bytes written at the end of these tokens; -1 where the word can begin."""
        tail = tokens[-self.length :]
        is_open = len(tail) == len(tokens) or tokens[-self.length - 1] in self.opening
        states: set[int] = set()
        for token in tail:
            states, is_open = self._moved(states, is_open, token) - {self.length}, token in self.opening
        return (*((-1,) if is_open else ()), *sorted(states))

    def written(self, tokens: Sequence[int]) -> list[int]:
        """Return the number of tokens after each occurrence of the word."""
        found, states, is_open = [], set[int](), True
        for end, token in enumerate(tokens, 1):
            moved = self._moved(states, is_open, token)
            if self.length in moved and (end == len(tokens) or tokens[end] not in self.joining):
                found.append(end)
            states, is_open = moved - {self.length}, token in self.opening
        return found

    def _moved(self, states: set[int], is_open: bool, token: int) -> set[int]:
        """Return the states after one more token."""
        moved = {self.go_on[state][token] for state in states if token in self.go_on[state]}
        moved.update(self.begin.get(token, ()))
        if is_open:
            moved.update(self.begin_open.get(token, ()))
        return moved

    def ends(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that would complete the word after these."""
        states = self.reached(tokens)
        if states not in self._ends:
            found = {token for token, reach in self.begin.items() if self.length in reach}
            if -1 in states:
                found |= {token for token, reach in self.begin_open.items() if self.length in reach}
            for state in states:
                if state >= 0:
                    found |= {token for token, reach in self.go_on[state].items() if reach == self.length}
            self._ends[states] = sorted(found)
        return self._ends[states]


def exact_tokens(tokens: Sequence[int], joining: frozenset[int] = frozenset()) -> TokenAutomaton:
    """Return the automaton of a word with one segmentation, which may begin anywhere; its length is in tokens."""
    go_on = tuple({token: place + 1} if place else {} for place, token in enumerate(tokens))
    return TokenAutomaton(len(tokens), go_on, {tokens[0]: (1,)}, {}, frozenset(), joining)


@dataclass(frozen=True)
class ExcludeWords:
    """Bans words in every segmentation, also as the beginning of a longer word."""

    words_N: Sequence[Sequence[TokenAutomaton]]
    """Words of each search."""
    prompts_N: Sequence[Sequence[int]]
    """Tokens before the output of each search, in which a word may have begun."""

    def bans(self, beams: BeamState) -> Bans:
        """Yield the tokens that would complete a word."""
        for row, search, tokens in _live(beams):
            for word in self.words_N[search]:
                yield row, word.ends([*self.prompts_N[search], *tokens])


def _live(beams: BeamState) -> Iterator[tuple[int, int, list[int]]]:
    """Yield each row with a hypothesis, its search and its tokens."""
    tokens_RT, width = beams.tokens_RT, beams.totals_NW.shape[1]
    for row in beams.live_rows().tolist():
        yield row, int(beams.searches_N[row // width]), tokens_RT[row].tolist()


def rules_of(
    settings: DecodingConfig,
    eos_id: int,
    words_N: Sequence[Sequence[TokenAutomaton]],
    prompts_N: Sequence[Sequence[int]],
) -> list[LogitsRule]:
    """Return the rules that are enabled, given the words to exclude and the prompt of each search."""
    rules: list[LogitsRule] = []
    if settings.min_length:
        rules.append(MinLength(settings.min_length, eos_id))
    if settings.no_repeat_ngram_size:
        rules.append(NoRepeatNgram(settings.no_repeat_ngram_size, prompts_N))
    if any(words_N):
        rules.append(ExcludeWords(words_N, prompts_N))
    return rules
