"""Interface between the search and a model that generates tokens. NumPy arrays only.

N sentences, W hypotheses of each, R = N*W rows (row = sentence * W + hypothesis), S source length, T tokens per call,
V vocabulary, U tokens of a shortlist, K best tokens, H heads, C channels, Y height, X width
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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

    Memory and state are opaque. A state that has been passed to `step`, `repeat`, `reorder` or `restrict` must not be
    used again, since they may change it in place.
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

    def repeat(self, state: Any, width: int, /) -> Any:
        """Return the state with `width` copies of the one row of each sentence."""

    def reorder(self, state: Any, rows_R: Ints, /) -> Any:
        """Return the state with these rows in this order. Rows may be repeated or dropped; they come in whole groups
        of `width` rows that belong to one sentence."""

    def restrict(self, state: Any, tokens_U: Ints, allowed_NU: Bools, /) -> Any:
        """Return a state whose steps return log-probabilities of these tokens only (ids ascending), normalized over
        the tokens that are allowed for the sentence, and -inf for the others. Raises DecodingError if the model
        cannot."""
