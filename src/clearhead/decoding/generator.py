"""Interface between the search and a model that generates tokens. NumPy arrays only.

N sentences, W hypotheses of each, R = N*W rows (row = sentence * W + hypothesis), S source length, T tokens per call,
V vocabulary, U tokens of a shortlist, K best tokens, H heads, C channels, Y height, X width
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DecodingError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Sources = Sequence[Sequence[int]] | Floats
"""Token ids of each sentence (prompts in one batch have one length), or images_NCYX."""


@dataclass(frozen=True)
class Step:
    """Result of one step."""

    log_probs_RTV: Floats
    """Log-probabilities of the token after the last given one (T is 1), or after each of them with `all_positions`.
    C-contiguous; the search may overwrite them. V columns, or U after `restrict`, or K if `tokens_RK` is given."""
    state: Any
    """State after these tokens."""
    cross_RHTS: Floats | None = None
    """Cross-attention weights of the last decoder layer, if requested and if the model has any."""
    tokens_RK: Ints | None = None
    """Ids of the columns of each row, ascending, if only the best tokens are returned."""


class Generator(Protocol):
    """Model that generates tokens step by step.

    Memory and state are opaque. A state that has been passed to `step`, `reorder` or `restrict` must not be used again,
    since they may change it in place.
    """

    def encode(self, sources: Sources, /) -> Any:
        """Return the encoded sources; a decoder-only model keeps its prompts."""

    def start(self, memory: Any, width: int, /) -> tuple[Ints, Any]:
        """Return first_RT, the tokens that every row starts with (start token or prompt), and the state before them."""

    def step(
        self,
        tokens_RT: Ints,
        state: Any,
        /,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        """Append tokens to every row and return the log-probabilities of the next token.

        With `num_best` the search only needs that many tokens with the highest log-probabilities of each row: a
        generator may return these in `tokens_RK`, or all tokens.
        """

    def reorder(self, state: Any, rows_R: Ints, /) -> Any:
        """Return the state with these rows in this order. Rows may be repeated or dropped; the rows of a sentence are
        adjacent, and all remaining sentences have the same number of rows."""

    def restrict(self, state: Any, tokens_U: Ints, allowed_NU: Bools, /) -> Any:
        """Return a state whose steps return log-probabilities of these tokens only (ids ascending), normalized over
        the tokens that are allowed for the sentence, and -inf for the others. Raises DecodingError if the model
        cannot."""


@dataclass(frozen=True)
class WindowState:
    """State of the wrapped generator, and the tokens that it has read."""

    inner: Any
    ids_RT: Ints


class SlidingWindow:
    """Generator with a sliding context: when `context` tokens are exceeded, it starts again from the last half of them.

    All rows of a batch have read the same number of tokens, so their windows slide at the same step as for a row alone.
    """

    def __init__(self, generator: Generator, context: int) -> None:
        self.generator, self.context = generator, context

    def encode(self, sources: Sources) -> Any:
        """Return the prompts."""
        return self.generator.encode(sources)

    def start(self, memory: Any, width: int) -> tuple[Ints, WindowState]:
        """Return the prompt in each row, and the state before it."""
        first_RT, state = self.generator.start(memory, width)
        return first_RT, WindowState(state, first_RT[:, :0])

    def step(
        self,
        tokens_RT: Ints,
        state: WindowState,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        """Append tokens; those that exceed the context are read one by one, since the window slides with each."""
        room = max(self.context - state.ids_RT.shape[1], 1)
        step = self._step(tokens_RT[:, :room], state, want_attention, all_positions, num_best)
        parts = [step.log_probs_RTV]
        for index in range(room, tokens_RT.shape[1]):
            step = self._step(tokens_RT[:, index : index + 1], step.state, want_attention, False, num_best)
            parts.append(step.log_probs_RTV)
        return replace(step, log_probs_RTV=np.concatenate(parts, 1)) if all_positions and len(parts) > 1 else step

    def _step(
        self, tokens_RT: Ints, state: WindowState, want_attention: bool, all_positions: bool, num_best: int | None
    ) -> Step:
        ids_RT, inner, next_RT = np.concatenate((state.ids_RT, tokens_RT), 1), state.inner, tokens_RT
        if ids_RT.shape[1] > self.context:  # one token: the window becomes a new prompt of each row
            ids_RT = np.ascontiguousarray(ids_RT[:, -max(1, self.context // 2) :])
            next_RT, inner = self.generator.start(self.generator.encode(ids_RT.tolist()), 1)
            all_positions = False
        step = self.generator.step(next_RT, inner, want_attention, all_positions, num_best)
        return replace(step, state=WindowState(step.state, ids_RT))

    def reorder(self, state: WindowState, rows_R: Ints) -> WindowState:
        """Return the state with these rows in this order."""
        return WindowState(self.generator.reorder(state.inner, rows_R), state.ids_RT[rows_R])

    def restrict(self, state: WindowState, tokens_U: Ints, allowed_NU: Bools) -> WindowState:
        """Raise DecodingError: a restriction would be lost when the window slides."""
        raise DecodingError("a shortlist is for models that read a source; leave it out")
