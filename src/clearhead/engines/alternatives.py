"""What else could stand at a place of an output, and how each of it would go on. Knows token ids, nothing of text."""

from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Phrases
from clearhead.decoding.requests import Request
from clearhead.decoding.scoring import Hypothesis
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import StreamingEngine
from clearhead.errors import DecodingError


class NoSuchPositionError(DecodingError):
    """A position after the end of the output."""


def alternatives(
    engine: StreamingEngine, request: Request, position: int, count: int, settings: DecodingConfig
) -> list[Hypothesis]:
    """The `count` likeliest tokens at a position of the best output, each with the best output that goes on from it.

    The first is the likeliest token there, which need not be the one that search wrote. What stands before the
    position stays as it is; the end of the output counts as a token. What fills the limit, or leaves no room there for
    the words to include, does not go on.
    """
    [[best]] = constrained_decoding.run(engine, [request], settings)
    limit, asked = request.longest(settings, engine.max_positions), request.asked
    last = min(len(best.tokens), limit - 1)
    if not 0 <= position <= last:
        raise NoSuchPositionError(
            f"{request.name}: its output has {len(best.tokens)} tokens and may have {limit}; expected a position of "
            f"0 to {last}, not {position}."
        )
    kept = replace(asked, prefix=best.tokens[:position], phrases=Phrases())
    one_more = replace(request, n_best=count, constraints=kept, limit=position + 1)
    [tokens] = engine.run([one_more], _likeliest(settings, count, position + 1))
    going = [each for each in tokens if each.finish_reason == "length" and _has_room(each, request, limit)]
    requests = [replace(request, constraints=replace(asked, prefix=each.tokens)) for each in going]
    found = {
        each.tokens: best
        for each, [best] in zip(going, constrained_decoding.run(engine, requests, settings), strict=True)
    }
    return [found.get(each.tokens, each) for each in tokens]


def _likeliest(settings: DecodingConfig, count: int, limit: int) -> DecodingConfig:
    """Settings that find the next token alone, under the same rules."""
    return settings.model_copy(
        update={
            "beam_size": count, "beam_groups": 1, "method": "search", "include": (), "coverage_penalty": 0.0,
            "min_length": min(settings.min_length, limit),
        }
    )  # fmt: skip


def _has_room(one: Hypothesis, request: Request, limit: int) -> bool:
    """Whether an output can go on from these tokens, and write the words that it must."""
    return len(one.tokens) <= limit - max(request.asked.phrases.needed(one.tokens), 1)
