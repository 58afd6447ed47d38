"""x W + b while a CPU trains, by oneDNN: it takes 0.85 to 0.95 of MKL's time, which torch calls, for x W and for what x
gets on the way back. The product that the weights get is MKL's, which is as fast there.

oneDNN makes a kernel for each number of rows, in a millisecond, and keeps it, in half a megabyte: so only numbers that
come again are its own, and only wide layers. At 128 it gained a hundredth of the time in the long run, and lost a tenth
in the first updates.

M rows, D numbers of each before, N behind
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.model import affine

GRAIN = 64  # rows
WIDE = 256


def grain(rows: int) -> int:
    """The multiples of this come again, among numbers of about so many rows; more rows of one number, 3 % at most."""
    return max(GRAIN, 1 << max(0, rows.bit_length() - 6))


def wants_grains(width: int) -> bool:
    """Whether a model so wide is trained by kernels of oneDNN; in bfloat16 torch itself takes them for any."""
    return width >= WIDE or torch.is_autocast_enabled("cpu")


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, weight_ND: Tensor, bias_N: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_MD, weight_ND)
        return affine.multiply(x_MD, weight_ND.t(), bias_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MN: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_MD, weight_ND = ctx.saved_tensors
        has_x, has_weight, has_bias = ctx.needs_input_grad
        return (
            affine.multiply(grad_MN, weight_ND) if has_x else None,
            grad_MN.t() @ x_MD if has_weight else None,
            grad_MN.sum(0) if has_bias else None,
        )


def linear(x: Tensor, weight_ND: Tensor, bias_N: Tensor | None, is_training: bool) -> Tensor:
    """x W + b of anything that has D numbers last. Trained so it has gradients, but not those of gradients."""
    if not (is_training and _has_kernel(x, weight_ND)):
        return F.linear(x, weight_ND, bias_N)
    y_MN: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight_ND, bias_N)  # type: ignore[no-untyped-call]
    return y_MN.view(*x.shape[:-1], len(weight_ND))


def _has_kernel(x: Tensor, weight_ND: Tensor) -> bool:
    rows = x.numel() // x.shape[-1]
    return (
        torch.is_grad_enabled()
        and weight_ND.requires_grad
        and min(weight_ND.shape) >= WIDE
        and rows % grain(rows) == 0
        and affine.has_kernel(x, weight_ND)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class Linear(nn.Linear):
    """A linear layer that trains so."""

    def forward(self, x: Tensor) -> Tensor:
        """y, with as many numbers last as the layer has outputs."""
        return linear(x, self.weight, self.bias, self.training)
