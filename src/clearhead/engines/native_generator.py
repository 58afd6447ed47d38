"""Adapter between a model in the C++ core and the search in `decoding`.

N sentences, R rows, S source length, T tokens per call, V vocabulary, U tokens of a shortlist
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.decoding.generator import Bools, Floats, Ints, Sources, Step
from clearhead.runtime import NativeModel, NativeState


@dataclass(frozen=True)
class RestrictedState:
    """State of the core; for each row, the columns of its shortlist among all U tokens."""

    inner: NativeState
    columns_R: tuple[Ints, ...] = ()
    num_columns: int = 0


class NativeGenerator:
    """Generator over a native model; its log-probabilities have the same bits in any batch."""

    def __init__(self, model: NativeModel) -> None:
        self.model = model
        self.is_prompted = model.config.family == "decoder"

    def encode(self, sources: Sources) -> Any:
        """Return the encoded sources; a decoder-only model keeps its prompts."""
        assert not isinstance(sources, np.ndarray), "images are encoded in torch"
        return np.array(sources, dtype=np.int64) if self.is_prompted else self.model.encode(sources)

    def start(self, memory: Any, width: int) -> tuple[Ints, RestrictedState]:
        """Return the first tokens of every row, and the state before them."""
        if self.is_prompted:
            first_RT = memory.repeat(width, 0)
            return first_RT, RestrictedState(self.model.start(None, len(memory), width))
        num_sentences = len(memory[1])
        first_R1 = np.full((num_sentences * width, 1), self.model.config.decoder_start_id, dtype=np.int64)
        return first_R1, RestrictedState(self.model.start(memory, num_sentences, width))

    def step(
        self,
        tokens_RT: Ints,
        state: RestrictedState,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        """Append tokens to every row and return the log-probabilities of the next token."""
        layer = self.model.config.num_decoder_layers - 1 if want_attention and not self.is_prompted else None
        step = self.model.step(tokens_RT, state.inner, layer, all_positions)
        log_probs_RTV = step.log_probs if all_positions else step.log_probs[:, None]
        return Step(self._scatter(log_probs_RTV, state), state, step.cross_RHTS)

    def _scatter(self, log_probs_RTC: Floats, state: RestrictedState) -> Floats:
        """Return log_probs_RTU with -inf for tokens on no list of the row's sentence."""
        if not state.columns_R:
            return log_probs_RTC
        rows, count, _ = log_probs_RTC.shape
        log_probs_RTU: Floats = np.full((rows, count, state.num_columns), -np.inf, dtype=np.float32)
        for row, columns in enumerate(state.columns_R):
            log_probs_RTU[row][:, columns] = log_probs_RTC[row, :, : len(columns)]
        return log_probs_RTU

    def reorder(self, state: RestrictedState, rows_R: Ints) -> RestrictedState:
        """Return the state with these rows in this order."""
        self.model.reorder(state.inner, rows_R)
        if not state.columns_R:
            return state
        return replace(state, columns_R=tuple(state.columns_R[row] for row in rows_R.tolist()))

    def restrict(self, state: RestrictedState, tokens_U: Ints, allowed_NU: Bools) -> RestrictedState:
        """Return a state whose steps return log-probabilities of these tokens only."""
        columns_N = [np.flatnonzero(allowed_U) for allowed_U in allowed_NU]
        self.model.restrict(state.inner, [tokens_U[columns].tolist() for columns in columns_N])
        width = len(state.inner.source_lengths_R) // len(columns_N)
        return RestrictedState(state.inner, tuple(each for each in columns_N for _ in range(width)), len(tokens_U))
