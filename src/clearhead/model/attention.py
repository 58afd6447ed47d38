"""Scaled dot-product and multi-head attention (section 3.2): a soft dictionary look-up.

B batch, T queries, S keys, D model width, H heads, K head width, E head width of values, W beam width; 1 = broadcast
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.model.masks import causal_mask


class KeysValues(NamedTuple):
    """What queries are compared with, and what is mixed by fit."""

    k_BHSK: Tensor
    v_BHSE: Tensor


class Attended(NamedTuple):
    """What an attention sub-layer gives: its output, and the weights if they were asked for."""

    y_BTD: Tensor
    weights_BHTS: Tensor | None


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, allowed: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(K)), each row a probability over the keys; what is not allowed is minus infinity before."""
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) * q_BHTK.shape[-1] ** -0.5
    if allowed is not None:
        scores_BHTS = scores_BHTS.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores_BHTS, -1)


def attend(q_BHTK: Tensor, memory: KeysValues, allowed: Tensor | None, is_causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(K)) v by torch's fused kernel, which never holds the weights."""
    mixed_BHTE: Tensor = F.scaled_dot_product_attention(q_BHTK, *memory, attn_mask=allowed, is_causal=is_causal)
    return mixed_BHTE


class MultiHeadAttention(nn.Module):
    """H small look-ups side by side, concatenated and projected again (section 3.2.2).

    The three input projections are one matrix (queries, keys, values below each other), so that self-attention
    is one product; the rows of one head are H small projections cut out of one big one.
    """

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.model_dim = model_dim
        self.in_weight = nn.Parameter(torch.empty(3 * model_dim, model_dim))
        self.in_bias = nn.Parameter(torch.zeros(3 * model_dim))
        self.out = nn.Linear(model_dim, model_dim)

    def _split_heads(self, x_BTD: Tensor, parts: int) -> tuple[Tensor, ...]:
        """`parts` tensors BHTK from one BT(parts*D)."""
        batch, length, _ = x_BTD.shape
        split = x_BTD.view(batch, length, parts, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return split.unbind(0)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values of the same positions: self-attention."""
        q_BHTK, k_BHTK, v_BHTE = self._split_heads(F.linear(x_BTD, self.in_weight, self.in_bias), 3)
        return q_BHTK, KeysValues(k_BHTK, v_BHTE)

    def queries(self, x_BTD: Tensor) -> Tensor:
        """q_BHTK alone, where the keys come from elsewhere."""
        D = self.model_dim
        return self._split_heads(F.linear(x_BTD, self.in_weight[:D], self.in_bias[:D]), 1)[0]

    def keys_values(self, x_BSD: Tensor) -> KeysValues:
        """Keys and values alone: what the decoder looks up in the encoder's output."""
        D = self.model_dim
        return KeysValues(*self._split_heads(F.linear(x_BSD, self.in_weight[D:], self.in_bias[D:]), 2))

    def forward(
        self,
        q_BHTK: Tensor,
        memory: KeysValues,
        allowed: Tensor | None = None,
        is_causal: bool = False,
        want_weights: bool = False,
    ) -> Attended:
        """The heads' mixtures, projected; `is_causal` takes the last query to stand at the last key."""
        num_queries, num_keys = q_BHTK.shape[-2], memory.k_BHSK.shape[-2]
        if is_causal and num_queries == 1:
            is_causal = False  # one query at the last place sees everything
        if is_causal and (want_weights or num_queries != num_keys):
            allowed, is_causal = causal_mask(num_queries, num_keys, q_BHTK.device), False
        if want_weights:
            weights_BHTS = attention_weights(q_BHTK, memory.k_BHSK, allowed)
            return Attended(self.merge_heads(weights_BHTS @ memory.v_BHSE), weights_BHTS)
        return Attended(self.merge_heads(attend(q_BHTK, memory, allowed, is_causal)), None)

    def merge_heads(self, mixed_BHTE: Tensor) -> Tensor:
        """The heads concatenated and projected: y_BTD."""
        y_BTD: Tensor = self.out(mixed_BHTE.transpose(1, 2).flatten(2))
        return y_BTD
