"""Alternative tokens at a position of an output, each with its best continuation. Token ids, not text.

Constrained decoding over any engine: if the plain output already contains the words to include, it is returned.

Grid beam search considers more hypotheses than a plain beam, and a wider search finds outputs that are more probable
but worse: mostly too short. A word that is there already should not change the rest of the output.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import Hypothesis, Request
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError


def decode(engine: Engine, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
    """Return the engine's hypotheses; the best plain output comes first if it contains all words to include."""
    asking = [place for place, request in enumerate(requests) if request.asked.include.size]
    if not asking:
        return engine.run(requests, settings)
    plain = engine.run([_without_phrases(request) for request in requests], settings)
    answered = [place for place in asking if plain[place]]  # the others are cancelled
    lacking = [place for place in answered if not _is_met(requests[place], plain[place][0])]
    more = [place for place in answered if requests[place].n_best > 1 or place in {*lacking}]
    for place, found in zip(more, engine.run([requests[place] for place in more], settings), strict=True):
        kept = [] if place in lacking else plain[place][:1]
        others = [each for each in found if each.tokens not in {one.tokens for one in kept}]
        plain[place] = [*kept, *others][: requests[place].n_best]
    return plain


def stream_tokens(
    engine: Engine, request: Request, settings: DecodingConfig
) -> Generator[tuple[int, ...], None, Hypothesis]:
    """Yield the tokens of the best output in parts, each as soon as it is certain, and return the hypothesis.

    With words to include all tokens come at once: which of two searches is used is known at the end only.
    """
    shown = 0
    if request.asked.include.size:
        [[best]] = decode(engine, [request], settings)
    else:
        streaming = engine.stream(request, settings)
        while True:
            try:
                certain = next(streaming)
            except StopIteration as done:
                best = done.value
                break
            yield certain[shown:]
            shown = len(certain)
    if best.tokens[shown:]:
        yield best.tokens[shown:]
    return best


def _without_phrases(request: Request) -> Request:
    return replace(request, constraints=replace(request.asked, include=LexicalConstraints()))


def _is_met(request: Request, best: Hypothesis) -> bool:
    phrases = request.asked.include
    return phrases.bank(best.tokens) == phrases.size and best.finish_reason == "end"


class NoSuchPositionError(DecodingError):
    """A position after the end of the output."""


def find_alternatives(
    engine: Engine, request: Request, position: int, count: int, settings: DecodingConfig
) -> list[Hypothesis]:
    """Return the `count` most probable tokens at a position of the best output, each with its best continuation.

    The first is the most probable token, which need not be the one that the search chose. Tokens before the position
    are kept; the end of the output counts as a token. Tokens that fill the limit, or leave no room for the words to
    include, are not continued.
    """
    [[best]] = decode(engine, [request], settings)
    limit, asked = request.longest(settings, engine.max_positions), request.asked
    last = min(len(best.tokens), limit - 1)
    if not 0 <= position <= last:
        raise NoSuchPositionError(
            f"{request.name}: its output has {len(best.tokens)} tokens and may have {limit}; expected a position of "
            f"0 to {last}, not {position}."
        )
    kept = replace(asked, prefix=best.tokens[:position], include=LexicalConstraints())
    one_more = replace(request, n_best=count, constraints=kept, limit=position + 1)
    [tokens] = engine.run([one_more], _next_token_settings(settings, count, position + 1))
    going = [each for each in tokens if each.finish_reason == "length" and _has_room(each, request, limit)]
    requests = [replace(request, constraints=replace(asked, prefix=each.tokens)) for each in going]
    found = {each.tokens: best for each, [best] in zip(going, decode(engine, requests, settings), strict=True)}
    return [found.get(each.tokens, each) for each in tokens]


def _next_token_settings(settings: DecodingConfig, count: int, limit: int) -> DecodingConfig:
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
