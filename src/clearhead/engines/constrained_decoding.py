"""Decoding with words to include, and alternative tokens at a position of an output, with any engine. Token ids only.

If the unconstrained output already contains the words to include, it is returned: words that the output contains anyway
should not change the rest of it. Grid beam search would change it, because it considers more hypotheses than plain beam
search, and a wider search finds outputs that are more probable but worse, mostly too short.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import Hypothesis, Request
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError


def decode(engine: Engine, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
    """Return the engine's hypotheses; the best unconstrained one comes first if it contains all words to include."""
    constrained = [index for index, request in enumerate(requests) if _has_phrases(request)]
    if not constrained:
        return engine.run(requests, settings)
    results = engine.run([_without_phrases(request) for request in requests], settings)
    answered = [index for index in constrained if results[index]]  # cancelled requests have no hypotheses
    unmet = {index for index in answered if not _is_met(requests[index], results[index][0])}
    repeated = [index for index in answered if requests[index].n_best > 1 or index in unmet]
    for index, hypotheses in zip(repeated, engine.run([requests[index] for index in repeated], settings), strict=True):
        unconstrained_best = [] if index in unmet else results[index][:1]
        best_tokens = {best.tokens for best in unconstrained_best}
        others = [hypothesis for hypothesis in hypotheses if hypothesis.tokens not in best_tokens]
        results[index] = [*unconstrained_best, *others][: requests[index].n_best]
    return results


def stream_tokens(
    engine: Engine, request: Request, settings: DecodingConfig
) -> Generator[tuple[int, ...], None, Hypothesis]:
    """Yield the tokens of the best output in parts, each as soon as it is certain, and return the hypothesis.

    With words to include, all tokens are yielded at once, since the two searches are compared when both have ended.
    """
    num_yielded = 0
    if _has_phrases(request):
        [[best]] = decode(engine, [request], settings)
    else:
        steps = engine.stream(request, settings)
        while True:
            try:
                certain = next(steps)
            except StopIteration as done:
                best = done.value
                break
            yield certain[num_yielded:]
            num_yielded = len(certain)
    if best.tokens[num_yielded:]:
        yield best.tokens[num_yielded:]
    return best


def _has_phrases(request: Request) -> bool:
    return request.constraints is not None and bool(request.constraints.include.phrases)


def _without_phrases(request: Request) -> Request:
    return replace(request, constraints=replace(request.constraints_or_empty, include=LexicalConstraints()))


def _is_met(request: Request, best: Hypothesis) -> bool:
    """Return whether an output contains all words to include."""
    phrases = request.constraints_or_empty.include
    return phrases.bank(best.tokens) == phrases.num_tokens and best.finish_reason == "end"


class NoSuchPositionError(DecodingError):
    """Position after the end of the output, for which alternatives were requested."""


def find_alternatives(
    engine: Engine, request: Request, position: int, count: int, settings: DecodingConfig
) -> list[Hypothesis]:
    """Return the `count` most probable tokens at a position of the best output, each with its best continuation.

    The first is the most probable token, which may differ from the token of the best output. The tokens before the
    position do not change; the end of the output counts as a token. A token is not continued if it reaches the length
    limit, or if too few tokens remain for the words to include.
    """
    [[best]] = decode(engine, [request], settings)
    limit, constraints = request.output_limit(settings, engine.max_positions), request.constraints_or_empty
    last = min(len(best.tokens), limit - 1)
    if not 0 <= position <= last:
        raise NoSuchPositionError(
            f"{request.name}: expected a position of 0 to {last}, found {position}; the output has "
            f"{len(best.tokens)} tokens and may have {limit}"
        )
    prefix = replace(constraints, prefix=best.tokens[:position], include=LexicalConstraints())
    next_token = replace(request, n_best=count, constraints=prefix, limit=position + 1)
    [alternatives] = engine.run([next_token], _next_token_settings(settings, count, position + 1))
    unfinished = [each for each in alternatives if each.finish_reason == "length" and _has_room(each, request, limit)]
    requests = [replace(request, constraints=replace(constraints, prefix=each.tokens)) for each in unfinished]
    results = decode(engine, requests, settings)
    continued = {each.tokens: best for each, [best] in zip(unfinished, results, strict=True)}
    return [continued.get(each.tokens, each) for each in alternatives]


def _next_token_settings(settings: DecodingConfig, count: int, limit: int) -> DecodingConfig:
    """Return settings that search for the next token only, under the same rules."""
    return settings.model_copy(
        update={
            "beam_size": count, "beam_groups": 1, "method": "search", "include": (), "coverage_penalty": 0.0,
            "min_length": min(settings.min_length, limit),
        }
    )  # fmt: skip


def _has_room(hypothesis: Hypothesis, request: Request, limit: int) -> bool:
    """Return whether an output can continue after these tokens and contain the words to include."""
    needed = request.constraints_or_empty.include.needed(hypothesis.tokens)
    return len(hypothesis.tokens) <= limit - max(needed, 1)
