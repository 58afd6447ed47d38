"""How search sees any family that generates: five functions, and it never asks which family it has.

N sentences, W hypotheses of each, R = N*W rows (the W rows of a sentence stand together), S source length, T tokens
given at once, V vocabulary
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from torch import Tensor

Memory = TypeVar("Memory")
State = TypeVar("State")
StateOut = TypeVar("StateOut", covariant=True)


class Step(Protocol[StateOut]):
    """What one step gives."""

    @property
    def logits_RTV(self) -> Tensor:
        """Scores of the token after each given one; search writes over them."""

    @property
    def attention(self) -> Sequence[Any] | None:
        """Where it was asked for, an object a layer with the weights that the family has: cross_RHTS, self_RHTT."""

    @property
    def state(self) -> StateOut:
        """Where decoding stands after these tokens."""


class Generator(Protocol[Memory, State]):
    """A model that writes token after token. Memory and state are its own affair: search only hands them back."""

    def encode(self, src_NS: Tensor, /) -> Memory:
        """The sources, read once; a family without an encoder has nothing to do here."""

    def start(self, memory: Memory, width: int, /) -> tuple[Tensor, State]:
        """first_RT, what every row starts from, and the state before it; memory is shared by the rows, not copied."""

    def step(self, tokens_RT: Tensor, state: State, /, want_attention: bool = False) -> Step[State]:
        """Logits after each of the tokens, which follow what the state has seen."""

    def widen(self, state: State, width: int, /) -> State:
        """Where each sentence has one row: `width` of them, which all stand where that one stands."""

    def select(self, state: State, rows_R: Tensor, /) -> State:
        """These rows in this order, in whole groups of `width` that each stay with one sentence."""
