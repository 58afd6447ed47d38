"""Scaled dot-product and multi-head attention (section 3.2).

N sentences, W hypotheses per sentence, R = N*W rows, B sequences (N or R), T queries per row, Q = W*T queries per
sentence, S keys, H heads, D model width, K and E widths of a head's keys and values. Activations x_D are [B, T, D], or
rows [M, D] without padding, as their layout says.
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
    """Keys and values of one attention: [B, S, H, K] and [B, S, H, E], or rows [M, H, K] and [M, H, E]."""

    k_HK: Tensor
    v_HE: Tensor

    def append(self, new: "KVCache") -> "KVCache":
        """Return the cache extended by the keys and values of new positions, in a padded layout."""
        return KVCache(torch.cat((self.k_HK, new.k_HK), 1), torch.cat((self.v_HE, new.v_HE), 1))

    def select(self, rows: Tensor) -> "KVCache":
        """Return these sequences of the batch, in this order."""
        return KVCache(self.k_HK.index_select(0, rows), self.v_HE.index_select(0, rows))


class AttentionOutput(NamedTuple):
    """Output of an attention sub-layer, and its weights if they are wanted."""

    y_D: Tensor
    weights_BHTS: Tensor | None


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, layout: AttentionLayout, scale: float) -> Tensor:
    """Return softmax(Q K^T * scale + bias), which is 0 where a key may not be attended to (equation 1)."""
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) * scale
    if layout.bias_1HTS is not None:  # relative positions (T5)
        scores_BHTS = scores_BHTS + layout.bias_1HTS
    allowed = layout.allowed_keys(scores_BHTS.shape[2], scores_BHTS.shape[3])
    if allowed is not None:
        scores_BHTS = scores_BHTS.masked_fill(~allowed, -torch.inf)
    return scores_BHTS.softmax(-1)


class MultiHeadAttention(nn.Module):
    """h attention functions in parallel over learned projections, concatenated and projected (section 3.2.2).

    `query`, `key` and `value` project to all heads at once: the blocks of K rows of `query.weight` are the transposes
    of W_1^Q, ..., W_h^Q.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, heads, bias = config.model_dim, config.num_heads, config.bias
        self.num_heads = heads
        self.key_dim, self.value_dim = config.head_key_dim, config.head_value_dim
        self.scale = self.key_dim**-0.5 if config.scale_attention else 1.0  # T5: not scaled
        self.query = kernels.Linear(width, heads * self.key_dim, bias=bias)
        self.key = kernels.Linear(width, heads * self.key_dim, bias=bias)
        self.value = kernels.Linear(width, heads * self.value_dim, bias=bias)
        self.dropout = Dropout(config.attention_dropout)
        self.output = kernels.Linear(heads * self.value_dim, width, bias=bias)

    def queries_keys_values(self, x_D: Tensor, rotation: Rotation | None = None) -> tuple[Tensor, KVCache]:
        """Return queries, keys and values of the same positions, for self-attention."""
        # Equal to self.query(x_D), self.key(x_D) and self.value(x_D), but computed in one product.
        q_HK, k_HK, v_HE = map(self._split_heads, kernels.joint_linear(x_D, self.query, self.key, self.value))
        if rotation is not None:
            q_HK, k_HK = rotation(q_HK), rotation(k_HK)
        return q_HK, KVCache(k_HK, v_HE)

    def queries(self, x_D: Tensor) -> Tensor:
        """Return the queries of the decoder, for attention to the encoder output."""
        return self._split_heads(self.query(x_D))

    def keys_values(self, encoded_D: Tensor) -> KVCache:
        """Return keys and values of the encoder output."""
        # Equal to self.key(encoded_D) and self.value(encoded_D), but computed in one product.
        return KVCache(*map(self._split_heads, kernels.joint_linear(encoded_D, self.key, self.value)))

    def forward(
        self, q_HK: Tensor, keys_values: KVCache, layout: AttentionLayout, want_weights: bool = False
    ) -> AttentionOutput:
        """Return Concat(head_1, ..., head_h) W^O with head_i = softmax(q_i k_i^T * scale) v_i, scale = 1 / sqrt(K)."""
        weights_RHTS = None
        if want_weights or self.dropout.active_rate:
            heads_HE, weights_RHTS = self._attend_with_weights(q_HK, keys_values, layout)
        else:  # the same formula by a fused kernel, which neither returns nor drops out attention weights
            heads_HE = kernels.attention(q_HK, *keys_values, layout, self.scale)
        return AttentionOutput(self.output(heads_HE.flatten(-2)), weights_RHTS if want_weights else None)

    def _attend_with_weights(
        self, q_HK: Tensor, keys_values: KVCache, layout: AttentionLayout
    ) -> tuple[Tensor, Tensor]:
        """Return the heads, and weights_RHTS; the W rows of a sentence share its keys and values."""
        q_RTHK = layout.queries.pad(q_HK)
        k_NHSK, v_NHSE = (layout.keys.pad(each).transpose(1, 2) for each in keys_values)
        # The W hypotheses of a sentence are Q = W*T queries, so that its keys and values are not copied.
        q_NHQK = q_RTHK.reshape(k_NHSK.shape[0], -1, *q_RTHK.shape[2:]).transpose(1, 2)
        weights_NHQS = attention_weights(q_NHQK, k_NHSK, layout, self.scale)
        heads_NQHE = (self.dropout(weights_NHQS) @ v_NHSE).transpose(1, 2)
        heads_RTHE = heads_NQHE.reshape(*q_RTHK.shape[:3], -1)
        weights_NHWTS = weights_NHQS.reshape(*weights_NHQS.shape[:2], -1, q_RTHK.shape[1], k_NHSK.shape[2])
        return layout.queries.unpad(heads_RTHE), weights_NHWTS.transpose(1, 2).flatten(0, 1)

    def _split_heads(self, joint: Tensor) -> Tensor:
        """Return [..., H * K] as [..., H, K]."""
        return joint.view(*joint.shape[:-1], self.num_heads, -1)
