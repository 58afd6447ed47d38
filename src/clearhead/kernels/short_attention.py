"""Attention over short sequences during training on a CPU: the result of torch's fused kernel by batched products.

The fused kernel computes one head of one sequence after the other. In the backward pass that takes longer than batched
products of all heads, which store the attention weights; for short sequences these need little memory. CPU time of
forward and backward for 107 sequences of 18 tokens on one thread: 4 heads of 32, 4.9 ms fused and 3.6 ms here; 4 heads
of 64, 8.3 and 7.8 ms; with 64 keys the fused kernel is faster. Fewer than 16 keys are padded to 16: 157 sequences of 12
tokens, 4 heads of 32, take 4.5 ms fused, 4.7 ms here without this padding and 2.9 ms with it.

All products are computed in float32, even if the projections are bfloat16.

B batch, H heads, G = B*H, T queries, S keys, P = max(S, 16), K head width, E head width of values
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.kernels.padding_free import adjacent_empties

MAX_KEYS = 40  # with more keys the fused kernel is about as fast, and it stores no weights
SIMD_WIDTH = 16  # float32 values per AVX-512 register; with fewer keys, torch's softmax takes ten times as long


def short_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSE: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return softmax(q k^T * scale) v in the type of q; the mask is boolean (True: may be attended to)."""
    with torch.autocast("cpu", enabled=False):
        mixed_BHTE: Tensor = _ShortAttention.apply(  # type: ignore[no-untyped-call]
            q_BHTK, k_BHSK, v_BHSE, mask, scale
        )
    return mixed_BHTE


class _ShortAttention(Function):
    """Two batched products forward and four backward."""

    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSE: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        (batch, heads, num_queries, _), num_keys = q_BHTK.shape, k_BHSK.shape[2]
        q_GTK = _contiguous(q_BHTK).flatten(0, 1)
        k_GPK, v_GPE = _pad_to_simd_width(k_BHSK).flatten(0, 1), _pad_to_simd_width(v_BHSE).flatten(0, 1)
        s_GTP = q_GTK.new_empty(len(q_GTK), num_queries, k_GPK.shape[1])
        s_GTP.baddbmm_(q_GTK, k_GPK.transpose(1, 2), beta=0, alpha=scale)
        bias = _additive(mask, num_keys, q_GTK)
        if bias is not None:
            s_GTP.view(batch, heads, num_queries, -1).add_(bias)
        p_GTP = torch.softmax(s_GTP, -1)
        ctx.save_for_backward(q_GTK, k_GPK, v_GPE, p_GTP)
        ctx.scale, ctx.num_keys = scale, num_keys
        ctx.is_self_attention = q_BHTK.untyped_storage().data_ptr() == k_BHSK.untyped_storage().data_ptr()
        return torch.bmm(p_GTP, v_GPE).view(batch, heads, num_queries, -1).to(q_BHTK.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTE: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q_GTK, k_GPK, v_GPE, p_GTP = ctx.saved_tensors
        shape, grad_GTE = grad_BHTE.shape[:2], _contiguous(grad_BHTE).flatten(0, 1)
        grad_p_GTP = torch.bmm(grad_GTE, v_GPE.transpose(1, 2))
        grad_s_GTP = torch._softmax_backward_data(grad_p_GTP, p_GTP, -1, p_GTP.dtype)
        if ctx.is_self_attention:  # queries, keys and values are one product, so their gradients are adjacent
            grad_q_GTK, grad_k_GPK, grad_v_GPE = adjacent_empties(q_GTK, k_GPK, v_GPE)
        else:  # keys and values come from the encoder output, and queries from another product
            (grad_q_GTK,), (grad_k_GPK, grad_v_GPE) = adjacent_empties(q_GTK), adjacent_empties(k_GPK, v_GPE)
        grad_q_GTK.baddbmm_(grad_s_GTP, k_GPK, beta=0, alpha=ctx.scale)
        grad_k_GPK.baddbmm_(grad_s_GTP.transpose(1, 2), q_GTK, beta=0, alpha=ctx.scale)
        torch.bmm(p_GTP.transpose(1, 2), grad_GTE, out=grad_v_GPE)
        grads = (grad_q_GTK, grad_k_GPK, grad_v_GPE)
        q, k, v = (grad.view(*shape, *grad.shape[1:]).to(grad_BHTE.dtype) for grad in grads)
        return q, k[:, :, : ctx.num_keys], v[:, :, : ctx.num_keys], None, None


def promoted_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which attention is computed: float32 for bfloat16."""
    return torch.promote_types(x.dtype, torch.float32)


def _contiguous(x_BHSK: Tensor) -> Tensor:
    """Return x contiguous and in the promoted type; x itself if it is both."""
    return x_BHSK.to(promoted_dtype(x_BHSK), memory_format=torch.contiguous_format)


def _pad_to_simd_width(x_BHSK: Tensor) -> Tensor:
    """Return a contiguous tensor, padded with zeros to at least SIMD_WIDTH positions."""
    batch, heads, num_keys, width = x_BHSK.shape
    if num_keys >= SIMD_WIDTH:
        return _contiguous(x_BHSK)
    filled_BHPK = x_BHSK.new_empty(batch, heads, SIMD_WIDTH, width, dtype=promoted_dtype(x_BHSK))
    filled_BHPK[:, :, :num_keys].copy_(x_BHSK)
    filled_BHPK[:, :, num_keys:].zero_()
    return filled_BHPK


def _additive(mask: Tensor | None, num_keys: int, like: Tensor) -> Tensor | None:
    """Return the mask to be added to scores: minus infinity where a key may not be attended to or does not exist.

    Adding a mask takes a tenth of the time of `masked_fill`.
    """
    missing = SIMD_WIDTH - num_keys
    if mask is None and missing <= 0:
        return None
    allowed = like.new_zeros(num_keys) if mask is None else like.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    return allowed if missing <= 0 else F.pad(allowed, (0, missing), value=-torch.inf)
