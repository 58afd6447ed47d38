"""Words to include that come by themselves: where plain search writes them, its answer is kept as it is.

Banks look at more hypotheses than a plain beam does, and a wider search finds likelier outputs that are worse ones: too
short for the most part. Nobody who asks for a word that is there already wants the rest to change.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Phrases
from clearhead.decoding.requests import Request
from clearhead.decoding.scoring import Hypothesis
from clearhead.engines.engine import Engine, StreamingEngine


def run(engine: Engine, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
    """What the engine answers; first the best plain output, if it has all words."""
    asking = [place for place, request in enumerate(requests) if request.asked.phrases.size]
    if not asking:
        return engine.run(requests, settings)
    plain = engine.run([_plain(request) for request in requests], settings)
    lacking = [place for place in asking if not _is_met(requests[place], plain[place][0])]
    more = [place for place in asking if requests[place].n_best > 1 or place in {*lacking}]
    for place, found in zip(more, engine.run([requests[place] for place in more], settings), strict=True):
        kept = [] if place in lacking else plain[place][:1]
        others = [each for each in found if each.tokens not in {one.tokens for one in kept}]
        plain[place] = [*kept, *others][: requests[place].n_best]
    return plain


def stream(
    engine: StreamingEngine, request: Request, settings: DecodingConfig
) -> Generator[tuple[int, ...], None, Hypothesis]:
    """The tokens of the best output in parts, each as soon as it is certain, and the output itself.

    With words to include they come at once: which of two searches answers is known at the end only.
    """
    shown = 0
    if request.asked.phrases.size:
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
    return replace(request, constraints=replace(request.asked, phrases=Phrases()))


def _is_met(request: Request, best: Hypothesis) -> bool:
    phrases = request.asked.phrases
    return phrases.bank(best.tokens) == phrases.size and best.finish_reason == "end"
