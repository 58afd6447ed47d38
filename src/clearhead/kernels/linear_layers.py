"""Linear layers x W^T + b, computed by oneDNN during training of wide models on a CPU.

oneDNN takes 0.85 to 0.95 of MKL's time for the product and for the gradient of its input. The gradient of the weights
is computed by MKL, which is as fast there.

M rows, D inputs, N outputs
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.kernels.onednn import WIDE, has_onednn, multiply
from clearhead.kernels.padding_free import join_columns, row_multiple
from clearhead.kernels.switch import is_enabled


class Linear(nn.Linear):
    """A linear layer, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight_ND: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """Return x W^T + b. If oneDNN computes it, the result has gradients, but no second derivatives."""
    if not _uses_onednn(x, weight_ND):
        return F.linear(x, weight_ND, bias_N)
    y_MN: Tensor = _OneDNNLinear.apply(x.reshape(-1, x.shape[-1]), weight_ND, bias_N)  # type: ignore[no-untyped-call]
    return y_MN.view(*x.shape[:-1], len(weight_ND))


def joint_linear(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Return the outputs of several layers with the same input, computed in one product."""
    weight_ND, bias_N = concatenate_weights(layers)
    joint = linear(x, weight_ND, bias_N)
    sizes = [len(layer.weight) for layer in layers]
    if joint.ndim != 2 or not (joint.requires_grad and is_enabled()):
        return joint.split_with_sizes(sizes, -1)
    # Padding-free rows: `scatter` returns their gradients as one matrix, which needs no copy.
    columns: tuple[Tensor, ...] = _SplitColumns.apply(joint, sizes)  # type: ignore[no-untyped-call]
    return columns


def concatenate_weights(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Return the weights and biases of several layers, concatenated."""
    weight_ND = torch.cat([layer.weight for layer in layers])
    return weight_ND, None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])


def _uses_onednn(x: Tensor, weight_ND: Tensor) -> bool:
    """Return whether a wide float32 layer is trained with a rounded number of rows, whose compiled kernel is reused."""
    is_trained = torch.is_grad_enabled() and weight_ND.requires_grad and not torch.is_autocast_enabled("cpu")
    if not is_trained or min(weight_ND.shape) < WIDE or not has_onednn(x, weight_ND):
        return False
    rows = x.numel() // x.shape[-1]
    return rows % row_multiple(rows) == 0


class _OneDNNLinear(Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, weight_ND: Tensor, bias_N: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_MD, weight_ND)
        return multiply(x_MD, weight_ND.t(), bias_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MN: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_MD, weight_ND = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            multiply(grad_MN, weight_ND) if needs_x else None,
            grad_MN.t() @ x_MD if needs_weight else None,
            grad_MN.sum(0) if needs_bias else None,
        )


class _SplitColumns(Function):
    """Column blocks of a matrix; in the backward pass they are joined without a copy if they are adjacent."""

    @staticmethod
    def forward(ctx: Any, joint_MN: Tensor, sizes: list[int]) -> Any:
        return joint_MN.split_with_sizes(sizes, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_MN: Tensor) -> tuple[Tensor, None]:
        return join_columns(grads_MN), None
