"""Generation beyond the context of a decoder-only model.

R rows, T tokens per call, V vocabulary
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.decoding.generator import Bools, Generator, Ints, Sources, Step
from clearhead.errors import DecodingError


@dataclass(frozen=True)
class WindowState:
    """State of the generator, and the tokens that it has read."""

    inner: Any
    ids_RT: Ints


class SlidingWindow:
    """Generator with a sliding context: when `context` tokens are exceeded, it starts again from the last half of them.

    All rows of a batch have read as many tokens, so they slide together, at the same positions as each would alone.
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
        for place in range(room, tokens_RT.shape[1]):
            step = self._step(tokens_RT[:, place : place + 1], step.state, want_attention, False, num_best)
            parts.append(step.log_probs_RTV)
        return replace(step, log_probs_RTV=np.concatenate(parts, 1)) if all_positions and len(parts) > 1 else step

    def _step(
        self, tokens_RT: Ints, state: WindowState, want_attention: bool, all_positions: bool, num_best: int | None
    ) -> Step:
        ids_RT, inner, given_RT = np.concatenate((state.ids_RT, tokens_RT), 1), state.inner, tokens_RT
        if ids_RT.shape[1] > self.context:  # one token: the window becomes a new prompt of each row
            ids_RT = np.ascontiguousarray(ids_RT[:, -max(1, self.context // 2) :])
            given_RT, inner = self.generator.start(self.generator.encode(ids_RT.tolist()), 1)
            all_positions = False
        step = self.generator.step(given_RT, inner, want_attention, all_positions, num_best)
        return replace(step, state=WindowState(step.state, ids_RT))

    def repeat(self, state: WindowState, width: int) -> WindowState:
        """Return the state with `width` copies of each row."""
        return WindowState(self.generator.repeat(state.inner, width), state.ids_RT.repeat(width, 0))

    def reorder(self, state: WindowState, rows_R: Ints) -> WindowState:
        """Return the state with these rows in this order."""
        return WindowState(self.generator.reorder(state.inner, rows_R), state.ids_RT[rows_R])

    def restrict(self, state: WindowState, tokens_U: Ints, allowed_NU: Bools) -> WindowState:
        """Raise DecodingError: a restriction would be lost when the window slides."""
        raise DecodingError("a shortlist is for models that read a source; leave it out")
