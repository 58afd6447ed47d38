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
from clearhead.engines.torch_network import device_of, on_device
from clearhead.tasks.forced import Forced, encode_pairs, over_pairs
from clearhead.tasks.targets import collate
from clearhead.tasks.task import Ready


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
    """Each pair's target under the model. Errors name the pair's line in `path`."""
    tokenizer, vocab_size = model.tokenizer.target, model.config.model.vocab_size

    def answer(batch: list[Forced]) -> list[Scored]:
        scored = []
        for one, log_probs in zip(batch, _log_probs(model, batch), strict=True):
            pieces, total = tuple(tokenizer.piece(token) for token in one.target), sum(log_probs)
            scored.append(Scored(total, total / divisor(len(log_probs), decoding), pieces, tuple(log_probs)))
        return scored

    return [*over_pairs(encode_pairs(model, pairs, path), answer, lambda length: length * vocab_size)]


@torch.inference_mode()
def _log_probs(model: Ready, pairs: list[Forced]) -> list[list[float]]:
    """The log-probability of each token of the targets and of the end behind them."""
    made = collate([one.source for one in pairs], [one.target for one in pairs], model.config.model)
    batch = on_device(made, device_of(model.network))
    logits_NTV = model.network.logits(model.network(batch.src, batch.tgt_in_NT))
    log_probs_NT = logits_NTV.log_softmax(-1).gather(2, batch.tgt_out_NT[:, :, None])[:, :, 0].double()
    return [row_T[: len(one.target) + 1].tolist() for row_T, one in zip(log_probs_NT, pairs, strict=True)]
