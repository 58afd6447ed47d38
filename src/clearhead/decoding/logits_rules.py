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

    min_length: int
    eos_id: int

    def bans(self, beams: BeamState) -> Bans:
        """Yield the end token for every row."""
        if beams.length < self.min_length:
            for row in range(beams.totals_NW.size):
                yield row, (self.eos_id,)


@dataclass(frozen=True)
class NoRepeatNgram:
    """Forbids n-grams of this length from repeating."""

    size: int
    prompts_N: Sequence[Sequence[int]]
    """Tokens before the output of each search; their n-grams may not be repeated either."""

    def bans(self, beams: BeamState) -> Bans:
        """Yield the tokens that followed the same `size` - 1 tokens before."""
        for row, search, tokens in _live_hypotheses(beams):
            yield row, tokens_repeating_ngram([*self.prompts_N[search], *tokens], self.size)


def tokens_repeating_ngram(tokens: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would repeat an n-gram of `size` tokens."""
    before = tokens[len(tokens) - size + 1 :]
    starts = range(len(tokens) - size + 1) if len(tokens) >= size else range(0)
    return [tokens[start + size - 1] for start in starts if list(tokens[start : start + size - 1]) == list(before)]


@dataclass(frozen=True)
class TokenAutomaton:
    """All segmentations of one word into tokens; a state is the number of bytes written so far.

    It is compiled from the text of the tokens in advance, since the search works on ids only. A word may begin after
    any character except a letter.
    """

    length: int
    """Bytes of the word."""
    continuations: tuple[dict[int, int], ...]
    """For each state, the tokens that continue the word, with the next state."""
    begin: dict[int, tuple[int, ...]]
    """Tokens that contain other characters, such as a space, before the beginning of the word, with the next states."""
    begin_open: dict[int, tuple[int, ...]]
    """Tokens whose first byte begins the word, with the next states."""
    opening: frozenset[int]
    """Tokens after which a word can begin: they do not end with a letter."""
    joining: frozenset[int] = frozenset()
    """Tokens that begin with a letter: directly after the word, they would turn it into a longer word."""
    _completing: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def states_after(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the possible states after these tokens; -1 if the word can begin."""
        tail = tokens[-self.length :]
        is_open = len(tail) == len(tokens) or tokens[-self.length - 1] in self.opening
        states: set[int] = set()
        for token in tail:
            states, is_open = self._next_states(states, is_open, token) - {self.length}, token in self.opening
        return (*((-1,) if is_open else ()), *sorted(states))

    def find_ends(self, tokens: Sequence[int]) -> list[int]:
        """Return the number of tokens up to the end of each occurrence of the word."""
        ends, states, is_open = [], set[int](), True
        for end, token in enumerate(tokens, 1):
            next_states = self._next_states(states, is_open, token)
            if self.length in next_states and (end == len(tokens) or tokens[end] not in self.joining):
                ends.append(end)
            states, is_open = next_states - {self.length}, token in self.opening
        return ends

    def _next_states(self, states: set[int], is_open: bool, token: int) -> set[int]:
        """Return the states after one more token."""
        next_states = {self.continuations[state][token] for state in states if token in self.continuations[state]}
        next_states.update(self.begin.get(token, ()))
        if is_open:
            next_states.update(self.begin_open.get(token, ()))
        return next_states

    def completing_tokens(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that would complete the word after these."""
        states = self.states_after(tokens)
        if states not in self._completing:
            completing = {token for token, reached in self.begin.items() if self.length in reached}
            if -1 in states:
                completing |= {token for token, reached in self.begin_open.items() if self.length in reached}
            for state in states:
                if state >= 0:
                    completing |= {
                        token for token, next_state in self.continuations[state].items() if next_state == self.length
                    }
            self._completing[states] = sorted(completing)
        return self._completing[states]


def exact_tokens(tokens: Sequence[int], joining: frozenset[int] = frozenset()) -> TokenAutomaton:
    """Return the automaton of a word with one segmentation, which may begin anywhere; its length is in tokens."""
    continuations = tuple({token: index + 1} if index else {} for index, token in enumerate(tokens))
    return TokenAutomaton(len(tokens), continuations, {tokens[0]: (1,)}, {}, frozenset(), joining)


@dataclass(frozen=True)
class ExcludeWords:
    """Bans words in every segmentation, also as the beginning of a longer word."""

    words_N: Sequence[Sequence[TokenAutomaton]]
    """Words of each search."""
    prompts_N: Sequence[Sequence[int]]
    """Tokens before the output of each search, in which a word may have begun."""

    def bans(self, beams: BeamState) -> Bans:
        """Yield the tokens that would complete a word."""
        for row, search, tokens in _live_hypotheses(beams):
            for word in self.words_N[search]:
                yield row, word.completing_tokens([*self.prompts_N[search], *tokens])


def _live_hypotheses(beams: BeamState) -> Iterator[tuple[int, int, list[int]]]:
    """Yield each row with a hypothesis, its search and its tokens."""
    tokens_RT, width = beams.tokens_RT, beams.totals_NW.shape[1]
    for row in beams.live_rows().tolist():
        yield row, int(beams.searches_N[row // width]), tokens_RT[row].tolist()


def enabled_rules(
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
