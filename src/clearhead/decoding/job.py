"""One batch to be searched, as search is given it: what is read, what governs it and who watches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.choice import Choice
from clearhead.decoding.generator import Generator
from clearhead.decoding.layout import Constraints, Layout
from clearhead.decoding.observer import Observer
from clearhead.errors import DecodingError


@dataclass(frozen=True)
class Job:
    """What is searched for at once; all of its sentences have as long a prefix and as many tokens of phrases."""

    generator: Generator[Any, Any]
    src: Tensor
    """Sources padded behind, prompts of one length, or pictures: as the generator reads them."""
    settings: DecodingConfig
    limits: Sequence[int]
    """Of each sentence: the most tokens to generate, the end token included."""
    end_id: int
    pad_id: int
    n_best: int = 1
    observer: Observer | None = None
    constraints: Sequence[Constraints] = ()
    """Of each sentence; none: nothing is asked of any."""
    never: Sequence[int] | None = None
    """Tokens that are not written, besides padding; None: the start token, where rows start from it alone."""

    def __post_init__(self) -> None:
        if self.n_best > self.settings.beam_size and self.settings.method == "search":
            raise DecodingError(
                f"expected n_best of at most decoding.beam_size={self.settings.beam_size}, not {self.n_best}; "
                "raise the beam size."
            )

    @cached_property
    def asked(self) -> Sequence[Constraints]:
        """The constraints of each sentence."""
        return self.constraints or [Constraints()] * len(self.limits)

    @cached_property
    def layout(self) -> Layout:
        """How many searches each sentence takes."""
        return Layout.of(self.settings, self.n_best, self.asked[0].phrases.size)

    def banned(self, first_RT: Tensor) -> set[int]:
        """The tokens that are never written; padding may be no token of the vocabulary."""
        never = self.never
        if never is None:
            never = [int(first_RT[0, 0])] if first_RT.shape[1] == 1 else []
        return {*never, self.pad_id} - {self.end_id}

    def choice(self, banned: set[int]) -> Choice | None:
        """What each sentence may be written with, where they have shortlists."""
        shortlist = self.asked[0].shortlist
        if shortlist is None:
            return None
        lists_M = [sorted((each.choice | {self.end_id}) - banned) for each in self.asked]
        return Choice(lists_M, shortlist.vocab_size, self.src.device)

    def sources(self) -> list[Tensor]:
        """What each sentence says, without padding."""
        return [src if src.is_floating_point() else src[src != self.pad_id] for src in self.src]
