"""Constrained decoding over any engine: if the plain output already contains the words to include, it is returned.

Grid beam search considers more hypotheses than a plain beam, and a wider search finds outputs that are more probable
but worse: mostly too short. A word that is there already should not change the rest of the output.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.requests import Request
from clearhead.engines.engine import Engine


def run(engine: Engine, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
    """Return the engine's hypotheses; the best plain output comes first if it contains all words to include."""
    asking = [place for place, request in enumerate(requests) if request.asked.include.size]
    if not asking:
        return engine.run(requests, settings)
    plain = engine.run([_plain(request) for request in requests], settings)
    answered = [place for place in asking if plain[place]]  # the others are cancelled
    lacking = [place for place in answered if not _is_met(requests[place], plain[place][0])]
    more = [place for place in answered if requests[place].n_best > 1 or place in {*lacking}]
    for place, found in zip(more, engine.run([requests[place] for place in more], settings), strict=True):
        kept = [] if place in lacking else plain[place][:1]
        others = [each for each in found if each.tokens not in {one.tokens for one in kept}]
        plain[place] = [*kept, *others][: requests[place].n_best]
    return plain


def stream(engine: Engine, request: Request, settings: DecodingConfig) -> Generator[tuple[int, ...], None, Hypothesis]:
    """Yield the tokens of the best output in parts, each as soon as it is certain, and return the hypothesis.

    With words to include all tokens come at once: which of two searches is used is known at the end only.
    """
    shown = 0
    if request.asked.include.size:
        [[best]] = run(engine, [request], settings)
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


def _plain(request: Request) -> Request:
    return replace(request, constraints=replace(request.asked, include=LexicalConstraints()))


def _is_met(request: Request, best: Hypothesis) -> bool:
    phrases = request.asked.include
    return phrases.bank(best.tokens) == phrases.size and best.finish_reason == "end"
