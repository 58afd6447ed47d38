"""Log-probabilities of given outputs: every token of a target under teacher forcing, without search."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.config import DecodingConfig
from clearhead.data.readers.pairs import Pair
from clearhead.decoding.penalties import normalized_score, sum_log_probs
from clearhead.tasks.forced_decoding import encode_pairs, force_pairs
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class Scored:
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


def score_pairs(model: LoadedModel, pairs: Sequence[Pair], decoding: DecodingConfig, path: Path | str) -> list[Scored]:
    """Return the log-probability of each pair's target. Errors name the pair's line in `path`."""
    tokenizer, engine = model.tokenizer.target, model.scoring_engine
    scored = []
    for one, log_probs_T, _ in force_pairs(engine, encode_pairs(model, pairs, path), model.tokenizer.eos_id):
        pieces, log_probs = tuple(tokenizer.piece(token) for token in one.target), tuple(log_probs_T.tolist())
        total = sum_log_probs(log_probs)
        scored.append(Scored(total, normalized_score(total, len(log_probs), decoding), pieces, log_probs))
    return scored
