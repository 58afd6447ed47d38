"""x W + b as search computes it: with matrices that are laid out beforehand for the kernel that multiplies by them.

MKL, which torch calls, lays a matrix out anew at every product. oneDNN does it once: on one thread of a machine with
AVX512 it takes 0.8 to 0.9 of MKL's time for the rows of a batch, and 0.3 to 0.8 for the four of one sentence's beam
(256 x 768 to 512 x 6,000); and it adds the stream or bends at the same time. It has 12 microseconds of its own, for
which small products do not pay. Other devices and types, and torch without oneDNN, have the plain product.

M rows, D numbers of each before, N behind
"""

from collections.abc import Iterable

import torch
from torch import Tensor

_LARGEST = 2**25  # numbers of a matrix that is packed: 128 MiB
_MANY_NUMBERS = 3 * 2**16  # pay for any rows but one
_MANY_PRODUCTS = 2**22  # pay for any matrix
_TURNED = (2**19, 2**23)  # numbers of a matrix that is worth turning for one row, and not too many
_NUM_SAMPLES = 16

_OPERATORS = torch.ops.mkldnn
_HAS_PACKED = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(_OPERATORS, "_linear_pointwise")
    and not _OPERATORS._is_mkldnn_acl_supported()  # ARM's library has no sums behind a product
)


class Affine:
    """One linear layer. What is laid out is made at its first use, and used until `is_fresh` says no."""

    __slots__ = ("_can_pack", "_can_turn", "_mark", "_packed", "_turned_DN", "bias_N", "weight_DN", "weight_ND")

    def __init__(self, weight_ND: Tensor, bias_N: Tensor | None) -> None:
        self.weight_ND, self.weight_DN, self.bias_N = weight_ND, weight_ND.t(), bias_N
        self._packed: Tensor | None = None
        self._turned_DN: Tensor | None = None
        self._mark: tuple[int, Tensor, Tensor] | None = None
        can_copy = weight_ND.device.type == "cpu" and weight_ND.is_contiguous()
        can_copy = can_copy and not weight_ND.is_inference()  # their changes are not counted
        is_single = weight_ND.dtype == torch.float32 and torch.backends.mkldnn.enabled
        self._can_pack = can_copy and is_single and _HAS_PACKED and weight_ND.numel() <= _LARGEST
        self._can_turn = can_copy and _TURNED[0] <= weight_ND.numel() <= _TURNED[1]

    def __call__(self, x_MD: Tensor) -> Tensor:
        packed = self._packed_for(x_MD)
        if packed is not None:
            return _OPERATORS._linear_pointwise.default(x_MD, packed, self.bias_N, "none", [], "")  # type: ignore[no-any-return]
        return self.plain(x_MD)

    def relu(self, x_MD: Tensor) -> Tensor:
        """max(0, x W + b)."""
        packed = self._packed_for(x_MD)
        if packed is not None:
            return _OPERATORS._linear_pointwise.default(x_MD, packed, self.bias_N, "relu", [], "")  # type: ignore[no-any-return]
        return self.plain(x_MD).relu_()

    def onto(self, stream_MN: Tensor, x_MD: Tensor) -> Tensor:
        """stream + x W + b."""
        packed = self._packed_for(x_MD)
        if packed is not None and stream_MN.dtype == torch.float32:
            return _OPERATORS._linear_pointwise.binary(x_MD, stream_MN, packed, self.bias_N, "add")  # type: ignore[no-any-return]
        if self.bias_N is None:
            return torch.addmm(stream_MN, x_MD, self.weight_DN)
        return stream_MN + self.plain(x_MD)

    def plain(self, x_MD: Tensor) -> Tensor:
        """By torch's own product; a large matrix lies so that one row reads it from front to back."""
        weight_DN = self.weight_DN
        if self._can_turn and x_MD.shape[0] == 1:
            if self._turned_DN is None:
                self._remember()
                self._turned_DN = weight_DN.detach().contiguous()
            weight_DN = self._turned_DN
        return x_MD.mm(weight_DN) if self.bias_N is None else torch.addmm(self.bias_N, x_MD, weight_DN)

    def _packed_for(self, x_MD: Tensor) -> Tensor | None:
        """The matrix as oneDNN wants it, where that pays for so many rows; under autocast they are of another type."""
        rows, numbers = x_MD.shape[0], self.weight_ND.numel()
        if not self._can_pack or rows == 1 or (numbers < _MANY_NUMBERS and rows * numbers < _MANY_PRODUCTS):
            return None
        if x_MD.dtype != torch.float32:
            return None
        if self._packed is None:
            self._remember()
            self._packed = _OPERATORS._reorder_linear_weight(self.weight_ND.detach(), None)
        return self._packed

    def _remember(self) -> None:
        """What tells later whether the weights are still those that were copied first."""
        if self._mark is None:
            rows_UD, column_N = self._samples()
            self._mark = self.weight_ND._version, rows_UD.detach().clone(), column_N.detach().clone()

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Some rows and a column: fused optimisers, and who writes to `.data`, do not raise the version."""
        rows, width = self.weight_ND.shape
        return self.weight_ND[:: 1 + rows // _NUM_SAMPLES], self.weight_ND[:, width // 2]

    @property
    def is_fresh(self) -> bool:
        """Whether the copies, if there are any, have the numbers that the weights have."""
        if self._mark is None:
            return True
        version, rows_UD, column_N = self._mark
        now_UD, now_N = self._samples()
        return version == self.weight_ND._version and torch.equal(now_UD, rows_UD) and torch.equal(now_N, column_N)


def are_fresh(affines: Iterable[Affine | None]) -> bool:
    """All of them."""
    return all(each is None or each.is_fresh for each in affines)
