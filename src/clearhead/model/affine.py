"""x W + b as search computes it: with matrices that are laid out beforehand for the kernel that multiplies by them.

MKL, which torch calls, lays a matrix out anew at every product. oneDNN does it once: on one thread of a machine with
AVX512 it takes 0.8 to 0.9 of MKL's time for the rows of a batch, and 0.3 to 0.8 for the four of one sentence's beam
(256 x 768 to 512 x 6,000); and it adds the stream or bends at the same time. It has 12 microseconds of its own, for
which small products do not pay: those are numpy's (OpenBLAS, mostly), which has kernels for them and a third of torch's
own time for a call. Microseconds on one thread of an AMD EPYC, torch and numpy: one row by 128 x 384 4.0 and 2.3, by
128 x 6,000 51 and 39; four rows by 128 x 384 8.7 and 4.0, 15 rows 25 and 16. Other devices and types, and torch without
oneDNN, have the plain product.

M rows, D numbers of each before, N behind
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
"""Of single or double precision."""

_LARGEST = 2**25  # numbers of a matrix that is packed: 128 MiB
_MANY_NUMBERS = 3 * 2**16  # pay for any rows but one
_MANY_PRODUCTS = 2**22  # pay for any matrix
_FEW_PRODUCTS = 10**6  # up to which OpenBLAS has kernels that lay nothing out
_LARGEST_TURNED = 2**23

_OPERATORS = torch.ops.mkldnn
_HAS_PACKED = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(_OPERATORS, "_linear_pointwise")
    and not _OPERATORS._is_mkldnn_acl_supported()  # ARM's library has no sums behind a product
)


class Affine:
    """One linear layer. What is laid out is made at its first use, and used until `is_fresh` says no."""

    __slots__ = ("_can_pack", "_can_turn", "_mark", "_packed", "_turned", "bias_N", "weight_DN", "weight_ND")

    def __init__(self, weight_ND: Tensor, bias_N: Tensor | None) -> None:
        self.weight_ND, self.weight_DN, self.bias_N = weight_ND, weight_ND.t(), bias_N
        self._packed: Tensor | None = None
        self._turned: tuple[Array, Array | None] | None = None  # weight_DN and bias_N
        self._mark: tuple[int, Array, NDArray[np.int64], bytes] | None = None
        can_copy = weight_ND.device.type == "cpu" and weight_ND.is_contiguous()
        can_copy = can_copy and not weight_ND.is_inference()  # their changes are not counted
        is_single = weight_ND.dtype == torch.float32 and torch.backends.mkldnn.enabled
        self._can_pack = can_copy and is_single and _HAS_PACKED and weight_ND.numel() <= _LARGEST
        is_plain = weight_ND.dtype in (torch.float32, torch.float64)
        self._can_turn = can_copy and is_plain and weight_ND.numel() <= _LARGEST_TURNED

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
        if self.bias_N is None and not self._are_few(x_MD.shape[0]):
            return torch.addmm(stream_MN, x_MD, self.weight_DN)
        return stream_MN + self.plain(x_MD)

    def plain(self, x_MD: Tensor) -> Tensor:
        """By torch's own product; few rows by numpy's."""
        if self._are_few(x_MD.shape[0]) and x_MD.dtype == self.weight_ND.dtype:
            return torch.from_numpy(self.few(x_MD.numpy()))
        return x_MD.mm(self.weight_DN) if self.bias_N is None else torch.addmm(self.bias_N, x_MD, self.weight_DN)

    def few(self, x_MD: Array, out_MN: Array | None = None) -> Array:
        """x W + b of arrays, made for few rows; into `out_MN`, if given."""
        if not self._are_few(len(x_MD)):
            made_MN: Array = self(torch.from_numpy(x_MD)).numpy()
            if out_MN is None:
                return made_MN
            out_MN[...] = made_MN
            return out_MN
        if self._turned is None:
            self._turn()
        weight_DN, bias_N = self._turned  # type: ignore[misc]
        made_MN = np.dot(x_MD, weight_DN, out_MN)
        if bias_N is not None:
            made_MN += bias_N
        return made_MN

    def _are_few(self, rows: int) -> bool:
        return self._can_turn and (rows == 1 or rows * self.weight_ND.numel() <= _FEW_PRODUCTS)

    def _turn(self) -> None:
        """The matrix so that rows read it from front to back, and the bias as it is."""
        self._remember()
        weight_DN = self.weight_DN.detach().contiguous().numpy()
        self._turned = weight_DN, None if self.bias_N is None else self.bias_N.detach().numpy()

    def _packed_for(self, x_MD: Tensor) -> Tensor | None:
        """The matrix as oneDNN wants it, where that pays for so many rows; under autocast they are of another type."""
        rows, numbers = x_MD.shape[0], self.weight_ND.numel()
        if not self._can_pack or rows == 1 or (numbers < _MANY_NUMBERS and rows * numbers < _MANY_PRODUCTS):
            return None
        if self._are_few(rows):
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
            numbers, looked_at = self.weight_ND.detach().view(-1).numpy(), _looked_at(*self.weight_ND.shape)
            self._mark = self.weight_ND._version, numbers, looked_at, numbers.take(looked_at).tobytes()

    @property
    def is_fresh(self) -> bool:
        """Whether the copies, if there are any, have the numbers that the weights have.

        Fused optimisers, and who writes to `.data`, do not raise the version: so some numbers are looked at.
        """
        if self._mark is None:
            return True
        version, numbers, looked_at, before = self._mark
        return version == self.weight_ND._version and numbers.take(looked_at).tobytes() == before


@cache
def _looked_at(rows: int, width: int) -> NDArray[np.int64]:
    """Places of a matrix: one of each row, anywhere in it, and a few rows whole.

    So a row or a column that changes is seen, and of a block of k rows and a share p of the columns hardly ever nothing
    (once in (1 - p)^-k times).
    """
    anywhere = np.random.default_rng(1).integers(width, size=rows)
    whole = np.arange(0, rows, 1 + rows // 8)[:, None] * width + np.arange(width)
    return np.concatenate((np.arange(rows) * width + anywhere, whole.reshape(-1)))


def fewer_rows(rows: int) -> int:
    """Down to one of eight numbers from each power of two to the next.

    oneDNN makes a kernel for each number of rows, and keeps it: with all numbers that the batches of a large file go
    through that took as long as it gained, and a gigabyte.
    """
    grain = 1 << max(0, rows.bit_length() - 4)
    return rows // grain * grain


def more_rows(rows: int) -> int:
    """Up to one of those: an eighth more at most."""
    grain = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // grain) * grain


def are_fresh(affines: Iterable[Affine | None]) -> bool:
    """All of them."""
    return all(each is None or each.is_fresh for each in affines)
