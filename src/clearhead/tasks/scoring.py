"""Forced decoding: log-probabilities and attention of given outputs, without search.

H heads, T target length, S source length
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.config import DecodingConfig
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.readers.pairs import Pair
from clearhead.decoding.penalties import normalized_score, sum_log_probs
from clearhead.engines.engine import Floats, ScoringEngine
from clearhead.errors import DataError
from clearhead.json_format import JsonResult
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens

PAIRS_PER_CALL = 4096  # pairs per call of the engine, which divides them into batches of similar length


@dataclass(frozen=True)
class EncodedPair:
    """A pair with its ids, without start and end tokens."""

    pair: Pair
    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Number of positions of the longer side, including the end token."""
        return max(len(self.source), len(self.target)) + 1


def encode_pairs(model: LoadedModel, pairs: Sequence[Pair], path: Path | str) -> list[EncodedPair]:
    """Return the pairs with their ids; for a pair that is too long, raise DataError with its line in `path`."""
    encode = model.task.codec.encode
    sources = encode(model.tokenizer, [pair.source for pair in pairs])
    targets = encode(model.tokenizer.target, [pair.target for pair in pairs])
    encoded = list(map(EncodedPair, pairs, sources, targets))
    limit = max_input_tokens(model.config)
    for item in encoded:
        if item.length > limit:
            problem = f"{item.length - 1:,} tokens, the model accepts {limit - 1:,}; split the line"
            raise DataError.at(path, item.pair.line, problem)
    return encoded


def decode_forced(
    engine: ScoringEngine, pairs: Sequence[EncodedPair], eos_id: int, attention_layer: int | None = None
) -> Iterator[tuple[EncodedPair, Floats, Floats | None]]:
    """Yield each pair, the log-probabilities of its target tokens and end token, and attention weights [H, T, S].

    The weights are those of `attention_layer`; None without a layer.
    """
    for first in range(0, len(pairs), PAIRS_PER_CALL):
        chunk = pairs[first : first + PAIRS_PER_CALL]
        sources, targets = [[*pair.source, eos_id] for pair in chunk], [[*pair.target, eos_id] for pair in chunk]
        scores = engine.score(sources, targets, attention_layer)
        for pair, (log_probs_T, weights_HTS) in zip(chunk, scores, strict=True):
            yield pair, log_probs_T, weights_HTS


def mean_target_nll(engine: ScoringEngine, pairs: PairIds, eos_id: int) -> float:
    """Return the mean negative log-likelihood per target token, end tokens included."""
    total, count = 0.0, 0
    for first in range(0, len(pairs), PAIRS_PER_CALL):
        chunk = range(first, min(first + PAIRS_PER_CALL, len(pairs)))
        sources, targets = ([[*side[i].tolist(), eos_id] for i in chunk] for side in (pairs.source, pairs.target))
        for log_probs_T, _ in engine.score(sources, targets):
            total, count = total - float(log_probs_T.sum(dtype="float64")), count + len(log_probs_T)
    return total / count


@dataclass(frozen=True)
class ScoredOutput(JsonResult):
    """The probability of a given output."""

    log_prob: float
    score: float
    """Length-normalized log-probability, by which beam search would rank the output."""
    tokens: tuple[str, ...]
    """The tokens without the end token."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each token and of the end token."""


def score_pairs(
    model: LoadedModel, pairs: Sequence[Pair], decoding: DecodingConfig, path: Path | str
) -> list[ScoredOutput]:
    """Return the log-probability of each pair's target. Errors name the pair's line in `path`."""
    tokenizer, engine = model.tokenizer.target, model.scoring_engine
    results = []
    for pair, log_probs_T, _ in decode_forced(engine, encode_pairs(model, pairs, path), model.tokenizer.eos_id):
        tokens, log_probs = tuple(map(tokenizer.token, pair.target)), tuple(log_probs_T.tolist())
        total = sum_log_probs(log_probs)
        results.append(ScoredOutput(total, normalized_score(total, len(log_probs), decoding), tokens, log_probs))
    return results
