"""Words that must be written: grid beam search (Hokamp and Liu, 2017) over banks.

A hypothesis stands in the bank of how many tokens of the wanted phrases it has written; each bank keeps its own `beam`
best, so that those who have paid for a phrase are not pushed out by those who have not. Only the last bank may end.
Where there is just room for what is missing, nothing else may follow: so phrases are always written if the limit has
room for them and no other rule stands in the way.

M sentences, G banks, W hypotheses of each bank, R = M*G*W rows, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.beams import Beams
from clearhead.decoding.candidates import NEVER, Candidates, Ints, best_candidates
from clearhead.decoding.choosing import stacked

_OTHER = -1
"""Stands for any token that is in no phrase."""


@dataclass(frozen=True)
class Phrases:
    """What must be written, in tokens."""

    wanted: tuple[tuple[int, ...], ...] = ()
    joining: frozenset[int] = frozenset()
    """Tokens that go on with the word before them: right behind a phrase they would make it another word."""

    @property
    def size(self) -> int:
        """Tokens of all phrases."""
        return sum(map(len, self.wanted))

    def bank(self, tokens: Sequence[int]) -> int:
        """How many tokens of phrases are written: of whole ones, and of the longest that is being written."""
        missing = [phrase for phrase in self.wanted if not self._ends_of(phrase, tokens)]
        begun = max((_begun(phrase, tokens) for phrase in missing), default=0)
        return self.size - sum(map(len, missing)) + begun

    def is_fresh(self, tokens: Sequence[int]) -> bool:
        """Whether a phrase has just been written for the first time: then no token may go on with its last word."""
        return any(self._ends_of(phrase, tokens) == [len(tokens)] for phrase in self.wanted)

    def _ends_of(self, phrase: tuple[int, ...], tokens: Sequence[int]) -> list[int]:
        """Where the phrase ends, each time that it is written and not made another word."""
        size = len(phrase)
        ends = (end for end in range(size, len(tokens) + 1) if tuple(tokens[end - size : end]) == phrase)
        return [end for end in ends if end == len(tokens) or tokens[end] not in self.joining]


def _begun(phrase: tuple[int, ...], tokens: Sequence[int]) -> int:
    """How much of a phrase the tokens end with, less than all of it."""
    longest = min(len(phrase) - 1, len(tokens))
    return next(size for size in range(longest, -1, -1) if tuple(tokens[len(tokens) - size :]) == phrase[:size])


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
        now, room = phrases.bank(tokens), self.limits[sentence] - len(tokens) - 1  # behind the next token

        def target(token: int) -> int:
            bank = phrases.bank([*tokens, token])
            return bank if self.last - bank <= room or bank > now else -1

        banks_V.fill_(target(_OTHER))
        for token in {token for phrase in phrases.wanted for token in phrase}:
            banks_V[token] = target(token)
        if phrases.is_fresh(tokens):
            banks_V[list(phrases.joining)] = -1
        banks_V[self.end_id] = self.last if now == self.last else -1
