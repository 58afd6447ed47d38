"""What is asked of the output of a sentence, and how many searches that takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Phrases
from clearhead.decoding.choice import Listed
from clearhead.decoding.progress import Together
from clearhead.decoding.rules import Spelling


@dataclass(frozen=True)
class Constraints:
    """What the output of one sentence must be like, in tokens."""

    prefix: tuple[int, ...] = ()
    phrases: Phrases = field(default_factory=Phrases)
    exclude: tuple[Spelling, ...] = ()
    before: tuple[int, ...] = ()
    """A prompt, which stands before the output: rules that look back see it."""
    is_stopped: Callable[[Sequence[int]], bool] | None = None
    """Whether an output of these tokens has written what it is to end with."""
    first_sample: int = 0
    """The number of the first sample, where outputs are drawn."""
    shortlist: Listed | None = None
    """The tokens that it may be written with, besides those of the prefix and the phrases; None: all."""

    @property
    def choice(self) -> frozenset[int]:
        """The tokens of the shortlist, and those that are asked for."""
        assert self.shortlist is not None, "no shortlist"
        return frozenset(self.shortlist.tokens).union(self.prefix, *self.phrases.wanted)


@dataclass(frozen=True)
class Layout:
    """How many searches a sentence has, how many hypotheses each keeps, and how they belong together."""

    groups: int
    width: int
    together: Together

    @classmethod
    def of(cls, settings: DecodingConfig, n_best: int, wanted: int) -> "Layout":
        """For settings, and `wanted` tokens that must be written."""
        if settings.method == "sample":
            return cls(n_best, 1, "apart")
        if wanted:
            return cls(wanted + 1, settings.beam_size, "banks")
        return cls(
            settings.beam_groups,
            settings.beam_size // settings.beam_groups,
            "one" if settings.beam_groups == 1 else "ranked",
        )

    @property
    def rows(self) -> int:
        """Of each sentence."""
        return self.groups * self.width
