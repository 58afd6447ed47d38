"""Log-probabilities of given outputs: every token of a target under teacher forcing, without search.

Forced decoding of given pairs: an engine computes the probabilities of their targets, and attention if asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.config import DecodingConfig
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.readers.pairs import Pair
from clearhead.decoding.penalties import normalized_score, sum_log_probs
from clearhead.engines.engine import Floats, ScoringEngine
from clearhead.errors import DataError
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens

PAIRS_PER_CALL = 4096  # pairs per call of the engine, which batches those of similar length


@dataclass(frozen=True)
class EncodedPair:
    """A pair as ids, without start and end."""

    pair: Pair
    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Places that its longer side takes, with the end."""
        return max(len(self.source), len(self.target)) + 1


def encode_pairs(model: LoadedModel, pairs: Sequence[Pair], path: Path | str) -> list[EncodedPair]:
    """The pairs as ids; refuses what the network cannot take whole, by its line in `path`."""
    pieces = get_task(model.config.task).codec.encode
    sources = pieces(model.tokenizer, [pair.source for pair in pairs])
    targets = pieces(model.tokenizer.target, [pair.target for pair in pairs])
    encoded = [EncodedPair(*each) for each in zip(pairs, sources, targets, strict=True)]
    limit = max_input_tokens(model.config)
    for one in encoded:
        if one.length > limit:
            problem = f"{one.length - 1:,} pieces, the model takes {limit - 1:,}; split the line"
            raise DataError.at(path, one.pair.line, problem)
    return encoded


def decode_forced(
    engine: ScoringEngine, encoded: Sequence[EncodedPair], end_id: int, attention_layer: int | None = None
) -> Iterator[tuple[EncodedPair, Floats, Floats | None]]:
    """Yield each pair with the log-probabilities of its target tokens and end, and the layer's attention [H, T, S]."""
    for first in range(0, len(encoded), PAIRS_PER_CALL):
        part = encoded[first : first + PAIRS_PER_CALL]
        sources, targets = [[*one.source, end_id] for one in part], [[*one.target, end_id] for one in part]
        for one, (log_probs_T, weights_HTS) in zip(part, engine.score(sources, targets, attention_layer), strict=True):
            yield one, log_probs_T, weights_HTS


def mean_target_nll(engine: ScoringEngine, store: PairIds, end_id: int) -> float:
    """Return the mean negative log-likelihood of a target token, the end of each target included."""
    total, count = 0.0, 0
    for first in range(0, len(store), PAIRS_PER_CALL):
        part = range(first, min(first + PAIRS_PER_CALL, len(store)))
        sources, targets = ([[*side[i].tolist(), end_id] for i in part] for side in (store.source, store.target))
        for log_probs_T, _ in engine.score(sources, targets):
            total, count = total - float(log_probs_T.sum(dtype="float64")), count + len(log_probs_T)
    return total / count


@dataclass(frozen=True)
class ScoredOutput:
    """The log-probability of a given output, of each of its tokens, and what search would rank it by."""

    log_prob: float
    score: float
    tokens: tuple[str, ...]
    """The pieces; the end token is not among them."""
    token_log_probs: tuple[float, ...]
    """Of every piece, and of the end token."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "log_prob": self.log_prob,
            "score": self.score,
            "tokens": list(self.tokens),
            "token_log_probs": list(self.token_log_probs),
        }


def score_pairs(
    model: LoadedModel, pairs: Sequence[Pair], decoding: DecodingConfig, path: Path | str
) -> list[ScoredOutput]:
    """Return the log-probability of each pair's target. Errors name the pair's line in `path`."""
    tokenizer, engine = model.tokenizer.target, model.scoring_engine
    scored = []
    for one, log_probs_T, _ in decode_forced(engine, encode_pairs(model, pairs, path), model.tokenizer.eos_id):
        pieces, log_probs = tuple(tokenizer.piece(token) for token in one.target), tuple(log_probs_T.tolist())
        total = sum_log_probs(log_probs)
        scored.append(ScoredOutput(total, normalized_score(total, len(log_probs), decoding), pieces, log_probs))
    return scored
