"""What an engine is asked: sources, what their outputs must be like, and which of it cannot be had."""

from dataclasses import dataclass, field

from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.layout import Constraints
from clearhead.errors import DecodingError


@dataclass(frozen=True)
class Picture:
    """A source that is no text."""

    pixels_CYX: Tensor
    """As the network reads them."""
    places: int
    """Patches; the input of `decoding.max_length`."""


@dataclass(frozen=True)
class Request:
    """One source to be decoded."""

    source: tuple[int, ...]
    """Ids as the encoder wants them, with the closing end token; a prompt; or none where there is a picture."""
    n_best: int = 1
    """How many hypotheses are wanted; in search at most the beam."""
    constraints: Constraints | None = None
    """What the output must be like."""
    picture: Picture | None = None
    """What is read instead of ids."""
    limit: int | None = None
    """The most tokens to write, the end included; None: as `decoding.max_length` says."""
    name: str = field(default="", compare=False)
    """What errors call it, such as `line 4`; if not given, by its number among the requests."""

    @property
    def places(self) -> int:
        """How much of the source there is to read."""
        return len(self.source) if self.picture is None else self.picture.places

    @property
    def asked(self) -> Constraints:
        """The constraints, or none."""
        return self.constraints or _NOTHING_ASKED

    def longest(self, settings: DecodingConfig, max_positions: int) -> int:
        """The limit of the output, its end included."""
        if self.limit is not None:
            return self.limit
        length = len(self.source) - 1 if self.picture is None else self.picture.places
        return max(1, min(settings.longest(length), max_positions))


_NOTHING_ASKED = Constraints()


def check_request(number: int, request: Request, settings: DecodingConfig, max_positions: int, vocab_size: int) -> None:
    """Refuse what no engine can decode."""
    name, length = request.name or f"sentence {number}", len(request.source)
    if request.picture is None and not 1 <= length <= max_positions:
        raise DecodingError(
            f"{name} has {length} pieces, with its end; expected 1 to {max_positions}, which is "
            "what the model takes. Split it into shorter ones."
        )
    if request.picture is None and not 0 <= min(request.source) <= max(request.source) < vocab_size:
        raise DecodingError(
            f"{name} has pieces {min(request.source)} to {max(request.source)}; expected 0 to "
            f"{vocab_size - 1}. It was not made by the tokenizer of this model."
        )
    most = settings.beam_size if settings.method == "search" else request.n_best
    if not 1 <= request.n_best <= most:
        raise DecodingError(
            f"{name} asks for {request.n_best} hypotheses; expected 1 to decoding.beam_size="
            f"{settings.beam_size}. Raise the beam size."
        )
    _check_room(name, request, settings, max_positions)


def _check_room(name: str, request: Request, settings: DecodingConfig, max_positions: int) -> None:
    """Refuse an output that cannot be as long as it must be."""
    limit, asked = request.longest(settings, max_positions), request.constraints
    if settings.min_length > limit:
        by = "" if request.limit else f" (decoding.max_length={settings.max_length}, the model's {max_positions})"
        raise DecodingError(
            f"{name} may have an output of {limit} pieces{by}; "
            f"decoding.min_length={settings.min_length} cannot be met. Change one of them."
        )
    if asked is None:
        return
    needed = len(asked.prefix) + max(asked.phrases.needed(asked.prefix), 1)
    if needed > limit:
        raise DecodingError(
            f"{name} may have an output of {limit} pieces, but its prefix and the words to include take "
            f"{needed}. Raise {'max_tokens' if request.limit else 'decoding.max_length'}, or ask for less."
        )
