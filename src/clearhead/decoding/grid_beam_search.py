"""Lexical constraints: grid beam search (Hokamp and Liu, 2017) over banks.

The bank of a hypothesis is the number of tokens of the phrases that it contains. Each bank keeps its own `beam` best
hypotheses, so that hypotheses with a phrase, which are less probable, do not compete with those without. Only
hypotheses of the last bank may end. When the remaining length just suffices for the missing tokens, only these may
follow: phrases are always written if the limit and the other rules allow it.

M sentences, G banks, W hypotheses of each bank, R = M*G*W rows, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clearhead.decoding.beam_state import BeamState
from clearhead.decoding.candidates import Candidates, best_candidates, stack_groups
from clearhead.decoding.generator import Floats, Ints
from clearhead.decoding.logits_rules import TokenAutomaton, exact_tokens

_OTHER, _JOINING, _OPENING = -1, -2, -3
"""Placeholders: a token unrelated to the phrases; one that continues the previous word; one that separates words."""
LETTER = -4
"""Placeholder for a prompt that ends with a letter, directly after which no word begins."""


@dataclass(frozen=True)
class LexicalConstraints:
    """Phrases that must be written, and all segmentations of each."""

    phrases: tuple[tuple[int, ...], ...] = ()
    """Preferred segmentation of each phrase."""
    joining: frozenset[int] = frozenset()
    """Tokens that continue the previous word: directly after a phrase they may turn it into another word."""
    words: tuple[TokenAutomaton, ...] = ()
    """All segmentations of each phrase; if empty, only the preferred ones."""
    lead: tuple[int, ...] = ()
    """Tokens assumed before the output: none, or `LETTER`."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all phrases."""
        return sum(map(len, self.phrases))

    @cached_property
    def automata(self) -> tuple[TokenAutomaton, ...]:
        """Automaton of each phrase."""
        return self.words or tuple(exact_tokens(phrase, self.joining) for phrase in self.phrases)

    @cached_property
    def separators(self) -> list[int]:
        """Tokens that separate words, if a phrase needs one."""
        pairs = zip(self.phrases, self.automata, strict=True)
        return sorted(frozenset[int]().union(*(word.opening for each, word in pairs if _needs_edge(each, word))))

    def progress(self, tokens: Sequence[int]) -> "PhraseProgress":
        """Return how much of each phrase these tokens write."""
        return PhraseProgress(self, [*self.lead, *tokens])

    def bank(self, tokens: Sequence[int]) -> int:
        """Return the number of written tokens of complete phrases and of the longest partial one."""
        return self.progress(tokens).after().bank

    def needed(self, tokens: Sequence[int]) -> int:
        """Return the number of further tokens that the missing phrases need."""
        return self.progress(tokens).after().needed


class BankState(NamedTuple):
    """Bank of a hypothesis, and the number of tokens that it needs at most to complete the phrases."""

    bank: int
    needed: int


class PhraseProgress:
    """Phrases that some tokens write, prepared for queries about one more token."""

    def __init__(self, constraints: LexicalConstraints, tokens: Sequence[int]) -> None:
        self.constraints, self.tokens = constraints, list(tokens)
        ends = [word.find_ends(tokens) for word in constraints.automata]
        self.is_complete = [bool(each) and each[0] < len(tokens) for each in ends]
        self.is_last = [each == [len(tokens)] for each in ends]  # complete, unless the next token continues the word

    def relevant_tokens(self) -> set[int]:
        """Return the tokens that complete a phrase or may be part of one."""
        pairs = zip(self.constraints.automata, self.is_complete, strict=True)
        ends = {
            token for word, is_complete in pairs if not is_complete for token in word.completing_tokens(self.tokens)
        }
        return ends | {token for phrase in self.constraints.phrases for token in phrase}

    def after(self, *more: int) -> BankState:
        """Return the state of these tokens, or of these and one more."""
        tokens, bank, needed, longest, saved = [*self.tokens, *more], 0, 0, 0, 0
        pairs = zip(self.constraints.phrases, self.constraints.automata, strict=True)
        for index, (phrase, word) in enumerate(pairs):
            if self._has(index, word, *more):
                bank += len(phrase)
                continue
            needs_edge = _needs_edge(phrase, word)
            size, is_open = _begun_length(phrase, tokens, word.opening if needs_edge else None)
            longest, saved = max(longest, size), max(saved, size + (needs_edge and is_open))
            needed += len(phrase) + needs_edge  # a token that separates it from the word before
        return BankState(bank + longest, needed - saved)

    def _has(self, index: int, word: TokenAutomaton, *more: int) -> bool:
        """Return whether these tokens, or these and one more, contain a phrase."""
        if self.is_complete[index] or not more:
            return self.is_complete[index] or self.is_last[index]
        is_broken = more[0] in word.joining or (more[0] == _JOINING and bool(word.joining))
        return (self.is_last[index] and not is_broken) or more[0] in word.completing_tokens(self.tokens)


