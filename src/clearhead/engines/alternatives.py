"""Alternative tokens at a position of an output, each with its best continuation. Token ids, not text."""

from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.requests import Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError


class NoSuchPositionError(DecodingError):
    """A position after the end of the output."""


def alternatives(
    engine: Engine, request: Request, position: int, count: int, settings: DecodingConfig
) -> list[Hypothesis]:
    """Return the `count` most probable tokens at a position of the best output, each with its best continuation.

    The first is the most probable token, which need not be the one that the search chose. Tokens before the position
    are kept; the end of the output counts as a token. Tokens that fill the limit, or leave no room for the words to
    include, are not continued.
    """
    [[best]] = constrained_decoding.run(engine, [request], settings)
    limit, asked = request.longest(settings, engine.max_positions), request.asked
    last = min(len(best.tokens), limit - 1)
    if not 0 <= position <= last:
        raise NoSuchPositionError(
            f"{request.name}: its output has {len(best.tokens)} tokens and may have {limit}; expected a position of "
            f"0 to {last}, not {position}."
        )
    kept = replace(asked, prefix=best.tokens[:position], include=LexicalConstraints())
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
    """Return settings that find the next token only, under the same rules."""
    return settings.model_copy(
        update={
            "beam_size": count, "beam_groups": 1, "method": "search", "include": (), "coverage_penalty": 0.0,
            "min_length": min(settings.min_length, limit),
        }
    )  # fmt: skip


def _has_room(one: Hypothesis, request: Request, limit: int) -> bool:
    """Return whether an output can continue from these tokens and contain the words to include."""
    return len(one.tokens) <= limit - max(request.asked.include.needed(one.tokens), 1)
