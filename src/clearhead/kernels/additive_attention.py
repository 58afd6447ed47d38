"""Scores of additive attention, computed without storing the hidden layer of all query-key pairs.

N sentences, Q queries, S keys, D width
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from clearhead.kernels.switch import is_enabled

CHUNK_VALUES = 256 * 1024  # values of the hidden layer per chunk: 1 MB, which fits into the cache of a core


def additive_scores(q_NQD: Tensor, keys_NSD: Tensor, v_D: Tensor) -> Tensor:
    """Return scores_NQS = v . tanh(q + k) of all pairs of queries and keys of a sentence.

    On a CPU they have gradients, but no gradients of gradients.
    """
    if not is_enabled() or q_NQD.device.type != "cpu":
        return torch.tanh(q_NQD[:, :, None] + keys_NSD[:, None]) @ v_D
    scores_NQS: Tensor = _AdditiveScores.apply(q_NQD, keys_NSD, v_D)  # type: ignore[no-untyped-call]
    return scores_NQS


class _AdditiveScores(Function):
    """Computes a few sentences at a time; the hidden layer, D times as large as the scores, is recomputed backward."""

    @staticmethod
    def forward(ctx: Any, q_NQD: Tensor, keys_NSD: Tensor, v_D: Tensor) -> Tensor:
        ctx.save_for_backward(q_NQD, keys_NSD, v_D)
        scores_NQS = q_NQD.new_empty(*q_NQD.shape[:2], keys_NSD.shape[1])
        for part in _chunks(q_NQD, keys_NSD):
            scores_NQS[part] = _hidden(q_NQD[part], keys_NSD[part]) @ v_D
        return scores_NQS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_NQD, keys_NSD, v_D = ctx.saved_tensors
        grad_q_NQD, grad_keys_NSD = torch.empty_like(q_NQD), torch.empty_like(keys_NSD)
        grad_v_D = torch.zeros_like(v_D)
        for part in _chunks(q_NQD, keys_NSD):
            y_NQSD, grad_NQS = _hidden(q_NQD[part], keys_NSD[part]), grads[0][part]
            grad_v_D += grad_NQS.reshape(-1) @ y_NQSD.flatten(0, 2)
            inner_NQSD = y_NQSD.square_().neg_().add_(1).mul_(grad_NQS[..., None])  # tanh' = 1 - tanh^2
            grad_q_NQD[part], grad_keys_NSD[part] = inner_NQSD.sum(2), inner_NQSD.sum(1)
        # d score / d q = v * (1 - tanh^2); the common factor v is applied once, after summation
        return grad_q_NQD * v_D, grad_keys_NSD * v_D, grad_v_D


def _chunks(q_NQD: Tensor, keys_NSD: Tensor) -> list[slice]:
    """Return slices of a few sentences."""
    num_sentences, num_queries, width = q_NQD.shape
    size = max(1, CHUNK_VALUES // (num_queries * keys_NSD.shape[1] * width))
    return [slice(start, start + size) for start in range(0, num_sentences, size)]


def _hidden(q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
    """Return y_NQSD, the hidden layer of all query-key pairs."""
    return (q_NQD[:, :, None] + keys_NSD[:, None]).tanh_()
