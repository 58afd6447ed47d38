"""Scaled dot-product attention over padded or padding-free layouts (section 3.2.1).

B sequences, W hypotheses of each, H heads, T queries, S keys, P >= S keys with padding, K and E head widths of keys and
values; the leading axes of q_HK, k_HK and v_HE are [B, T] or [M], as in the layout
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.kernels.layout import AttentionLayout
from clearhead.kernels.padding_free import PaddingFreeLayout, gather, scatter
from clearhead.kernels.short_attention import MAX_KEYS, SIMD_WIDTH, promoted_dtype, short_attention
from clearhead.kernels.switch import is_enabled

_FAST_BFLOAT16 = 256  # number of queries from which torch's bfloat16 kernel is as fast as its float32 kernel


def attention(q_HK: Tensor, k_HK: Tensor, v_HE: Tensor, layout: AttentionLayout, scale: float) -> Tensor:
    """Return softmax(q k^T * scale) v of every head, [..., H, E].

    With W hypotheses per sequence, which share its keys, queries are [B * W, T, H, K] and keys [B, S, H, K].
    """
    q_BHTK, k_BHPK, v_BHPE = _separate_heads(q_HK, k_HK, v_HE, layout)
    num_keys = layout.keys.length if isinstance(layout.keys, PaddingFreeLayout) else k_HK.shape[1]
    heads_BHTE = _attend(q_BHTK, k_BHPK, v_BHPE, layout, num_keys, scale)
    if isinstance(layout.queries, PaddingFreeLayout):
        return gather(heads_BHTE, layout.queries)
    return heads_BHTE.transpose(1, 2).reshape(*q_HK.shape[:-1], v_HE.shape[-1])


def _separate_heads(q_HK: Tensor, k_HK: Tensor, v_HE: Tensor, layout: AttentionLayout) -> tuple[Tensor, ...]:
    """Return q_BHTK, k_BHPK and v_BHPE: views of padded sequences, and copies of rows without padding.

    All copies are made in one operation if possible, and in the dtype and with the number of keys that the kernels
    prefer, so that the kernels do not copy again.
    """
    queries, keys = layout.queries, layout.keys
    dtype = promoted_dtype(q_HK) if torch.is_autocast_enabled("cpu") and queries.length <= _FAST_BFLOAT16 else None
    padded_keys = keys.length if layout.bias_1HTS is not None else max(keys.length, SIMD_WIDTH)
    if isinstance(queries, PaddingFreeLayout) and queries is keys and q_HK.shape == v_HE.shape:
        return scatter([q_HK, k_HK, v_HE], queries, [queries.length, padded_keys, padded_keys], dtype)
    if not isinstance(keys, PaddingFreeLayout):
        k_BHPK, v_BHPE = k_HK.transpose(1, 2), v_HE.transpose(1, 2)
    elif k_HK.shape == v_HE.shape:
        k_BHPK, v_BHPE = scatter([k_HK, v_HE], keys, [padded_keys, padded_keys], dtype)
    else:
        [k_BHPK], [v_BHPE] = (scatter([each], keys, [padded_keys], dtype) for each in (k_HK, v_HE))
    if isinstance(queries, PaddingFreeLayout):
        [q_BHTK] = scatter([q_HK], queries, [queries.length], dtype)
    else:
        batch = k_BHPK.shape[0]  # len() would fix the size in exported graphs
        q_BHTK = q_HK.reshape(batch, -1, *q_HK.shape[-2:]).transpose(1, 2)  # W * T queries per sequence
    return q_BHTK, k_BHPK, v_BHPE


def _attend(
    q_BHTK: Tensor, k_BHPK: Tensor, v_BHPE: Tensor, layout: AttentionLayout, num_keys: int, scale: float
) -> Tensor:
    """Return heads_BHTE by the kernel that is fastest for these shapes."""
    if _is_slow_in_bfloat16(q_BHTK):
        with torch.autocast("cpu", enabled=False):
            q, k, v = (x.to(promoted_dtype(q_BHTK)) for x in (q_BHTK, k_BHPK, v_BHPE))
            return _attend(q, k, v, layout, num_keys, scale).to(q_BHTK.dtype)
    num_queries, padded_keys = q_BHTK.shape[2], k_BHPK.shape[2]
    if _is_short(q_BHTK, k_BHPK) and layout.bias_1HTS is None:
        mask = _pad_mask(layout.allowed_keys(num_queries, num_keys), num_keys, k_BHPK)
        return short_attention(q_BHTK, k_BHPK, v_BHPE, mask, scale)
    # If only causality restricts attention, torch needs no mask. A single query may attend to all cached keys.
    is_causal = layout.has_only_causality and num_queries > 1 and num_queries == padded_keys
    mask = None if is_causal else _pad_mask(layout.mask(num_queries, num_keys), num_keys, k_BHPK)
    return F.scaled_dot_product_attention(q_BHTK, k_BHPK, v_BHPE, attn_mask=mask, is_causal=is_causal, scale=scale)


def _pad_mask(mask: Tensor | None, num_keys: int, k_BHPK: Tensor) -> Tensor | None:
    """Return the mask extended by False for the padding keys from `num_keys` on; unchanged if there are none."""
    missing = k_BHPK.shape[2] - num_keys
    if not missing:
        return mask
    allowed = torch.ones(1, num_keys, dtype=torch.bool, device=k_BHPK.device) if mask is None else mask
    return F.pad(allowed, (0, missing), value=False)


def _is_short(q_BHTK: Tensor, k_BHPK: Tensor) -> bool:
    """Return whether batched products are faster than torch's fused kernel: in training on a CPU with few keys."""
    return (
        is_enabled()
        and torch.is_grad_enabled()
        and q_BHTK.requires_grad
        and q_BHTK.device.type == "cpu"
        and q_BHTK.dtype in (torch.float32, torch.bfloat16)
        and k_BHPK.shape[2] <= MAX_KEYS
    )


def _is_slow_in_bfloat16(q_BHTK: Tensor) -> bool:
    """Return whether float32 is faster: on a CPU, the backward pass of torch's bfloat16 kernel is slow.

    CPU time of forward and backward on one thread, head width 64, bfloat16 and float32: 100 sequences of 18 tokens 28
    and 9 ms, 32 of 64 tokens 51 and 27, 16 of 128 58 and 43, 8 of 256 61 and 60, 4 of 512 158 and 173.
    """
    is_trained = q_BHTK.requires_grad and q_BHTK.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return is_trained and q_BHTK.shape[2] <= _FAST_BFLOAT16
