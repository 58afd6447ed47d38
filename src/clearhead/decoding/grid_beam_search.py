"""Lexical constraints: grid beam search (Hokamp and Liu, 2017) over banks.

The bank of a hypothesis is the number of tokens of the phrases that it contains. Each bank keeps its own `beam` best
hypotheses, so that hypotheses with a phrase, which are less probable, do not compete with those without. Only
hypotheses of the last bank may end. When the remaining length is just sufficient for the missing tokens, only these
may follow, so the phrases are always generated if the length limit and the other rules allow it.

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
"""Placeholder for a prompt that ends with a letter: a word cannot begin directly after it."""


@dataclass(frozen=True)
class LexicalConstraints:
    """Phrases that the output must contain, and all segmentations of each into tokens."""

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
        openings = [word.opening for phrase, word in pairs if _needs_separator(phrase, word)]
        return sorted(frozenset[int]().union(*openings))

    def progress(self, tokens: Sequence[int]) -> "PhraseProgress":
        """Return which phrases these tokens contain, completely or in part."""
        return PhraseProgress(self, [*self.lead, *tokens])

    def bank(self, tokens: Sequence[int]) -> int:
        """Return the bank: the number of tokens of complete phrases and of the longest partial phrase."""
        return self.progress(tokens).bank_state().bank

    def needed(self, tokens: Sequence[int]) -> int:
        """Return the number of further tokens that the missing phrases need."""
        return self.progress(tokens).bank_state().needed


class BankState(NamedTuple):
    """Bank of a hypothesis, and the number of tokens that it needs at most to complete the phrases."""

    bank: int
    needed: int


class PhraseProgress:
    """Phrases contained in a sequence of tokens, prepared for queries about the sequence with one more token."""

    def __init__(self, constraints: LexicalConstraints, tokens: Sequence[int]) -> None:
        self.constraints, self.tokens = constraints, list(tokens)
        ends = [word.find_ends(tokens) for word in constraints.automata]
        self.is_complete = [bool(word_ends) and word_ends[0] < len(tokens) for word_ends in ends]
        # A phrase at the end of the tokens is complete unless the next token continues its last word.
        self.is_last = [word_ends == [len(tokens)] for word_ends in ends]

    def relevant_tokens(self) -> set[int]:
        """Return the tokens that complete a phrase or may be part of one."""
        pairs = zip(self.constraints.automata, self.is_complete, strict=True)
        ends = {
            token for word, is_complete in pairs if not is_complete for token in word.completing_tokens(self.tokens)
        }
        return ends | {token for phrase in self.constraints.phrases for token in phrase}

    def bank_state(self, *next_token: int) -> BankState:
        """Return the state of the sequence, or of the sequence extended by `next_token`."""
        tokens, bank, needed, longest, saved = [*self.tokens, *next_token], 0, 0, 0, 0
        pairs = zip(self.constraints.phrases, self.constraints.automata, strict=True)
        for index, (phrase, word) in enumerate(pairs):
            if self._contains(index, word, *next_token):
                bank += len(phrase)
                continue
            needs_separator = _needs_separator(phrase, word)
            size, is_open = _partial_length(phrase, tokens, word.opening if needs_separator else None)
            longest, saved = max(longest, size), max(saved, size + (needs_separator and is_open))
            needed += len(phrase) + needs_separator  # one token separates the phrase from the previous word
        return BankState(bank + longest, needed - saved)

    def _contains(self, index: int, word: TokenAutomaton, *next_token: int) -> bool:
        """Return whether the sequence, or the sequence extended by `next_token`, contains a phrase."""
        if self.is_complete[index] or not next_token:
            return self.is_complete[index] or self.is_last[index]
        is_broken = next_token[0] in word.joining or (next_token[0] == _JOINING and bool(word.joining))
        return (self.is_last[index] and not is_broken) or next_token[0] in word.completing_tokens(self.tokens)


def _needs_separator(phrase: tuple[int, ...], word: TokenAutomaton) -> bool:
    """Return whether a phrase can begin only after a separator, since its first token contains no space."""
    return phrase[0] in word.begin_open and phrase[0] not in word.begin


def _partial_length(phrase: tuple[int, ...], tokens: Sequence[int], opening: frozenset[int] | None) -> tuple[int, bool]:
    """Return the length of the longest partial phrase at the end of the tokens, and whether it may begin there.

    `opening`: the tokens after which the phrase can begin; None: all.
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
        """Constraints and limits of each sentence; the phrases of each have the same total number of tokens."""
        self.constraints, self.limits, self.eos_id = constraints, limits, eos_id
        self.last = constraints[0].num_tokens
        num_tokens = {sentence_constraints.num_tokens for sentence_constraints in constraints}
        assert num_tokens == {self.last}, "sentences with different banks in one batch"

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
            candidates = best_candidates(bank_RV, totals_MW, 2 * width + 1)
            # Parents are counted from the first row of the bank; impossible candidates get parent 0.
            parents_NK = np.where(candidates.totals_NK > -np.inf, candidates.parents_NK - bank * width, 0)
            by_bank.append(Candidates(candidates.totals_NK, candidates.log_probs_NK, parents_NK, candidates.tokens_NK))
        return stack_groups(by_bank)

    def _assign(self, banks_V: Ints, tokens: list[int], sentence: int) -> None:
        """Set the bank of the hypothesis after each possible token; -1 for tokens that may not follow."""
        constraints = self.constraints[sentence]
        progress = constraints.progress(tokens)
        current, room = progress.bank_state(), self.limits[sentence] - len(tokens) - 1  # after the next token

        def bank_after(token: int) -> int:
            bank, needed = progress.bank_state(token)
            return bank if needed <= room or needed < current.needed else -1

        banks_V.fill(bank_after(_OTHER))
        if constraints.separators:
            banks_V[constraints.separators] = bank_after(_OPENING)
        if any(progress.is_last):
            banks_V[list(constraints.joining)] = bank_after(_JOINING)
        for token in progress.relevant_tokens():
            banks_V[token] = bank_after(token)
        banks_V[self.eos_id] = self.last if current.bank == self.last else -1
