"""A batch without its padding, while a CPU trains: most of a layer happens to rows, and padding needs none.

Only attention has to know which rows stand together. It copies queries, keys and values anyway, so that those of a head
stand together; here that copy spreads the rows over the places of all sentences, too. On the way back it is the other
way round: each row takes what its place has, and nothing is summed.

For wide models, and in bfloat16, the number of rows is rounded up, so that few numbers come again and again: oneDNN
makes a kernel for each. The rows behind the real ones, one at least, are of padding. Whatever is in them, nobody sees
it; so their gradient is 0, and places without a row, which take the first of them, take a 0 on the way back.

B sentences, T places of each, M rows, H heads, C = H*K columns or several times that, K width of a head, L places of
one part: queries T, keys and values P >= T
"""

from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.linear import grain, wants_grains
from clearhead.model.short_attention import REGISTER


class Packed:
    """Which row each place of a padded batch has, and which place each row."""

    def __init__(self, lengths_B: Tensor, length: int, fills_up: bool, has_grains: bool) -> None:
        """`fills_up`: whether keys are given at least as many places as a register holds.

        `has_grains`: whether the number of rows is to be one that comes again.
        """
        self.batch, self.length = len(lengths_B), length
        self.num_keys = max(length, REGISTER) if fills_up else length
        self._place_R = (torch.arange(length) < lengths_B[:, None]).flatten().nonzero()[:, 0]  # of each real row
        self.count = len(self._place_R)
        step = grain(self.count + 1) if has_grains else 1
        self.total = (self.count // step + 1) * step  # at least one row more
        self._indices: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, ids_BT: Tensor, config: ModelConfig) -> Self:
        """Of sentences with padding behind them; a pad inside a sentence keeps its row.

        A sentence of pads only keeps all of its rows: where the start is written as a pad, it may be an empty target.
        """
        is_real_BT, length = ids_BT != config.pad_id, ids_BT.shape[1]
        lengths_B = length - is_real_BT.flip(1).int().argmax(1)
        fills_up = config.positions not in ("relative", "rotary")
        return cls(lengths_B, length, fills_up, wants_grains(config.model_dim))

    def ids(self, ids_BT: Tensor) -> Tensor:
        """ids_1M; rows of padding repeat the last real one's: an id of its own padding may be no piece."""
        ids_R = ids_BT.flatten()[self._place_R]
        return torch.cat((ids_R, ids_R[-1:].expand(self.total - self.count)))[None]

    @cached_property
    def places_1M(self) -> Tensor:
        """Where in its sentence each row stands; those of padding at the first place."""
        return F.pad(self._place_R % self.length, (0, self.total - self.count))[None]

    def mask(self, allowed: Tensor | None) -> Tensor | None:
        """The same for as many keys as there are places for: those behind may not be attended."""
        missing = self.num_keys - self.length
        if not missing:
            return allowed
        if allowed is None:
            allowed = torch.ones(1, self.length, dtype=torch.bool)
        return F.pad(allowed, (0, missing), value=False)

    def spread(self, x_1MC: Tensor, num_heads: int, *lengths: int) -> tuple[Tensor, ...]:
        """x_BHLK for each length: what stands side by side in a row, by sentences and heads."""
        spread: tuple[Tensor, ...] = _Spread.apply(x_1MC, self, num_heads, lengths)  # type: ignore[no-untyped-call]
        return spread

    def unpacked(self, x_1MD: Tensor) -> Tensor:
        """x_BTD: each place what its row has."""
        return self.spread(x_1MD, 1, self.length)[0][:, 0]

    def pack(self, x_BHTK: Tensor) -> Tensor:
        """x_1MC: the heads of each row side by side."""
        packed: Tensor = _Pack.apply(x_BHTK, self)  # type: ignore[no-untyped-call]
        return packed

    def _index(self, num_heads: int, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Of each place of each head and part the piece of a row it takes, and of each piece its place."""
        if (num_heads, lengths) not in self._indices:
            parts, place_R = len(lengths), self._place_R
            row_BT = torch.full((self.batch * self.length,), self.count)
            row_BT[place_R] = torch.arange(self.count)
            row_BT = row_BT.view(self.batch, self.length)
            head_H1 = torch.arange(num_heads)[:, None]
            taken = torch.zeros(self.total, parts, num_heads, dtype=torch.long)
            given, begin = [], 0
            for part, length in enumerate(lengths):
                row_B1L = F.pad(row_BT, (0, length - self.length), value=self.count)[:, None]
                given.append(((row_B1L * parts + part) * num_heads + head_H1).flatten())
                sentence_R1, place_R1 = place_R[:, None] // self.length, place_R[:, None] % self.length
                taken[: self.count, part] = begin + (sentence_R1 * num_heads + head_H1[:, 0]) * length + place_R1
                begin += len(given[-1])
            self._indices[num_heads, lengths] = torch.cat(given), taken.flatten()
        return self._indices[num_heads, lengths]

    def put(self, x_1MC: Tensor, num_heads: int, lengths: tuple[int, ...]) -> tuple[Tensor, ...]:
        """What `spread` gives, without gradients."""
        width = x_1MC.shape[-1] // (num_heads * len(lengths))
        pieces = x_1MC.reshape(-1, width).index_select(0, self._index(num_heads, lengths)[0])
        parts = pieces.split_with_sizes([self.batch * num_heads * length for length in lengths])
        return tuple(
            part.view(self.batch, num_heads, length, width) for part, length in zip(parts, lengths, strict=True)
        )

    def take(self, parts: tuple[Tensor, ...]) -> Tensor:
        """The other way; rows of padding get 0."""
        num_heads, width = parts[0].shape[1], parts[0].shape[3]
        index = self._index(num_heads, tuple(part.shape[2] for part in parts))[1]
        x_1MC = _joined(parts).view(-1, width).index_select(0, index).view(1, self.total, -1)
        x_1MC[:, self.count :] = 0
        return x_1MC


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    """All numbers of these, one part after the other; where they stand so already, without a copy."""
    first, count = parts[0], sum(part.numel() for part in parts)
    is_in_place, next_one = True, first.data_ptr()
    for part in parts:
        is_same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        is_in_place = is_in_place and is_same and part.is_contiguous() and part.data_ptr() == next_one
        next_one += part.nbytes
    return first.as_strided((count,), (1,)) if is_in_place else torch.cat([part.flatten() for part in parts])


def can_pack(config: ModelConfig, ids_BT: Tensor, is_training: bool) -> bool:
    """Whether a model trains so: on a CPU, with heads of one width; a norm over the batch has padding in it."""
    return (
        is_training
        and torch.is_grad_enabled()
        and config.input == "tokens"
        and config.norm != "batch"
        and config.head_key_dim == config.head_value_dim
        and ids_BT.device.type == "cpu"
    )


class _Spread(Function):
    """From rows to places."""

    @staticmethod
    def forward(ctx: Any, x_1MC: Tensor, packed: Packed, num_heads: int, lengths: tuple[int, ...]) -> Any:
        ctx.packed = packed
        return packed.put(x_1MC, num_heads, lengths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.packed.take(grads), None, None, None


class _Pack(Function):
    """From places to rows."""

    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, packed: Packed) -> Tensor:
        ctx.packed, ctx.num_heads = packed, x_BHTK.shape[1]
        return packed.take((x_BHTK,))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_1MC: Tensor) -> tuple[Tensor, None]:
        return ctx.packed.put(grad_1MC, ctx.num_heads, (ctx.packed.length,))[0], None
