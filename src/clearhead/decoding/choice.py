"""Search over a few tokens of a large vocabulary: the output layer computes only what some sentence of a batch may use.

Each sentence sees its own list and no other: what it is decoded with changes nothing of it.

M sentences, R rows, T tokens given at once, U tokens that some sentence of the batch may write, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.decoding.beams import Beams
from clearhead.decoding.candidates import NEVER, Candidates, Ints
from clearhead.errors import DecodingError


class Listed(NamedTuple):
    """The tokens that the output of a sentence may be written with, of a vocabulary of that size."""

    tokens: tuple[int, ...]
    vocab_size: int


class Choice:
    """The lists of a batch, and the columns that stand for their tokens."""

    def __init__(self, lists_M: Sequence[Sequence[int]], vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.tokens_U: Ints = np.unique(np.concatenate([np.array(each, dtype=np.int64) for each in lists_M]))
        allowed_MU = np.zeros((len(lists_M), len(self.tokens_U)), dtype=np.bool_)
        for row, each in enumerate(lists_M):
            allowed_MU[row, np.searchsorted(self.tokens_U, each)] = True
        self.forbidden_MU = torch.from_numpy(~allowed_MU).to(device)
        self._sentences_R: Ints = np.zeros(0, dtype=np.int64)
        self._forbidden_RU = self.forbidden_MU[:0]

    def narrow(self, generator: Any, state: Any) -> Any:
        """The state of a generator that is to give logits of these tokens alone."""
        if not hasattr(generator, "narrow"):
            raise DecodingError("this model cannot compute a part of its output layer; leave the shortlist out")
        return generator.narrow(state, torch.from_numpy(self.tokens_U).to(self.forbidden_MU.device))

    def log_probs(self, logits_RU: Tensor, sentences_R: Ints) -> Tensor:
        """log_probs_RU over each row's own list; minus infinity for what is not on it."""
        if not np.array_equal(sentences_R, self._sentences_R):  # rows leave now and then
            self._sentences_R = sentences_R
            self._forbidden_RU = self.forbidden_MU[torch.from_numpy(sentences_R).to(logits_RU.device)]
        return logits_RU.masked_fill(self._forbidden_RU, NEVER).log_softmax(-1)

    def columns(self, tokens: Ints) -> Ints:
        """Where these tokens stand; each is on some list."""
        return np.searchsorted(self.tokens_U, tokens)

    def spread(self, log_probs_RU: Tensor) -> Tensor:
        """log_probs_RV, for those who look tokens up by their ids."""
        log_probs_RV = log_probs_RU.new_full((len(log_probs_RU), self.vocab_size), NEVER)
        log_probs_RV[:, torch.from_numpy(self.tokens_U).to(log_probs_RU.device)] = log_probs_RU
        return log_probs_RV

    def named(self, found: Candidates) -> Candidates:
        """Candidates whose tokens are columns, with their ids instead."""
        return replace(found, tokens_NK=self.tokens_U[found.tokens_NK])


def sentences_of(beams: Beams, groups: int) -> Ints:
    """Which sentence of the batch each row belongs to."""
    return (beams.searches_N // groups).repeat(beams.totals_NW.shape[1])
