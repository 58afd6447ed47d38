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

from collections.abc import Sequence
from functools import cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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


class Mark(NamedTuple):
    """What tells later whether a tensor still has the numbers that were copied.

    Fused optimisers, and who writes to `.data`, do not raise the version: so some numbers are looked at, of a matrix
    the first row, and one or two of each. They are a share of a row apart that no simple fraction comes close to, and
    that has no divisor in common with its length: so a row or a column that changes is seen, and soon a block of both.
    """

    tensor: Tensor
    version: int
    seen: tuple[Array, ...]
    before: tuple[bytes, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Mark":
        """As it is now."""
        numbers: Array = tensor.detach().view(-1).numpy()
        seen: tuple[Array, ...] = (numbers,)
        if tensor.ndim > 1:
            width = tensor.shape[-1]
            seen = numbers[:width], numbers[:: _apart(width)]
        return cls(tensor, tensor._version, seen, tuple([each.tobytes() for each in seen]))

    @property
    def holds(self) -> bool:
        """Whether they are the same."""
        return self.version == self.tensor._version and self.before == tuple([each.tobytes() for each in self.seen])


@cache
def _apart(width: int) -> int:
    """0.854 is one less the fourth power of the golden section."""
    return next((step for step in range(round(width * 0.854), width) if gcd(step, width) == 1), 1)


class Affine:
    """One linear layer. What is laid out is made at its first use, and used until `is_fresh` says no."""

    __slots__ = (
        "_can_pack",
        "_is_unmarked",
        "_marks",
        "_most_few",
        "_packed",
        "_turned",
        "bias_N",
        "can_copy",
        "weight_DN",
        "weight_ND",
    )

    def __init__(self, weight_ND: Tensor, bias_N: Tensor | None, copied: Sequence[Tensor] = ()) -> None:
        """`copied`: the parameters that weight and bias were concatenated from, where they are copies."""
        self.weight_ND, self.weight_DN, self.bias_N = weight_ND, weight_ND.t(), bias_N
        self._packed: Tensor | None = None
        self._turned: tuple[Array, Array | None] | None = None  # weight_DN and bias_N
        self._marks: dict[int, Mark] = {}  # of what was copied, by its id
        plain = (torch.float32, torch.float64)
        can_mark = all(each.device.type == "cpu" and each.dtype in plain and not each.is_inference() for each in copied)
        self._is_unmarked = not can_mark  # copies that cannot be compared are made again for each search
        for part in copied if can_mark else ():
            self._remember(part)
        numbers = weight_ND.numel()
        can_copy = weight_ND.device.type == "cpu" and weight_ND.is_contiguous()
        can_copy = can_copy and not weight_ND.is_inference()  # their changes are not counted
        is_single = weight_ND.dtype == torch.float32 and torch.backends.mkldnn.enabled
        self._can_pack = can_copy and is_single and _HAS_PACKED and numbers <= _LARGEST
        self.can_copy = can_copy and weight_ND.dtype in (torch.float32, torch.float64)
        self._most_few = max(1, _FEW_PRODUCTS // numbers) if self.can_copy and numbers <= _LARGEST_TURNED else 0

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
        if self.bias_N is None and x_MD.shape[0] > self._most_few:
            return torch.addmm(stream_MN, x_MD, self.weight_DN)
        return stream_MN + self.plain(x_MD)

    def plain(self, x_MD: Tensor) -> Tensor:
        """By torch's own product; few rows by numpy's."""
        if x_MD.shape[0] <= self._most_few and x_MD.dtype == self.weight_ND.dtype:
            return torch.from_numpy(self.few(x_MD.numpy()))
        return x_MD.mm(self.weight_DN) if self.bias_N is None else torch.addmm(self.bias_N, x_MD, self.weight_DN)

    def few(self, x_MD: Array, out_MN: Array | None = None) -> Array:
        """x W + b of arrays, made for few rows; into `out_MN`, if given."""
        if len(x_MD) > self._most_few:
            made_MN: Array = self(torch.from_numpy(x_MD)).numpy()
            if out_MN is None:
                return made_MN
            out_MN[...] = made_MN
            return out_MN
        weight_DN, bias_N = self._turned or self._turn()
        made_MN = np.dot(x_MD, weight_DN, out_MN)
        if bias_N is not None:
            made_MN += bias_N
        return made_MN

    def _turn(self) -> tuple[Array, Array | None]:
        """The matrix so that rows read it from front to back, and the bias as it is."""
        self._remember(self.weight_ND)
        weight_DN = self.weight_DN.detach().contiguous().numpy()
        self._turned = weight_DN, None if self.bias_N is None else self.bias_N.detach().numpy()
        return self._turned

    def behind(self, gain_D: Array, shift_D: Array) -> "Affine":
        """One for rows that lack gains and shifts: they are in the matrix."""
        weight_ND, bias_N = self._copy()
        return self._of(weight_ND * gain_D, bias_N + weight_ND @ shift_D)

    def without_mean(self) -> "Affine":
        """One that takes the mean out of what it gives."""
        weight_ND, bias_N = self._copy()
        return self._of(weight_ND - weight_ND.mean(0), bias_N - bias_N.mean())

    def _copy(self) -> tuple[Array, Array]:
        """In double precision, for those who change it."""
        self._remember(self.weight_ND)
        weight_ND = self.weight_ND.detach().numpy().astype(np.float64)
        if self.bias_N is None:
            return weight_ND, np.zeros(len(weight_ND))
        self._remember(self.bias_N)
        return weight_ND, self.bias_N.detach().numpy().astype(np.float64)

    def _of(self, weight_ND: Array, bias_N: Array) -> "Affine":
        with torch.inference_mode(False):
            weight, bias = (torch.from_numpy(each).to(self.weight_ND.dtype) for each in (weight_ND, bias_N))
            return Affine(weight, bias)

    def _packed_for(self, x_MD: Tensor) -> Tensor | None:
        """The matrix as oneDNN wants it, where that pays for so many rows; under autocast they are of another type."""
        rows, numbers = x_MD.shape[0], self.weight_ND.numel()
        if not self._can_pack or rows == 1 or (numbers < _MANY_NUMBERS and rows * numbers < _MANY_PRODUCTS):
            return None
        if rows <= self._most_few or x_MD.dtype != torch.float32:
            return None
        if self._packed is None:
            self._remember(self.weight_ND)
            self._packed = _OPERATORS._reorder_linear_weight(self.weight_ND.detach(), None)
        return self._packed

    def _remember(self, tensor: Tensor) -> None:
        """As it was when it was copied first."""
        if id(tensor) not in self._marks:
            self._marks[id(tensor)] = Mark.of(tensor)

    @property
    def is_fresh(self) -> bool:
        """Whether the copies, if there are any, have the numbers that the weights have."""
        return not self._is_unmarked and all(mark.holds for mark in self._marks.values())


def has_kernel(*factors: Tensor) -> bool:
    """Whether oneDNN multiplies these."""
    is_plain = all(
        each.device.type == "cpu" and each.dtype == torch.float32 and type(each) in (Tensor, nn.Parameter)
        for each in factors
    )
    return bool(is_plain and _HAS_PACKED and torch.backends.mkldnn.enabled)


def multiply(left_MD: Tensor, right_DN: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """left @ right + bias by oneDNN, without gradients; for numbers of rows that come again: each has a kernel."""
    return _OPERATORS._linear_pointwise.default(left_MD, right_DN.t(), bias_N, "none", [], "")  # type: ignore[no-any-return]


def multiply_onto(sum_MN: Tensor, left_MD: Tensor, right_DN: Tensor) -> Tensor:
    """sum + left @ right, in the same way."""
    return _OPERATORS._linear_pointwise.binary(left_MD, sum_MN, right_DN.t(), None, "add")  # type: ignore[no-any-return]


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