def _needs_edge(phrase: tuple[int, ...], word: TokenAutomaton) -> bool:
    """Return whether a phrase can begin only after a separator, since its first token contains no space."""
    return phrase[0] in word.begin_open and phrase[0] not in word.begin


def _begun_length(phrase: tuple[int, ...], tokens: Sequence[int], opening: frozenset[int] | None) -> tuple[int, bool]:
    """Return the number of tokens of a partial phrase that the tokens end with, and whether it may begin there.

    `opening`: the tokens after which it can begin; None: all.
    """
    longest = min(len(phrase) - 1, len(tokens))
    for size in range(longest, -1, -1):
        start = len(tokens) - size
        is_open = opening is None or start == 0 or tokens[start - 1] in opening or tokens[start - 1] == _OPENING
        if size == 0 or (is_open and tuple(tokens[start:]) == phrase[:size]):
            return size, is_open
    raise AssertionError("size 0 always returns")


class BankCandidates:
    """Selector of the candidates of each bank."""

    def __init__(self, constraints: Sequence[LexicalConstraints], limits: Sequence[int], eos_id: int) -> None:
        """Constraints and limits of each sentence; their phrases have equally many tokens."""
        self.constraints, self.limits, self.eos_id = constraints, limits, eos_id
        self.last = constraints[0].num_tokens
        assert all(each.num_tokens == self.last for each in constraints), "sentences with different banks in one batch"

    def select(self, log_probs_RV: Floats, beams: BeamState) -> Candidates:
        """Return 2 * W + 1 candidates of each bank."""
        groups, width = self.last + 1, beams.totals_NW.shape[1]
        banks_RV: Ints = np.full(log_probs_RV.shape, -1, dtype=np.int64)
        for row in beams.live_rows().tolist():
            sentence = int(beams.searches_N[row // width]) // groups
            self._assign(banks_RV[row], beams.tokens_RT[row].tolist(), sentence)
        totals_MW = beams.totals_NW.reshape(-1, groups * width)
        by_bank = []
        for bank in range(groups):
            bank_RV = np.where(banks_RV == bank, log_probs_RV, np.float32(-np.inf))
            each = best_candidates(bank_RV, totals_MW, 2 * width + 1)
            # Parents are counted from the first row of the bank; impossible candidates get parent 0.
            parents_NK = np.where(each.totals_NK > -np.inf, each.parents_NK - bank * width, 0)
            by_bank.append(Candidates(each.totals_NK, each.log_probs_NK, parents_NK, each.tokens_NK))
        return stack_groups(by_bank)

    def _assign(self, banks_V: Ints, tokens: list[int], sentence: int) -> None:
        """Set the bank of the hypothesis after each possible token; -1 for tokens that may not follow."""
        constraints = self.constraints[sentence]
        progress = constraints.progress(tokens)
        current, room = progress.after(), self.limits[sentence] - len(tokens) - 1  # after the next token

        def target(token: int) -> int:
            bank, needed = progress.after(token)
            return bank if needed <= room or needed < current.needed else -1

        banks_V.fill(target(_OTHER))
        if constraints.separators:
            banks_V[constraints.separators] = target(_OPENING)
        if any(progress.is_last):
            banks_V[list(constraints.joining)] = target(_JOINING)
        for token in progress.relevant_tokens():
            banks_V[token] = target(token)
        banks_V[self.eos_id] = self.last if current.bank == self.last else -1
