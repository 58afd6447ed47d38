"""The padding-free layout: one row per position that is not padding, for training on a CPU.

Most of a layer works on single rows, so rows of padding would be wasted work. Only attention needs to know which rows
form a sequence. It copies queries, keys and values in any case, so that those of one head are adjacent; that copy also
scatters the rows to the positions of padded sequences, and a second copy gathers the results. In the backward pass each
row takes the gradient of its position; no gradients are summed.

B sequences, T positions of each, M rows, of which R <= M are used, C columns of joint projections, H heads, K head
width, L positions of one projection (T, or more for padded keys); 1 = broadcast
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

ROW_MULTIPLE = 64


class PaddingFreeLayout:
    """One row per position that is not padding, and unused rows at the end: [M, ...].

    Padding before the last token of a sequence keeps its row. All rows are kept for a sequence that consists of padding
    only, which may be an empty target whose start token is the padding token. Positions without a row read the first
    unused row (there is at least one); the gradient of unused rows is exactly 0.
    """

    def __init__(self, ids_BT: Tensor, pad_id: int, allowed_B11S: Tensor | None, rounds_rows: bool) -> None:
        """`rounds_rows`: round the number of rows up to a `row_multiple`, so that compiled kernels are reused."""
        self.batch, self.length = ids_BT.shape
        self.num_positions, self.allowed_B11S = self.length, allowed_B11S
        # Lengths up to the last token; argmax of zeros is 0, so a sequence of padding alone has the full length.
        lengths_B = self.length - (ids_BT != pad_id).flip(1).int().argmax(1)
        is_used_BT = torch.arange(self.length, device=ids_BT.device) < lengths_B[:, None]
        self._token_R = is_used_BT.flatten().nonzero()[:, 0]  # index of each used row in the flattened [B, T]
        self.num_used = len(self._token_R)
        step = row_multiple(self.num_used + 1) if rounds_rows else 1
        self.num_rows = (self.num_used // step + 1) * step
        self._indices: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    @cached_property
    def positions(self) -> Tensor:
        """Position of each row in its sequence; 0 for unused rows."""
        return F.pad(self._token_R % self.length, (0, self.num_rows - self.num_used))

    def unpad(self, x_BT: Tensor) -> Tensor:
        """Return [B, T, ...] as rows [M, ...]; unused rows repeat the last one, since padding may have no embedding."""
        x_R = x_BT.flatten(0, 1).index_select(0, self._token_R)
        return torch.cat((x_R, x_R[-1:].expand(self.num_rows - self.num_used, *x_R.shape[1:])))

    def pad(self, x_M: Tensor) -> Tensor:
        """Return rows [M, ...] as [B, T, ...]. At padding, values are undefined and gradients are ignored."""
        [x_B1TD] = scatter([x_M.flatten(1)[:, None]], self, [self.length])
        return x_B1TD.view(self.batch, self.length, *x_M.shape[1:])

    def index(self, num_heads: int, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return to_positions and to_rows, which reorder the K-vectors of heads, for projections of the given lengths.

        Order 1 is that of joint projections: row, then projection (such as q, k, v), then head. Order 2 is that of
        attention: projection, sequence, head, position. Vector j of order 2 is vector to_positions[j] of order 1;
        vector i of order 1 is vector to_rows[i] of order 2.
        """
        if (num_heads, lengths) not in self._indices:
            self._indices[num_heads, lengths] = self._make_index(num_heads, lengths)
        return self._indices[num_heads, lengths]

    def _make_index(self, num_heads: int, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        parts, token_R = len(lengths), self._token_R
        row_BT = torch.full((self.batch * self.length,), self.num_used)
        row_BT[token_R] = torch.arange(self.num_used)
        row_BT = row_BT.view(self.batch, self.length)
        head_H1 = torch.arange(num_heads)[:, None]
        sequence_R1, offset_R1 = token_R[:, None] // self.length, token_R[:, None] % self.length
        to_rows = torch.zeros(self.num_rows, parts, num_heads, dtype=torch.long)
        to_positions, begin = [], 0
        for part, length in enumerate(lengths):
            row_B1L = F.pad(row_BT, (0, length - self.length), value=self.num_used)[:, None]
            to_positions.append(((row_B1L * parts + part) * num_heads + head_H1).flatten())
            to_rows[: self.num_used, part] = begin + (sequence_R1 * num_heads + head_H1[:, 0]) * length + offset_R1
            begin += len(to_positions[-1])
        return torch.cat(to_positions), to_rows.flatten()


def row_multiple(rows: int) -> int:
    """Return the multiple that a number of rows is rounded up to.

    It is 64 below 8,192 rows, and then a power of two that is 1.6 to 3.1 % of the rows. Few different numbers of rows
    occur, so oneDNN compiles few kernels.
    """
    return max(ROW_MULTIPLE, 1 << max(0, rows.bit_length() - 6))


def scatter(
    parts_MHK: Sequence[Tensor], layout: PaddingFreeLayout, lengths: Sequence[int], dtype: torch.dtype | None = None
) -> tuple[Tensor, ...]:
    """Return projections of the rows as [B, H, L, K], contiguous and adjacent in memory, in this dtype."""
    scattered: tuple[Tensor, ...] = _Scatter.apply(layout, tuple(lengths), dtype, *parts_MHK)  # type: ignore[no-untyped-call]
    return scattered


def gather(x_BHTK: Tensor, layout: PaddingFreeLayout) -> Tensor:
    """Return the rows of [B, H, T, K], as [M, H, K]."""
    rows_MHK: Tensor = _Gather.apply(x_BHTK, layout)  # type: ignore[no-untyped-call]
    return rows_MHK


class _Scatter(Function):
    @staticmethod
    def forward(
        ctx: Any, layout: PaddingFreeLayout, lengths: tuple[int, ...], dtype: torch.dtype | None, *parts_MHK: Tensor
    ) -> Any:
        ctx.layout, ctx.dtype = layout, parts_MHK[0].dtype
        return _to_positions(parts_MHK, layout, lengths, dtype or ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_BHLK: Tensor) -> tuple[Any, ...]:
        return None, None, None, *_to_rows(grads_BHLK, ctx.layout).to(ctx.dtype).unbind(1)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, layout: PaddingFreeLayout) -> Tensor:
        ctx.layout = layout
        return _to_rows([x_BHTK], layout)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MHK: Tensor) -> tuple[Tensor, None]:
        return _to_positions([grad_MHK], ctx.layout, (ctx.layout.length,), grad_MHK.dtype)[0], None


