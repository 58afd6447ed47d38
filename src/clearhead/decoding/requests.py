"""Requests to an engine with constraints on their outputs, their outputs, and checks of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Floats
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import TokenAutomaton
from clearhead.errors import DecodingError
from clearhead.runtime.cancellation import Cancellation

FinishReason = Literal["end", "length", "blocked", "stop"]


@dataclass(frozen=True)
class Hypothesis:
    """One output. All numbers are float32 values."""

    tokens: tuple[int, ...]
    """Generated tokens, without the start and end tokens."""
    score: float
    """`log_prob` divided by the length penalty, plus the coverage penalty: hypotheses are ranked by it."""
    log_prob: float
    """Sum of `token_log_probs`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each token, and of the end token if it was generated."""
    finish_reason: FinishReason
    """`end`: the end token was generated; `length`: the limit was reached; `blocked`: the rules allowed no further
    token; `stop`: a stop condition was met."""


@dataclass(frozen=True)
class SearchResult:
    """Hypotheses of one sentence, best first."""

    hypotheses: list[Hypothesis]
    margin: float
    """Smallest difference in log-probability that decided between two candidates: if every log-probability changes by
    less than about half of it per token, the output stays the same."""


MAX_BEAM_SIZE = 4096
MAX_ROWS = 65_535
"""Maximum number of hypotheses of one sentence at a time: the core counts the rows of a state in 16 bits."""


@dataclass(frozen=True)
class Image:
    """Source that is an image."""

    pixels_CYX: Floats
    """Values scaled to the range that the network expects."""
    num_patches: int
    """Number of patches, the source length in the formula of `decoding.max_length`."""


class AllowedTokens(NamedTuple):
    """Shortlist of one sentence: the tokens that its output may contain, from a vocabulary of that size."""

    tokens: tuple[int, ...]
    vocab_size: int


@dataclass(frozen=True)
class Constraints:
    """Constraints on the output of one sentence, in tokens."""

    prefix: tuple[int, ...] = ()
    """Tokens that the output begins with."""
    include: LexicalConstraints = field(default_factory=LexicalConstraints)
    """Phrases that the output contains."""
    exclude: tuple[TokenAutomaton, ...] = ()
    """Words that the output does not contain."""
    prompt: tuple[int, ...] = ()
    """Tokens before the output, which rules take into account."""
    is_stopped: Callable[[Sequence[int]], bool] | None = None
    """Return whether an output of these tokens meets a stop condition."""
    first_sample: int = 0
    """Number of the first sample, which determines its random generator."""
    shortlist: AllowedTokens | None = None
    """Tokens that the output may contain, besides those of the prefix and of `include`; None: all."""

    @property
    def allowed_tokens(self) -> frozenset[int]:
        """Tokens of the shortlist, the prefix and the phrases."""
        assert self.shortlist is not None, "no shortlist"
        return frozenset(self.shortlist.tokens).union(self.prefix, *self.include.phrases)


_UNCONSTRAINED = Constraints()


@dataclass(frozen=True)
class Request:
    """One source to be decoded."""

    source: tuple[int, ...]
    """Token ids as the encoder reads them, with the end token; a prompt; or empty for an image."""
    n_best: int = 1
    """Number of hypotheses to return; with beam search at most the beam size."""
    constraints: Constraints | None = None
    image: Image | None = None
    limit: int | None = None
    """Largest number of tokens to generate, the end token included; None: by `decoding.max_length`."""
    name: str = field(default="", compare=False)
    """Name in error messages, such as `line 4`; by default its number among the requests."""
    cancellation: Cancellation | None = field(default=None, repr=False, compare=False)
    """Shared by requests that are cancelled together, such as the sentences of a text."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the request is cancelled, and its hypotheses are therefore incomplete."""
        return self.cancellation is not None and self.cancellation.is_cancelled

    @property
    def source_length(self) -> int:
        """Number of source positions."""
        return len(self.source) if self.image is None else self.image.num_patches

    @property
    def constraints_or_empty(self) -> Constraints:
        """Constraints, or empty ones."""
        return self.constraints or _UNCONSTRAINED

    def output_limit(self, settings: DecodingConfig, max_positions: int) -> int:
        """Return the largest number of tokens of the output, its end token included."""
        if self.limit is not None:
            return self.limit
        length = len(self.source) - 1 if self.image is None else self.image.num_patches
        return max(1, min(settings.max_output_length(length), max_positions))


