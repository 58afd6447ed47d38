"""Matrix products by oneDNN, which is part of torch. They take 0.8 to 0.95 of the time of MKL, torch's default.

For each new number of rows, oneDNN compiles a kernel, which takes a millisecond, and caches it in half a megabyte.
These functions are therefore used only for numbers of rows that occur repeatedly.

M rows, D inputs, N outputs
"""

import torch
from torch import Tensor, nn

from clearhead.kernels.switch import is_enabled

WIDE = 256
"""Minimum width of layers for which oneDNN is used. At 128 it would save 1 % of the time, but compiling its kernels
would take 10 % of the time of the first updates."""

_OPERATORS = torch.ops.mkldnn
_IS_BUILT = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(_OPERATORS, "_linear_pointwise")
    and not _OPERATORS._is_mkldnn_acl_supported()  # the ARM library cannot add a product to a sum
)


def has_onednn(*factors: Tensor) -> bool:
    """Return whether oneDNN can multiply these tensors: plain float32 tensors on a CPU."""
    are_plain = all(
        each.device.type == "cpu" and each.dtype == torch.float32 and type(each) in (Tensor, nn.Parameter)
        for each in factors
    )
    return bool(are_plain and _IS_BUILT and torch.backends.mkldnn.enabled and is_enabled())


def multiply(left_MD: Tensor, right_DN: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """Return left @ right + bias, without gradients."""
    return _OPERATORS._linear_pointwise.default(left_MD, right_DN.t(), bias_N, "none", [], "")  # type: ignore[no-any-return]


def multiply_add(sum_MN: Tensor, left_MD: Tensor, right_DN: Tensor) -> Tensor:
    """Return sum + left @ right, without gradients."""
    return _OPERATORS._linear_pointwise.binary(left_MD, sum_MN, right_DN.t(), None, "add")  # type: ignore[no-any-return]
