"""Search for those who have ids, for every task that reads a source: requests, the engine, and their answers."""

from collections.abc import Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.data.shortlist import Shortlist
from clearhead.decoding.requests import AllowedTokens, Constraints, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.lexical_constraints import constraints_of
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens


def search_texts(
    model: LoadedModel,
    encoded: Sequence[Sequence[int]],
    n_best: int,
    decoding: DecodingConfig,
    lines: Sequence[int] | None = None,
    engine: Engine | None = None,
    shortlist: Shortlist | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each source, none for an empty one. Errors name a source by its line.

    With a shortlist the candidates of each output are the tokens listed for its source. Raises RequestCancelledError
    if `cancellation` is set before the search has ended.
    """
    lines = range(1, len(encoded) + 1) if lines is None else lines
    check_lines(model, encoded, lines)
    filled = [index for index, ids in enumerate(encoded) if ids]
    asked, end = constraints_of(decoding, model.tokenizer.target), model.tokenizer.eos_id
    requests = [
        Request(
            (*encoded[index], end),
            n_best,
            listed(asked, encoded[index], shortlist),
            name=f"line {lines[index]}",
            cancellation=cancellation,
        )
        for index in filled
    ]
    results: list[list[Hypothesis]] = [[] for _ in encoded]
    engine = engine or model.generating_engine
    for index, hypotheses in zip(filled, constrained_decoding.run(engine, requests, decoding), strict=True):
        results[index] = hypotheses
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    return results


def listed(asked: Constraints | None, source: Sequence[int], shortlist: Shortlist | None) -> Constraints | None:
    """What is asked of an output, and the pieces of its source's shortlist."""
    if shortlist is None:
        return asked
    return replace(asked or Constraints(), shortlist=AllowedTokens(shortlist.of(source), shortlist.vocab_size))


def check_lines(model: LoadedModel, encoded: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
    """Raise DecodingError if a source has more tokens than the model accepts."""
    limit = max_input_tokens(model.config) - 1  # the end token needs a position too
    for line, ids in zip(lines, encoded, strict=True):
        if len(ids) > limit:
            raise DecodingError(f"line {line} has {len(ids):,} tokens, the model accepts {limit:,}; split the line")
