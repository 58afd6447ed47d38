"""Search for those who have ids, for every task that reads a source: requests, the engine, and their answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from clearhead.config import DecodingConfig
from clearhead.data.shortlist import Shortlist
from clearhead.decoding.choice import Listed
from clearhead.decoding.layout import Constraints
from clearhead.decoding.requests import Request
from clearhead.decoding.scoring import Hypothesis
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine, NoOutputError
from clearhead.engines.torch_engine import TorchEngine
from clearhead.engines.torch_network import device_of
from clearhead.errors import DecodingError
from clearhead.tasks.baseline import Baseline
from clearhead.tasks.constraints import constraints_of
from clearhead.tasks.examples import most_pieces
from clearhead.tasks.task import SAMPLE_LINES, Decode, Ready

SPARE = 10  # tokens that greedy output in validation may have beyond what its input suggests
LENGTH_FACTOR = 1.5  # of the source; a model that is still poor writes up to the limit, so references do not set it


def validation_decoding(factor: float = LENGTH_FACTOR) -> DecodingConfig:
    """Return greedy search with outputs of at most `factor` times the source length plus `SPARE` tokens."""
    return DecodingConfig(beam_size=1, max_length=f"{factor:.3f}*input+{SPARE}")


def lines_to_decode(decode: Decode, loss: float, baseline: Baseline, lines: int) -> int:
    """Return how many of the first `lines` validation examples are decoded."""
    if decode == "always" or loss < baseline.decoding_loss:
        return lines
    return min(lines, SAMPLE_LINES) if decode == "sample" else 0


def translation_engine(model: Any) -> TorchEngine:
    """What translates with this network, on as many cores as torch may use."""
    config = model.config
    return TorchEngine(
        model,
        config.eos_id,
        config.pad_id,
        config.read_vocab_size,
        config.max_positions,
        threads=torch.get_num_threads(),
        device=device_of(model),
    )


def write(
    network: Any,
    sources: Sequence[Sequence[int]],
    end_id: int,
    decoding: DecodingConfig,
    constraints: Constraints | None = None,
) -> list[tuple[int, ...]]:
    """The best output for each source, both as ids without start and end; nothing of a network that has diverged."""
    requests = [Request((*source, end_id), constraints=constraints) for source in sources]
    return best_of(requests, network, decoding)


def best_of(requests: Sequence[Request], network: Any, decoding: DecodingConfig) -> list[tuple[int, ...]]:
    """The best output for each request; an empty one where a network that has diverged gives no probabilities."""
    found: Sequence[list[Hypothesis]]
    try:
        found = constrained_decoding.run(translation_engine(network), requests, decoding)
    except NoOutputError as error:
        found = error.answers if len(error.answers) == len(requests) else [[] for _ in requests]
    return [hypotheses[0].tokens if hypotheses else () for hypotheses in found]


def search_texts(
    model: Ready,
    encoded: Sequence[Sequence[int]],
    n_best: int,
    decoding: DecodingConfig,
    lines: Sequence[int] | None = None,
    engine: Engine | None = None,
    shortlist: Shortlist | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each source, none for an empty one. Errors name a source by its line.

    With a shortlist the candidates of each output are the tokens listed for its source.
    """
    lines = range(1, len(encoded) + 1) if lines is None else lines
    check_lines(model, encoded, lines)
    filled = [index for index, ids in enumerate(encoded) if ids]
    asked, end = constraints_of(decoding, model.tokenizer.target), model.tokenizer.eos_id
    requests = [
        Request((*encoded[index], end), n_best, listed(asked, encoded[index], shortlist), name=f"line {lines[index]}")
        for index in filled
    ]
    results: list[list[Hypothesis]] = [[] for _ in encoded]
    engine = engine or translation_engine(model.network)
    for index, hypotheses in zip(filled, constrained_decoding.run(engine, requests, decoding), strict=True):
        results[index] = hypotheses
    return results


def listed(asked: Constraints | None, source: Sequence[int], shortlist: Shortlist | None) -> Constraints | None:
    """What is asked of an output, and the pieces of its source's shortlist."""
    if shortlist is None:
        return asked
    return replace(asked or Constraints(), shortlist=Listed(shortlist.of(source), shortlist.vocab_size))


def check_lines(model: Ready, encoded: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
    """Raise DecodingError if a source has more tokens than the model accepts."""
    limit = most_pieces(model.config) - 1  # the end token needs a position too
    for line, ids in zip(lines, encoded, strict=True):
        if len(ids) > limit:
            raise DecodingError(f"line {line} has {len(ids):,} tokens, the model accepts {limit:,}; split the line")
