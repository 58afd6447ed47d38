"""Attention of recurrent decoders (S3): a decoder state is compared with every encoder state, in one of five ways.

N sentences, W hypotheses of each, R = N*W rows, S source length, T target length, Q = W*T queries of a sentence,
D model width; 1 = broadcast
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional as F

from clearhead.config import ModelConfig

# How many values of the additive similarity's layer are held at a time.
CHUNK_NUMBERS = 256 * 1024


class Source(NamedTuple):
    """What decoder states look things up in, one a sentence: all its hypotheses share it."""

    keys_NSD: Tensor  # what is compared
    states_NSD: Tensor  # what is mixed
    allowed_N1S: Tensor | None  # None: there is no padding

    def pick(self, sentences: Tensor) -> "Source":
        """Only these sentences."""
        allowed = None if self.allowed_N1S is None else self.allowed_N1S.index_select(0, sentences)
        return Source(self.keys_NSD.index_select(0, sentences), self.states_NSD.index_select(0, sentences), allowed)


class Dot(nn.Module):
    """q . k (Luong et al. 2015), times a fixed scale."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def keys(self, states_NSD: Tensor) -> Tensor:
        """keys_NSD, computed once a sentence."""
        return states_NSD

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """scores_NQS."""
        return q_NQD @ keys_NSD.transpose(1, 2) * self.scale


class General(nn.Module):
    """q^T M k, bilinear (Luong et al. 2015): M is learned, and applied to the keys, which come but once."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(model_dim, model_dim, bias=False)

    def keys(self, states_NSD: Tensor) -> Tensor:
        """keys_NSD, computed once a sentence."""
        keys_NSD: Tensor = self.bilinear(states_NSD)
        return keys_NSD

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """scores_NQS."""
        return q_NQD @ keys_NSD.transpose(1, 2)


class Cosine(nn.Module):
    """b cos(q, k), with a learned sharpness b (Graves et al. 2014, section 3.3.1).

    Cosines alone lie between -1 and 1: their softmax could never be sharp. At the start b = sqrt(D), for which the
    score of vectors with values of variance 1 is that of the scaled dot product.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(model_dim) / 2))

    def keys(self, states_NSD: Tensor) -> Tensor:
        """keys_NSD, computed once a sentence."""
        return F.normalize(states_NSD, dim=-1)

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """scores_NQS."""
        return F.normalize(q_NQD, dim=-1) @ keys_NSD.transpose(1, 2) * self.log_sharpness.exp()


class Additive(nn.Module):
    """v . tanh(A q + B k + b): a small network with one layer (Bahdanau et al. 2015)."""

    def __init__(self, model_dim: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(model_dim, model_dim, bias=False)
        self.key = nn.Linear(model_dim, model_dim, bias=bias)
        self.v = nn.Parameter(torch.randn(model_dim) * model_dim**-0.5)

    def keys(self, states_NSD: Tensor) -> Tensor:
        """keys_NSD, computed once a sentence."""
        keys_NSD: Tensor = self.key(states_NSD)
        return keys_NSD

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """scores_NQS."""
        scores_NQS: Tensor = _AdditiveScores.apply(self.query(q_NQD), keys_NSD, self.v)  # type: ignore[no-untyped-call]
        return scores_NQS


class _AdditiveScores(Function):
    """sum_D v tanh(q + k) for all pairs, a few sentences at a time, and the layer made again for the gradient.

    All pairs of all sentences at once would be D times as large as the scores.
    """

    @staticmethod
    def forward(ctx: Any, q_NQD: Tensor, keys_NSD: Tensor, v_D: Tensor) -> Tensor:
        ctx.save_for_backward(q_NQD, keys_NSD, v_D)
        scores_NQS = q_NQD.new_empty(*q_NQD.shape[:2], keys_NSD.shape[1])
        for part in _parts(q_NQD, keys_NSD):
            scores_NQS[part] = _layer(q_NQD[part], keys_NSD[part]) @ v_D
        return scores_NQS

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_NQD, keys_NSD, v_D = ctx.saved_tensors
        grad_q_NQD, grad_keys_NSD = torch.empty_like(q_NQD), torch.empty_like(keys_NSD)
        grad_v_D = torch.zeros_like(v_D)
        for part in _parts(q_NQD, keys_NSD):
            y_NQSD, grad_NQS = _layer(q_NQD[part], keys_NSD[part]), grads[0][part]
            grad_v_D += grad_NQS.reshape(-1) @ y_NQSD.flatten(0, 2)
            inner_NQSD = y_NQSD.square_().neg_().add_(1).mul_(grad_NQS[..., None])  # tanh' = 1 - tanh^2
            grad_q_NQD[part], grad_keys_NSD[part] = inner_NQSD.sum(2), inner_NQSD.sum(1)
        return grad_q_NQD * v_D, grad_keys_NSD * v_D, grad_v_D


def _parts(q_NQD: Tensor, keys_NSD: Tensor) -> list[slice]:
    """The sentences, a few at a time."""
    num_sentences, num_queries, width = q_NQD.shape
    size = max(1, CHUNK_NUMBERS // (num_queries * keys_NSD.shape[1] * width))
    return [slice(start, start + size) for start in range(0, num_sentences, size)]


def _layer(q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
    """y_NQSD: the layer's values for all pairs."""
    return (q_NQD[:, :, None] + keys_NSD[:, None]).tanh_()


def build_similarity(config: ModelConfig) -> Dot | General | Additive | Cosine:
    """The similarity of a config that has one."""
    if config.attention == "additive":
        return Additive(config.model_dim, config.bias)
    if config.attention == "general":
        return General(config.model_dim)
    if config.attention == "cosine":
        return Cosine(config.model_dim)
    return Dot(config.model_dim**-0.5 if config.attention == "scaled_dot" else 1.0)


class SourceAttention(nn.Module):
    """A soft look-up: softmax of the similarities over the real tokens, and the mixture of states by these weights."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.similarity = build_similarity(config)

    def source(self, states_NSD: Tensor, real_NS: Tensor | None) -> Source:
        """What there is to look up, made ready once a sentence."""
        states_NSD = states_NSD.contiguous()  # the kernel gives them in another layout, and many look-ups come
        return Source(self.similarity.keys(states_NSD), states_NSD, None if real_NS is None else real_NS[:, None])

    def forward(self, q_RTD: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """context_RTD and weights_RTS. The W rows of a sentence ask together, so its states are never copied."""
        rows, length, width = q_RTD.shape
        q_NQD = q_RTD.reshape(len(source.keys_NSD), -1, width)
        scores_NQS: Tensor = self.similarity(q_NQD, source.keys_NSD)
        if source.allowed_N1S is not None:
            scores_NQS = scores_NQS.masked_fill(~source.allowed_N1S, float("-inf"))
        weights_NQS = scores_NQS.softmax(-1)
        context_NQD = weights_NQS @ source.states_NSD
        return context_NQD.reshape(rows, length, width), weights_NQS.reshape(rows, length, -1)
