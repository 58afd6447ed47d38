"""Input of the search: one batch of sentences, its beam layout and its shortlist.

M sentences, U tokens on the shortlist of some sentence, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clearhead.config import DecodingConfig
from clearhead.decoding.beam_state import Grouping
from clearhead.decoding.candidates import Candidates
from clearhead.decoding.generator import Bools, Floats, Generator, Ints, Sources
from clearhead.decoding.logits_rules import LogitsRule
from clearhead.decoding.observer import Observer
from clearhead.decoding.requests import Constraints
from clearhead.errors import DecodingError
from clearhead.runtime.cancellation import Cancellation


@dataclass(frozen=True)
class BeamLayout:
    """Number of searches per sentence, hypotheses of each search, and how the searches are related."""

    groups: int
    width: int
    grouping: Grouping

    @classmethod
    def of(cls, settings: DecodingConfig, n_best: int, required_tokens: int) -> "BeamLayout":
        """Return the layout for these settings; `required_tokens`: number of tokens of all phrases to include."""
        if settings.method == "sample":
            return cls(n_best, 1, "samples")
        if required_tokens:
            return cls(required_tokens + 1, settings.beam_size, "banks")
        return cls(
            settings.beam_groups,
            settings.beam_size // settings.beam_groups,
            "single" if settings.beam_groups == 1 else "diverse",
        )

    @property
    def rows(self) -> int:
        """Rows per sentence."""
        return self.groups * self.width


class BatchShortlist:
    """Shortlists of a batch. Columns are the tokens of their union; each sentence uses its own tokens only."""

    def __init__(self, lists_M: Sequence[Sequence[int]], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.tokens_U: Ints = np.unique(np.concatenate([np.array(tokens, dtype=np.int64) for tokens in lists_M]))
        self.allowed_MU: Bools = np.zeros((len(lists_M), len(self.tokens_U)), dtype=np.bool_)
        for row, tokens in enumerate(lists_M):
            self.allowed_MU[row, np.searchsorted(self.tokens_U, tokens)] = True

    def columns(self, tokens: Ints) -> Ints:
        """Return the columns of these tokens, each of which is on some list."""
        return np.searchsorted(self.tokens_U, tokens)

    def scatter(self, log_probs_RU: Floats) -> Floats:
        """Return log_probs_RV over the whole vocabulary, -inf for tokens on no list."""
        log_probs_RV: Floats = np.full((len(log_probs_RU), self.vocab_size), -np.inf, np.float32)
        log_probs_RV[:, self.tokens_U] = log_probs_RU
        return log_probs_RV

    def with_ids(self, candidates: Candidates) -> Candidates:
        """Return candidates with token ids instead of columns."""
        return replace(candidates, tokens_NK=self.tokens_U[candidates.tokens_NK])


@dataclass(frozen=True)
class SearchBatch:
    """Sentences that are searched together: prefixes have the same length, phrases the same total number of tokens."""

    generator: Generator
    sources: Sources
    settings: DecodingConfig
    limits: Sequence[int]
    """Largest number of tokens to generate for each sentence, the end token included."""
    eos_id: int
    pad_id: int
    n_best: int = 1
    observer: Observer | None = None
    constraints: Sequence[Constraints] = ()
    """One per sentence; empty: none."""
    suppressed_tokens: Sequence[int] | None = None
    """Tokens that are never generated, besides padding; None: the start token, if rows start with a single token."""
    cancellations: Sequence[Cancellation | None] = ()
    """One per sentence; empty: none. A cancelled sentence leaves after the step; its hypotheses are incomplete."""
    rules: Sequence[LogitsRule] = ()
    """Rules in addition to those of the settings and constraints."""

    def __post_init__(self) -> None:
        if self.n_best > self.settings.beam_size and self.settings.method == "search":
            raise DecodingError(
                f"expected n_best of at most decoding.beam_size={self.settings.beam_size}, found {self.n_best}; "
                "raise the beam size."
            )

    @cached_property
    def constraints_M(self) -> Sequence[Constraints]:
        """Constraints of each sentence, which may be empty."""
        return self.constraints or [Constraints()] * len(self.limits)

    @cached_property
    def layout(self) -> BeamLayout:
        """Layout of each sentence."""
        return BeamLayout.of(self.settings, self.n_best, self.constraints_M[0].include.num_tokens)

    def is_cancelled(self, sentences_N: Ints) -> Bools:
        """Return which of these sentences are cancelled."""
        if not self.cancellations:
            return np.zeros(len(sentences_N), dtype=np.bool_)
        is_cancelled_M = np.array(
            [cancellation is not None and cancellation.is_cancelled for cancellation in self.cancellations]
        )
        return np.asarray(is_cancelled_M[sentences_N])

    def suppressed(self, first_RT: Ints) -> set[int]:
        """Return the tokens that are never generated; some may be outside the vocabulary."""
        tokens = self.suppressed_tokens
        if tokens is None:
            tokens = [int(first_RT[0, 0])] if first_RT.shape[1] == 1 else []
        return {*tokens, self.pad_id} - {self.eos_id}

    def shortlist(self, suppressed: set[int]) -> BatchShortlist | None:
        """Return the shortlists, if the sentences have them."""
        shortlist = self.constraints_M[0].shortlist
        if shortlist is None:
            return None
        allowed_M = [constraints.allowed_tokens | {self.eos_id} for constraints in self.constraints_M]
        lists_M = [sorted(allowed - suppressed) for allowed in allowed_M]
        return BatchShortlist(lists_M, shortlist.vocab_size)
