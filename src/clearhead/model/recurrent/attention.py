"""Attention of recurrent decoders to encoder states (Bahdanau et al. 2015; Luong et al. 2015): five score functions.

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, Q = W*T queries per sentence,
D model width; 1 = broadcast
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead import kernels
from clearhead.config import ModelConfig


class EncoderStates(NamedTuple):
    """Encoder states that the hypotheses of a sentence attend to."""

    keys_NSD: Tensor
    states_NSD: Tensor
    allowed_N1S: Tensor | None
    """False at padding; None without padding."""

    def select(self, sentences: Tensor) -> "EncoderStates":
        """Return these sentences, in this order."""
        allowed = None if self.allowed_N1S is None else self.allowed_N1S.index_select(0, sentences)
        return EncoderStates(
            self.keys_NSD.index_select(0, sentences), self.states_NSD.index_select(0, sentences), allowed
        )


class Dot(nn.Module):
    """q . k (Luong et al. 2015), for `scaled_dot` divided by sqrt(D) (Vaswani et al. 2017)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def keys(self, states_NSD: Tensor) -> Tensor:
        """Return keys_NSD, computed once per sentence."""
        return states_NSD

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """Return scores_NQS."""
        return q_NQD @ keys_NSD.transpose(1, 2) * self.scale


class General(nn.Module):
    """q^T W_a k (Luong et al. 2015, "general"); W_a is applied to the keys, once per sentence."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(model_dim, model_dim, bias=False)

    def keys(self, states_NSD: Tensor) -> Tensor:
        """Return keys_NSD, computed once per sentence."""
        return self.bilinear(states_NSD)

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """Return scores_NQS."""
        return q_NQD @ keys_NSD.transpose(1, 2)


class Cosine(nn.Module):
    """beta cos(q, k), with a key strength beta (Graves et al. 2014, equation 5), here one learned number.

    Initially beta = sqrt(D): for vectors of variance 1 that is the scaled dot product.
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(model_dim) / 2))

    def keys(self, states_NSD: Tensor) -> Tensor:
        """Return keys_NSD, computed once per sentence."""
        return F.normalize(states_NSD, dim=-1)

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """Return scores_NQS."""
        return F.normalize(q_NQD, dim=-1) @ keys_NSD.transpose(1, 2) * self.log_sharpness.exp()


class Additive(nn.Module):
    """v_a . tanh(W_a q + U_a k + b) (Bahdanau et al. 2015, appendix A.1.2); the bias b is not in the paper."""

    def __init__(self, model_dim: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(model_dim, model_dim, bias=False)
        self.key = nn.Linear(model_dim, model_dim, bias=bias)
        self.v = nn.Parameter(torch.randn(model_dim) * model_dim**-0.5)

    def keys(self, states_NSD: Tensor) -> Tensor:
        """Return keys_NSD, computed once per sentence."""
        return self.key(states_NSD)

    def forward(self, q_NQD: Tensor, keys_NSD: Tensor) -> Tensor:
        """Return scores_NQS."""
        return kernels.additive_scores(self.query(q_NQD), keys_NSD, self.v)


def build_score_function(config: ModelConfig) -> Dot | General | Additive | Cosine:
    """Return the score function of a config."""
    if config.attention == "additive":
        return Additive(config.model_dim, config.bias)
    if config.attention == "general":
        return General(config.model_dim)
    if config.attention == "cosine":
        return Cosine(config.model_dim)
    return Dot(config.model_dim**-0.5 if config.attention == "scaled_dot" else 1.0)


class SourceAttention(nn.Module):
    """Attention to the encoder states: their mean, weighted by the softmax of the scores."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.similarity = build_score_function(config)

    def encoder_states(self, states_NSD: Tensor, is_token_NS: Tensor | None) -> EncoderStates:
        """Return the states with their keys, computed once per sentence."""
        allowed_N1S = None if is_token_NS is None else is_token_NS[:, None]
        return EncoderStates(self.similarity.keys(states_NSD), states_NSD, allowed_N1S)

    def forward(self, q_RTD: Tensor, source: EncoderStates) -> tuple[Tensor, Tensor]:
        """Return context_RTD and weights_RTS; the W rows of a sentence share its states."""
        rows, length, model_dim = q_RTD.shape
        q_NQD = q_RTD.reshape(len(source.keys_NSD), -1, model_dim)
        scores_NQS: Tensor = self.similarity(q_NQD, source.keys_NSD)
        if source.allowed_N1S is not None:
            scores_NQS = scores_NQS.masked_fill(~source.allowed_N1S, float("-inf"))
        weights_NQS = scores_NQS.softmax(-1)
        context_NQD = weights_NQS @ source.states_NSD
        return context_NQD.reshape(rows, length, model_dim), weights_NQS.reshape(rows, length, -1)
