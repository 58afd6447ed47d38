"""How probable a model finds given outputs: every token of a target under teacher forcing, without search.

N pairs of a batch, T target length with the end, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.config import DecodingConfig
from clearhead.data.pairs import Pair
from clearhead.decoding.scoring import divisor
from clearhead.errors import DataError
from clearhead.tasks.examples import in_batches, most_pieces
from clearhead.tasks.task import Ready
from clearhead.tasks.translate import collate

LOGITS = 1 << 24  # numbers held at a time, 64 MiB


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


def score_pairs(model: Ready, pairs: Sequence[Pair], decoding: DecodingConfig, path: Path | str) -> list[Scored]:
    """Each pair's target under the model, those of like length together. Errors name the pair's line in `path`."""
    sources = model.tokenizer.encode_batch([pair.source for pair in pairs])
    targets = model.tokenizer.target.encode_batch([pair.target for pair in pairs])
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    for pair, length in zip(pairs, lengths, strict=True):
        if length > most_pieces(model.config):
            limit = most_pieces(model.config) - 1
            raise DataError.at(path, pair.line, f"{length - 1:,} pieces, the model takes {limit:,}; split the line")
    results: list[Scored | None] = [None] * len(pairs)
    for batch in in_batches(lengths, min(4096, LOGITS // model.config.model.vocab_size)):
        found = _log_probs(model, [sources[index] for index in batch], [targets[index] for index in batch])
        for index, log_probs in zip(batch, found, strict=True):
            pieces = tuple(model.tokenizer.target.piece(token) for token in targets[index])
            total = sum(log_probs)
            results[index] = Scored(total, total / divisor(len(log_probs), decoding), pieces, tuple(log_probs))
    return [result for result in results if result is not None]


@torch.inference_mode()
def _log_probs(model: Ready, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
    """The log-probability of each token of the targets and of the end behind them."""
    batch = collate(sources, targets, model.config.model)
    logits_NTV = model.network.logits(model.network(batch.src, batch.tgt_in_NT))
    log_probs_NT = logits_NTV.log_softmax(-1).gather(2, batch.tgt_out_NT[:, :, None])[:, :, 0].double()
    return [row_T[: len(target) + 1].tolist() for row_T, target in zip(log_probs_NT, targets, strict=True)]