def check_request(number: int, request: Request, settings: DecodingConfig, max_positions: int, vocab_size: int) -> None:
    """Raise DecodingError for a request that no engine can decode."""
    name, length = request.name or f"sentence {number}", len(request.source)
    if request.image is None and not 1 <= length <= max_positions:
        raise DecodingError(
            f"{name} has {length} tokens with its end token; expected 1 to {max_positions}, the limit of the model. "
            "Split it into shorter ones."
        )
    if request.image is None and not 0 <= min(request.source) <= max(request.source) < vocab_size:
        raise DecodingError(
            f"{name} has tokens {min(request.source)} to {max(request.source)}; expected 0 to "
            f"{vocab_size - 1}. It was not encoded by the tokenizer of this model."
        )
    max_n_best = settings.beam_size if settings.method == "search" else request.n_best
    if not 1 <= request.n_best <= max_n_best:
        raise DecodingError(
            f"{name} asks for {request.n_best} hypotheses; expected 1 to decoding.beam_size="
            f"{settings.beam_size}. Raise the beam size."
        )
    _check_width(name, request, settings)
    _check_length(name, request, settings, max_positions)


def _check_width(name: str, request: Request, settings: DecodingConfig) -> None:
    """Raise DecodingError for more hypotheses at a time than an engine can hold."""
    if settings.method == "sample":
        if request.n_best > MAX_ROWS:
            raise DecodingError(f"{name} asks for {request.n_best:,} samples; expected at most {MAX_ROWS:,}.")
        return
    if settings.beam_size > MAX_BEAM_SIZE:
        raise DecodingError(f"decoding.beam_size={settings.beam_size} is too large; expected 1 to {MAX_BEAM_SIZE:,}.")
    if request.constraints is None or not request.constraints.include.phrases:
        return
    size = request.constraints.include.num_tokens
    if settings.beam_size * (size + 1) > MAX_ROWS:
        raise DecodingError(
            f"{name} has words to include of {size} tokens, which takes {size + 1} beams of {settings.beam_size}; "
            f"expected at most {MAX_ROWS:,} hypotheses. Lower decoding.beam_size."
        )


def _check_length(name: str, request: Request, settings: DecodingConfig, max_positions: int) -> None:
    """Raise DecodingError if the limit is too low for the constraints."""
    limit, constraints = request.output_limit(settings, max_positions), request.constraints
    if settings.min_length > limit:
        reason = "" if request.limit else f" (decoding.max_length={settings.max_length}, the model's {max_positions})"
        raise DecodingError(
            f"{name} may have an output of {limit} tokens{reason}; "
            f"decoding.min_length={settings.min_length} cannot be met. Change one of them."
        )
    if constraints is None:
        return
    needed = len(constraints.prefix) + max(constraints.include.needed(constraints.prefix), 1)
    if needed > limit:
        raise DecodingError(
            f"{name} may have an output of {limit} tokens, but its prefix and the words to include take "
            f"{needed}. Raise {'max_tokens' if request.limit else 'decoding.max_length'}, or use fewer words."
        )


class NoOutputError(DecodingError):
    """The model's outputs are not finite, so that no hypothesis is the best."""

    def __init__(self, requests: Sequence[Request], answers: Sequence[list[Hypothesis]]) -> None:
        """`answers`: hypotheses of each request; the message names the first one without any, if not cancelled."""
        self.answers = answers
        failed = [number for number, answer in enumerate(answers) if not answer]
        number = min(failed, key=lambda number: requests[number].is_cancelled)
        name = requests[number].name or f"sentence {number + 1}"
        super().__init__(
            f"{name}: the model returns no finite probabilities, probably because its training diverged; "
            "train it again with a lower training.learning_rate"
        )


def check_answers(requests: Sequence[Request], answers: Sequence[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Return the hypotheses of each request, none if it is cancelled; raise NoOutputError if another has none."""
    are_cancelled = [request.is_cancelled for request in requests]
    if not all(answer or is_cancelled for answer, is_cancelled in zip(answers, are_cancelled, strict=True)):
        raise NoOutputError(requests, answers)
    return [[] if is_cancelled else answer for answer, is_cancelled in zip(answers, are_cancelled, strict=True)]
