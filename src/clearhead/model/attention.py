"""Scaled dot-product and multi-head attention (section 3.2).

B batch, W hypotheses per sentence, T queries, S keys, H heads, D model width, K and E head widths of keys and values.
Activations x_D are [B, T, D], or rows [M, D] without padding, as their layout says.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.kernels import AttentionLayout
from clearhead.model.dropout import Dropout
from clearhead.model.positions import Rotation


class KVCache(NamedTuple):
    """Keys and values of one attention, of all positions so far: [B, S, H, K] and [B, S, H, E], or rows [M, H, K]."""

    k_HK: Tensor
    v_HE: Tensor

    def append(self, new: "KVCache") -> "KVCache":
        """Return the cache with the keys and values of further positions."""
        return KVCache(torch.cat((self.k_HK, new.k_HK), 1), torch.cat((self.v_HE, new.v_HE), 1))

    def select(self, rows: Tensor) -> "KVCache":
        """Return these rows of the batch, in this order."""
        return KVCache(self.k_HK.index_select(0, rows), self.v_HE.index_select(0, rows))


class AttentionOutput(NamedTuple):
    """Output of an attention sub-layer, and its weights if they are wanted."""

    y_D: Tensor
    weights_BHTS: Tensor | None


def attention_weights(q_BTHK: Tensor, k_BSHK: Tensor, layout: AttentionLayout, scale: float) -> Tensor:
    """Return softmax(Q K^T * scale), which is 0 where a key may not be attended to (equation 1)."""
    scores_BHTS = q_BTHK.transpose(1, 2) @ k_BSHK.permute(0, 2, 3, 1) * scale
    mask = layout.mask(scores_BHTS.shape[2], scores_BHTS.shape[3])
    if mask is None:
        return scores_BHTS.softmax(-1)
    if mask.dtype == torch.bool:
        return scores_BHTS.masked_fill(~mask, float("-inf")).softmax(-1)
    return (scores_BHTS + mask).softmax(-1)


class Projection(kernels.Linear):
    """Projection to queries, keys or values. `initialize` draws its weight as part of its attention."""

    def reset_parameters(self) -> None:
        """Set the bias to zero."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class MultiHeadAttention(nn.Module):
    """h attention functions in parallel over learned projections, concatenated and projected (section 3.2.2).

    `query`, `key` and `value` project to all heads at once: W_1^Q, ..., W_h^Q are blocks of the rows of `query.weight`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, heads, bias = config.model_dim, config.num_heads, config.bias
        self.num_heads, self.key_dim, self.value_dim = heads, config.head_key_dim, config.head_value_dim
        self.scale = self.key_dim**-0.5 if config.scale_attention else 1.0
        self.query = Projection(width, heads * self.key_dim, bias=bias)
        self.key = Projection(width, heads * self.key_dim, bias=bias)
        self.value = Projection(width, heads * self.value_dim, bias=bias)
        self.dropout = Dropout(config.attention_dropout)
        self.output = kernels.Linear(heads * self.value_dim, width, bias=bias)

    def project(self, x_D: Tensor, rotation: Rotation | None = None) -> tuple[Tensor, KVCache]:
        """Return queries, keys and values of the same positions, for self-attention."""
        q, k, v = map(self._split_heads, kernels.joint_linear(x_D, self.query, self.key, self.value))
        if rotation is not None:
            q, k = rotation(q), rotation(k)
        return q, KVCache(k, v)

    def queries(self, x_D: Tensor) -> Tensor:
        """Return the queries of the decoder, for attention to the encoder output."""
        return self._split_heads(self.query(x_D))

    def keys_values(self, encoded_D: Tensor) -> KVCache:
        """Return keys and values of the encoder output."""
        return KVCache(*map(self._split_heads, kernels.joint_linear(encoded_D, self.key, self.value)))

    def forward(
        self, q_HK: Tensor, keys_values: KVCache, layout: AttentionLayout, want_weights: bool = False
    ) -> AttentionOutput:
        """Return Concat(head_1, ..., head_h) W^O with head_i = softmax(q_i k_i^T / sqrt(K)) v_i."""
        if want_weights or self.dropout.is_active:
            heads_HE, weights_BHTS = self._explicit_attention(q_HK, keys_values, layout)
        else:
            heads_HE, weights_BHTS = kernels.attention(q_HK, *keys_values, layout, self.scale), None
        return AttentionOutput(self.output(heads_HE.flatten(-2)), weights_BHTS)

    def _explicit_attention(
        self, q_BTHK: Tensor, keys_values: KVCache, layout: AttentionLayout
    ) -> tuple[Tensor, Tensor]:
        """Return the heads and the attention weights of padded sequences; W hypotheses share the keys of a sentence."""
        (batch, length, heads, _), (k_BSHK, v_BSHE) = q_BTHK.shape, keys_values
        q_BTHK = q_BTHK.reshape(k_BSHK.shape[0], -1, heads, self.key_dim)  # W * T queries
        weights_BHTS = attention_weights(q_BTHK, k_BSHK, layout, self.scale)
        heads_BHTE = self.dropout(weights_BHTS) @ v_BSHE.transpose(1, 2)
        heads_BTHE = heads_BHTE.transpose(1, 2).reshape(batch, length, heads, self.value_dim)
        weights_BHWTS = weights_BHTS.view(*weights_BHTS.shape[:2], -1, length, k_BSHK.shape[1])
        return heads_BTHE, weights_BHWTS.transpose(1, 2).flatten(0, 1)

    def _split_heads(self, x_D: Tensor) -> Tensor:
        return x_D.view(*x_D.shape[:-1], self.num_heads, -1)