def _to_positions(
    parts_MHK: Sequence[Tensor], layout: PaddingFreeLayout, lengths: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    num_heads, width = parts_MHK[0].shape[1:]
    joint_MC = join_columns([part.flatten(1) for part in parts_MHK]).to(dtype)
    vectors = joint_MC.view(-1, width).index_select(0, layout.index(num_heads, lengths)[0])
    sections = vectors.split_with_sizes([layout.batch * num_heads * length for length in lengths])
    return tuple(
        part.view(layout.batch, num_heads, length, width) for part, length in zip(sections, lengths, strict=True)
    )


def _to_rows(parts_BHLK: Sequence[Tensor], layout: PaddingFreeLayout) -> Tensor:
    """Return [M, parts, H, K]; unused rows are 0."""
    num_heads, width = parts_BHLK[0].shape[1], parts_BHLK[0].shape[3]
    index = layout.index(num_heads, tuple(part.shape[2] for part in parts_BHLK))[1]
    rows = _concatenate(parts_BHLK).view(-1, width).index_select(0, index)
    rows = rows.view(layout.num_rows, len(parts_BHLK), num_heads, width)
    rows[layout.num_used :] = 0
    return rows


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Return all values of the parts in one dimension; a view if they are adjacent in memory."""
    first, is_adjacent, address = parts[0], True, parts[0].data_ptr()
    for part in parts:
        is_adjacent = is_adjacent and _shares_storage(part, first) and part.is_contiguous()
        is_adjacent = is_adjacent and part.data_ptr() == address
        address += part.nbytes
    if is_adjacent:
        return first.as_strided((sum(part.numel() for part in parts),), (1,))
    return torch.cat([part.flatten() for part in parts])


def join_columns(parts_MN: Sequence[Tensor]) -> Tensor:
    """Return the matrices concatenated by columns; a view if they are column blocks of one matrix."""
    first, columns = parts_MN[0], sum(part.shape[1] for part in parts_MN)
    if len(parts_MN) == 1:
        return first.contiguous()
    is_joint, address = True, first.data_ptr()
    for part in parts_MN:
        is_joint = is_joint and _shares_storage(part, first) and part.stride() == (columns, 1)
        is_joint = is_joint and part.data_ptr() == address
        address += part.shape[1] * part.element_size()
    return first.as_strided((len(first), columns), (columns, 1)) if is_joint else torch.cat(list(parts_MN), 1)


def adjacent_empties(*like: Tensor) -> list[Tensor]:
    """Return uninitialized tensors of the same shapes, adjacent in memory, so that they are joined without a copy."""
    sizes = [tensor.numel() for tensor in like]
    parts = like[0].new_empty(sum(sizes)).split_with_sizes(sizes)
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def _shares_storage(first: Tensor, second: Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
