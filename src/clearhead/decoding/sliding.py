"""Writing on where more tokens have come together than a model reads: from the last half of what it can read.

R rows, T tokens given at once, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.decoding.generator import Generator


@dataclass(frozen=True)
class SlidingState:
    """Where writing stands, the state before anything was read, and what has been read since."""

    now: Any
    fresh: Any
    ids_RT: Tensor


@dataclass(frozen=True)
class SlidingStep:
    """What one step gives."""

    logits_RTV: Tensor
    state: SlidingState
    attention: Sequence[Any] | None


class Sliding:
    """A generator whose context slides: beyond `context` tokens it forgets all but the last half of them.

    All rows of a batch have read as many tokens, so they slide together, and at the places where each would alone.
    """

    def __init__(self, generator: Generator[Any, Any], context: int) -> None:
        self.generator, self.context = generator, context

    def encode(self, src_NS: Tensor) -> Any:
        """The prompts."""
        return self.generator.encode(src_NS)

    def start(self, memory: Any, width: int) -> tuple[Tensor, SlidingState]:
        """The prompt in each row, and the state before it."""
        first_RT, fresh = self.generator.start(memory, width)
        return first_RT, SlidingState(fresh, fresh, first_RT[:, :0])

    def step(self, tokens_RT: Tensor, state: SlidingState, want_attention: bool = False) -> SlidingStep:
        """Logits after each of the tokens; what does not fit is read one by one, for the context slides with each."""
        room = max(self.context - state.ids_RT.shape[1], 1)
        step = self._step(tokens_RT[:, :room], state, want_attention)
        logits = [step.logits_RTV]
        for place in range(room, tokens_RT.shape[1]):
            step = self._step(tokens_RT[:, place : place + 1], step.state, want_attention)
            logits.append(step.logits_RTV)
        return step if len(logits) == 1 else SlidingStep(torch.cat(logits, 1), step.state, step.attention)

    def _step(self, tokens_RT: Tensor, state: SlidingState, want_attention: bool) -> SlidingStep:
        ids_RT, before, given_RT = torch.cat((state.ids_RT, tokens_RT), 1), state.now, tokens_RT
        if ids_RT.shape[1] > self.context:
            ids_RT = given_RT = ids_RT[:, -max(1, self.context // 2) :]
            before = state.fresh
        step = self.generator.step(given_RT, before, want_attention=want_attention)
        length = tokens_RT.shape[1]
        return SlidingStep(step.logits_RTV[:, -length:], SlidingState(step.state, state.fresh, ids_RT), step.attention)

    def widen(self, state: SlidingState, width: int) -> SlidingState:
        """Where each prompt has one row: `width` of them, which all stand where that one stands."""
        now, fresh = (self.generator.widen(each, width) for each in (state.now, state.fresh))
        return SlidingState(now, fresh, state.ids_RT.repeat_interleave(width, 0))

    def select(self, state: SlidingState, rows_R: Tensor) -> SlidingState:
        """These rows in this order."""
        now, fresh = (self.generator.select(each, rows_R) for each in (state.now, state.fresh))
        return SlidingState(now, fresh, state.ids_RT.index_select(0, rows_R))
