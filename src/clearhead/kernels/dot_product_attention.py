"""Scaled dot-product attention over padded or padding-free layouts (section 3.2.1).

B sequences, W hypotheses of each, H heads, T queries, S keys, P >= S positions of keys in memory, K head width, E head
width of values; the leading axes of q_HK, k_HK and v_HE are [B, T] or [M], as in the layout
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.kernels.layout import AttentionLayout
from clearhead.kernels.padding_free import PaddingFreeLayout, gather, scatter
from clearhead.kernels.short_attention import MAX_KEYS, SIMD_WIDTH, promoted_dtype, short_attention
from clearhead.kernels.switch import is_enabled

_FAST_BFLOAT16 = 256  # queries, from which on torch's bfloat16 kernel is as fast as its float32 kernel


def attention(q_HK: Tensor, k_HK: Tensor, v_HE: Tensor, layout: AttentionLayout, scale: float | None = None) -> Tensor:
    """Return softmax(q k^T * scale) v of every head, [..., H, E]; `scale` is 1 / sqrt(K) by default.

    With W hypotheses per sequence, which share its keys, queries are [B * W, T, H, K] and keys [B, S, H, K].
    """
    if isinstance(layout.queries, PaddingFreeLayout):
        return _padding_free_attention(q_HK, k_HK, v_HE, layout, scale)
    batch = k_HK.shape[0]  # len() would fix the size in exported graphs
    q_BTHK = q_HK.reshape(batch, -1, *q_HK.shape[-2:])  # W * T queries per sequence
    q_BHTK, k_BHSK, v_BHSE = (x.transpose(1, 2) for x in (q_BTHK, k_HK, v_HE))
    mixed_BHTE = _attend(q_BHTK, k_BHSK, v_BHSE, layout, k_HK.shape[1], scale)
    return mixed_BHTE.transpose(1, 2).reshape(*q_HK.shape[:-1], v_HE.shape[-1])


def _padding_free_attention(
    q_MHK: Tensor, k_MHK: Tensor, v_MHE: Tensor, layout: AttentionLayout, scale: float | None
) -> Tensor:
    """Scatter rows to positions, attend, and gather the rows."""
    queries, keys = layout.queries, layout.keys
    assert isinstance(queries, PaddingFreeLayout) and isinstance(keys, PaddingFreeLayout)
    num_positions = keys.length
    if layout.bias_1HTS is None and keys.length < SIMD_WIDTH:
        num_positions = SIMD_WIDTH  # instead of filling up in a second copy
    computes_float32 = torch.is_autocast_enabled("cpu") and queries.length <= _FAST_BFLOAT16
    dtype = promoted_dtype(q_MHK) if computes_float32 else None
    if queries is keys and q_MHK.shape == v_MHE.shape:
        lengths = [queries.length, num_positions, num_positions]
        q_BHTK, k_BHPK, v_BHPE = scatter([q_MHK, k_MHK, v_MHE], queries, lengths, dtype)
    else:
        [q_BHTK] = scatter([q_MHK], queries, [queries.length], dtype)
        k_BHPK, v_BHPE = _scatter_keys_values(k_MHK, v_MHE, keys, num_positions, dtype)
    return gather(_attend(q_BHTK, k_BHPK, v_BHPE, layout, keys.length, scale), queries)


def _scatter_keys_values(
    k_MHK: Tensor, v_MHE: Tensor, keys: PaddingFreeLayout, num_positions: int, dtype: torch.dtype | None
) -> tuple[Tensor, ...]:
    if k_MHK.shape == v_MHE.shape:
        return scatter([k_MHK, v_MHE], keys, [num_positions, num_positions], dtype)
    return tuple(scatter([x], keys, [num_positions], dtype)[0] for x in (k_MHK, v_MHE))


def _attend(
    q_BHTK: Tensor, k_BHPK: Tensor, v_BHPE: Tensor, layout: AttentionLayout, num_keys: int, scale: float | None
) -> Tensor:
    """Return mixed_BHTE by the kernel that is fastest for these shapes."""
    if _is_slow_in_bfloat16(q_BHTK):
        with torch.autocast("cpu", enabled=False):
            dtype = promoted_dtype(q_BHTK)
            mixed_BHTE = _attend(q_BHTK.to(dtype), k_BHPK.to(dtype), v_BHPE.to(dtype), layout, num_keys, scale)
            return mixed_BHTE.to(q_BHTK.dtype)
    num_queries, num_positions = q_BHTK.shape[2], k_BHPK.shape[2]
    if _is_short(q_BHTK, k_BHPK) and layout.bias_1HTS is None:
        return short_attention(q_BHTK, k_BHPK, v_BHPE, layout.mask(num_queries, num_keys, num_positions), scale)
    # Causality alone is applied by torch, without a mask; a single query may attend to all cached keys.
    is_causal = layout.has_only_causality and num_queries > 1 and num_queries == num_positions
    mask = None if is_causal else layout.mask(num_queries, num_keys, num_positions)
    return F.scaled_dot_product_attention(q_BHTK, k_BHPK, v_BHPE, attn_mask=mask, is_causal=is_causal, scale=scale)


def _is_short(q_BHTK: Tensor, k_BHPK: Tensor) -> bool:
    """Return whether batched products are faster than torch's fused kernel: a CPU trains with few keys."""
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
