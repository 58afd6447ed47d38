"""Attention over short sequences while training on a CPU: the same sums as torch's fused kernel, in batched products.

The fused kernel goes through the heads of the sentences one by one; on the way back that takes longer than all heads
at once, for which the weights are kept: little, as long as sentences are short. CPU time of forward and backward for
107 sentences of 18 tokens on one thread, while other programs ran: 4 heads of 32, 4.9 ms fused and 3.6 ms here; 4 heads
of 64, 8.3 ms and 7.8 ms. With 64 keys the fused kernel was the faster one. Fewer than 16 keys are filled up to 16: 157
sentences of 12 tokens, 4 heads of 32, took 4.5 ms fused, 4.7 ms here as they are and 2.9 ms filled up.

Where projections are bfloat16, what is here between them is float32 all the same.

B batch, H heads, G = B*H, T queries, S keys, P = max(S, 16), K head width, E head width of values
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.model.masks import causal_mask

LONGEST = 40  # keys; soon after that the fused kernel is as fast, and it holds no weights
REGISTER = 16  # numbers of single precision, with AVX512: over fewer, torch's softmax takes ten times as long


def is_short(q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None) -> bool:
    """Whether this way is the faster one: to train on a CPU, few keys, and no bias that learns."""
    return (
        q_BHTK.requires_grad
        and q_BHTK.device.type == "cpu"
        and q_BHTK.dtype in (torch.float32, torch.bfloat16)
        and k_BHSK.shape[-2] <= LONGEST
        and (mask is None or mask.dtype == torch.bool)
    )


def attend_short(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSE: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """softmax(q k^T * scale) v, of the type of q; the mask is boolean, True: may be attended."""
    num_queries, width = q_BHTK.shape[-2:]
    if is_causal:
        mask = causal_mask(num_queries, k_BHSK.shape[-2])
    with torch.autocast("cpu", enabled=False):
        mixed_BHTE: Tensor = _ShortAttention.apply(  # type: ignore[no-untyped-call]
            q_BHTK, k_BHSK, v_BHSE, mask, width**-0.5 if scale is None else scale
        )
    return mixed_BHTE


class _ShortAttention(Function):
    """Two batched products forward, four backward, none in bfloat16."""

    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSE: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        (batch, heads, num_queries, _), num_keys = q_BHTK.shape, k_BHSK.shape[2]
        q_GTK = _copied(q_BHTK).flatten(0, 1)
        k_GPK, v_GPE = _filled_up(k_BHSK).flatten(0, 1), _filled_up(v_BHSE).flatten(0, 1)
        s_GTP = q_GTK.new_empty(len(q_GTK), num_queries, k_GPK.shape[1])
        s_GTP.baddbmm_(q_GTK, k_GPK.transpose(1, 2), beta=0, alpha=scale)
        bias = _bias(mask, num_keys, q_GTK)
        if bias is not None:
            s_GTP.view(batch, heads, num_queries, -1).add_(bias)
        p_GTP = torch.softmax(s_GTP, -1)
        ctx.save_for_backward(q_GTK, k_GPK, v_GPE, p_GTP)
        ctx.scale, ctx.num_keys = scale, num_keys
        ctx.is_one = q_BHTK.untyped_storage().data_ptr() == k_BHSK.untyped_storage().data_ptr()
        return torch.bmm(p_GTP, v_GPE).view(batch, heads, num_queries, -1).to(q_BHTK.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTE: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q_GTK, k_GPK, v_GPE, p_GTP = ctx.saved_tensors
        shape, grad_GTE = grad_BHTE.shape[:2], _copied(grad_BHTE).flatten(0, 1)
        grad_p_GTP = torch.bmm(grad_GTE, v_GPE.transpose(1, 2))
        grad_s_GTP = torch._softmax_backward_data(grad_p_GTP, p_GTP, -1, p_GTP.dtype)
        if ctx.is_one:  # whoever made queries, keys and values in one go takes their gradients so
            grad_q_GTK, grad_k_GPK, grad_v_GPE = behind_each_other(q_GTK, k_GPK, v_GPE)
        else:  # keys of a source wait for the whole decoder, queries need not
            (grad_q_GTK,), (grad_k_GPK, grad_v_GPE) = behind_each_other(q_GTK), behind_each_other(k_GPK, v_GPE)
        grad_q_GTK.baddbmm_(grad_s_GTP, k_GPK, beta=0, alpha=ctx.scale)
        grad_k_GPK.baddbmm_(grad_s_GTP.transpose(1, 2), q_GTK, beta=0, alpha=ctx.scale)
        torch.bmm(p_GTP.transpose(1, 2), grad_GTE, out=grad_v_GPE)
        found = (grad_q_GTK, grad_k_GPK, grad_v_GPE)
        q, k, v = (grad.view(*shape, *grad.shape[1:]).to(grad_BHTE.dtype) for grad in found)
        return q, k[:, :, : ctx.num_keys], v[:, :, : ctx.num_keys], None, None


def behind_each_other(*like: Tensor) -> list[Tensor]:
    """Empty ones of the same shapes in one piece of memory, so that whoever wants all of them has no copy to make."""
    pieces = like[0].new_empty(sum(each.numel() for each in like)).split_with_sizes([each.numel() for each in like])
    return [piece.view(each.shape) for piece, each in zip(pieces, like, strict=True)]


def wide(x: Tensor) -> torch.dtype:
    """The type in which attention is computed where projections are of the type of x."""
    return torch.promote_types(x.dtype, torch.float32)


def _copied(x_BHSK: Tensor) -> Tensor:
    """In one piece, and wide, in one go; itself, where it is that already."""
    return x_BHSK.to(wide(x_BHSK), memory_format=torch.contiguous_format)


def _filled_up(x_BHSK: Tensor) -> Tensor:
    """A copy with as many places as a register holds, at least; those behind are 0."""
    batch, heads, num_keys, width = x_BHSK.shape
    if num_keys >= REGISTER:
        return _copied(x_BHSK)
    filled_BHPK = x_BHSK.new_empty(batch, heads, REGISTER, width, dtype=wide(x_BHSK))
    filled_BHPK[:, :, :num_keys].copy_(x_BHSK)
    filled_BHPK[:, :, num_keys:].zero_()
    return filled_BHPK


def _bias(mask: Tensor | None, num_keys: int, like: Tensor) -> Tensor | None:
    """What is added to the scores: minus infinity where the mask forbids a key, and where none is. Adding takes a
    tenth of the time of filling in."""
    missing = REGISTER - num_keys
    if mask is None and missing <= 0:
        return None
    allowed = like.new_zeros(num_keys) if mask is None else like.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    return allowed if missing <= 0 else F.pad(allowed, (0, missing), value=-torch.inf)
