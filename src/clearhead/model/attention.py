"""Scaled dot-product and multi-head attention (section 3.2): a soft dictionary look-up.

B batch, T queries, S keys, D model width, H heads, K head width, E head width of values, W beam width; 1 = broadcast
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.linear import Linear, linear
from clearhead.model.masks import both, causal_mask, mask_scores
from clearhead.model.packed import Packed
from clearhead.model.positions import Turn
from clearhead.model.short_attention import REGISTER, attend_short, is_short, wide

_FEW_QUERIES = 8
_FAST_BFLOAT16 = 256  # queries, from which on torch's kernel for it is not slower than that of float32
_FREE_PLACES = 8  # made at a time: more would be copied with every row that moves


class Room:
    """Keys and values with places behind them that are still free; whoever fills one says so here.

    Place after place, each with all rows: what is filled is one piece, and only that is copied where rows move.
    """

    __slots__ = ("filled", "k_CBHK", "v_CBHE")

    def __init__(self, k_CBHK: Tensor, v_CBHE: Tensor, filled: int) -> None:
        self.k_CBHK, self.v_CBHE, self.filled = k_CBHK, v_CBHE, filled

    @classmethod
    def beside(cls, past: "KeysValues", rows: int) -> "Room":
        """For as many places as these have, and some more, of so many rows."""
        (_, num_heads, length, width), value_width = past.k_BHSK.shape, past.v_BHSE.shape[3]
        most = length + max(_FREE_PLACES, length // 4)
        k_CBHK = past.k_BHSK.new_empty(most, rows, num_heads, width)
        return cls(k_CBHK, past.v_BHSE.new_empty(most, rows, num_heads, value_width), length)

    @classmethod
    def behind(cls, past: "KeysValues") -> "Room":
        """Behind a copy of these."""
        room = cls.beside(past, len(past.k_BHSK))
        room.k_CBHK[: room.filled].copy_(past.k_BHSK.permute(2, 0, 1, 3))
        room.v_CBHE[: room.filled].copy_(past.v_BHSE.permute(2, 0, 1, 3))
        return room

    def rows(self, past: "KeysValues", rows: Tensor) -> "Room":
        """Some of the rows of a past that stands here."""
        room = Room.beside(past, len(rows))
        torch.index_select(self.k_CBHK[: room.filled], 1, rows, out=room.k_CBHK[: room.filled])
        torch.index_select(self.v_CBHE[: room.filled], 1, rows, out=room.v_CBHE[: room.filled])
        return room

    @property
    def is_sealed(self) -> bool:
        """Whether it was made in inference mode and cannot be written to outside."""
        return self.k_CBHK.is_inference() and not torch.is_inference_mode_enabled()

    def seen(self) -> "KeysValues":
        """What is filled."""
        return Standing.inside(self)


class KeysValues(NamedTuple):
    """What queries are compared with, and what is mixed by fit."""

    k_BHSK: Tensor
    v_BHSE: Tensor

    @property
    def room(self) -> Room | None:
        """Where these stand, if others may stand behind them."""
        return None

    def extended(self, now: "KeysValues") -> "KeysValues":
        """These with new positions behind them."""
        return KeysValues(torch.cat((self.k_BHSK, now.k_BHSK), 2), torch.cat((self.v_BHSE, now.v_BHSE), 2))

    def followed(self, now: "KeysValues") -> "KeysValues":
        """The same of one position, without gradients: these are copied only where there is no room behind them.

        They stay what they are: a place that somebody else has filled already is not filled again.
        """
        length, room = self.k_BHSK.shape[2], self.room
        if room is None or room.filled != length or length == len(room.k_CBHK) or room.is_sealed:
            room = Room.behind(self)
        room.k_CBHK[length].copy_(now.k_BHSK.select(2, 0))
        room.v_CBHE[length].copy_(now.v_BHSE.select(2, 0))
        room.filled = length + 1
        return room.seen()

    def rows(self, rows: Tensor) -> "KeysValues":
        """These rows; `index_select` takes a sixth of the time that indexing does."""
        if self.room is not None:
            return self.room.rows(self, rows).seen()
        return KeysValues(self.k_BHSK.index_select(0, rows), self.v_BHSE.index_select(0, rows))

    def widened(self, width: int) -> "KeysValues":
        """Each row so many times."""
        return KeysValues(self.k_BHSK.repeat_interleave(width, 0), self.v_BHSE.repeat_interleave(width, 0))


class Standing(KeysValues):
    """Keys and values inside a room."""

    _room: Room

    @classmethod
    def inside(cls, room: Room) -> "Standing":
        """All that fill it now."""
        made = cls(room.k_CBHK[: room.filled].permute(1, 2, 0, 3), room.v_CBHE[: room.filled].permute(1, 2, 0, 3))
        made._room = room
        return made

    @property
    def room(self) -> Room:
        """Where these stand."""
        return self._room


class Attended(NamedTuple):
    """What an attention sub-layer gives: its output, and the weights if they were asked for."""

    y_BTD: Tensor
    weights_BHTS: Tensor | None


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """softmax(q k^T * scale), each row a probability over the keys; what is not allowed is minus infinity before.

    The scale is 1 / sqrt(K) unless given; the mask is boolean (True: may be attended) or additive.
    """
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) * (q_BHTK.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(mask_scores(scores_BHTS, mask), -1)


def _weights_of_many(q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """The same for many look-ups: over fewer keys than a register holds, torch's softmax takes ten times as long."""
    num_keys = k_BHSK.shape[2]
    if num_keys >= REGISTER:
        return attention_weights(q_BHTK, k_BHSK, mask, scale)
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) * (q_BHTK.shape[-1] ** -0.5 if scale is None else scale)
    wide_BHTC = F.pad(mask_scores(scores_BHTS, mask), (0, REGISTER - num_keys), value=float("-inf"))
    return torch.softmax(wide_BHTC, -1)[..., :num_keys]


def _is_many_small(q_BHTK: Tensor, k_BHSK: Tensor) -> bool:
    """Steps of search for many rows. Products of less than 400 sums torch does in a slow way of its own.

    A graph that is exported has sizes of its own, later.
    """
    if torch.compiler.is_exporting():
        return False
    batch, num_heads, num_queries, width = q_BHTK.shape
    return num_queries <= _FEW_QUERIES and batch * num_heads >= 128 and num_queries * width * k_BHSK.shape[2] >= 400


def _is_slow_in_bfloat16(q_BHTK: Tensor) -> bool:
    """Where a CPU trains: on the way back the kernel of bfloat16 takes longer than that of float32.

    CPU time of both ways on one thread, beside another program, heads of 64, inputs and output bfloat16: 100 sentences
    of 18 tokens 28 ms and 9 ms in float32, 32 of 64 tokens 51 and 27, 16 of 128 58 and 43, 8 of 256 61 and 60, 4 of 512
    158 and 173.
    """
    is_trained = q_BHTK.requires_grad and q_BHTK.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    return is_trained and q_BHTK.shape[-2] <= _FAST_BFLOAT16


def attend(
    q_BHTK: Tensor, memory: KeysValues, mask: Tensor | None, is_causal: bool, scale: float | None = None
) -> Tensor:
    """softmax(q k^T * scale) v by torch's fused kernel, which never holds the weights.

    Many small look-ups are two batched products instead, in half the time: the kernel takes them one by one.
    """
    if _is_slow_in_bfloat16(q_BHTK):
        with torch.autocast("cpu", enabled=False):
            wide_memory = KeysValues(*(each.to(wide(each)) for each in memory))
            return attend(q_BHTK.to(wide(q_BHTK)), wide_memory, mask, is_causal, scale).to(q_BHTK.dtype)
    if _is_many_small(q_BHTK, memory.k_BHSK) and not is_causal and not torch.is_grad_enabled():
        return _weights_of_many(q_BHTK, memory.k_BHSK, mask, scale) @ memory.v_BHSE
    mixed_BHTE: Tensor = F.scaled_dot_product_attention(
        q_BHTK, memory.k_BHSK, memory.v_BHSE, attn_mask=mask, is_causal=is_causal, scale=scale
    )
    return mixed_BHTE


def join_projections(projections: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Return the weights and biases of several linear layers, concatenated."""
    weight_ND = torch.cat([each.weight for each in projections])
    return weight_ND, None if projections[0].bias is None else torch.cat([each.bias for each in projections])


class InputProjection(Linear):
    """Projection to queries, keys or values. Its weight is drawn by `initialise`, as part of its attention."""

    def reset_parameters(self) -> None:
        """Set the bias to zero."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class MultiHeadAttention(nn.Module):
    """h attention functions in parallel over learned projections, concatenated and projected (section 3.2.2).

    `query`, `key` and `value` project to all heads at once. Projections of the same input are computed in one product,
    with their weights concatenated.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        key_dim: int = 0,
        value_dim: int = 0,
        bias: bool = True,
        is_scaled: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """`key_dim`, `value_dim`: widths of one head, K and E; 0 for model_dim / num_heads. `dropout`: of weights."""
        super().__init__()
        self.num_heads = num_heads
        self.key_dim = key_dim or model_dim // num_heads
        self.value_dim = value_dim or model_dim // num_heads
        self.scale = None if is_scaled else 1.0  # None: 1 / sqrt(K)
        self.dropout = Dropout(dropout)
        self.query = InputProjection(model_dim, num_heads * self.key_dim, bias=bias)
        self.key = InputProjection(model_dim, num_heads * self.key_dim, bias=bias)
        self.value = InputProjection(model_dim, num_heads * self.value_dim, bias=bias)
        self.output = Linear(num_heads * self.value_dim, model_dim, bias=bias)

    @classmethod
    def build(cls, config: ModelConfig) -> "MultiHeadAttention":
        """The attention of a config."""
        return cls(
            config.model_dim,
            config.num_heads,
            config.head_key_dim,
            config.head_value_dim,
            config.bias,
            config.scale_attention,
            config.attention_dropout,
        )

    def _split_heads(self, x_BTD: Tensor, *widths: int) -> tuple[Tensor, ...]:
        """One tensor BHTK for each head width K, from what stands side by side."""
        batch, length, _ = x_BTD.shape
        if len(set(widths)) == 1:  # one view for all
            split = x_BTD.view(batch, length, len(widths), self.num_heads, -1)
            return tuple(part.transpose(1, 2) for part in split.unbind(2))  # unbound here, gradients are copied once
        parts = x_BTD.split_with_sizes([self.num_heads * width for width in widths], -1)
        return tuple(part.view(batch, length, self.num_heads, -1).transpose(1, 2) for part in parts)

    def _spread(self, x_1MC: Tensor, packed: Packed, *lengths: int) -> tuple[Tensor, ...]:
        """The same of rows without padding; under autocast in the type in which short ones attend."""
        if torch.is_autocast_enabled("cpu") and packed.length <= _FAST_BFLOAT16:
            x_1MC = x_1MC.to(wide(x_1MC))
        return packed.spread(x_1MC, self.num_heads, *lengths)

    def project(
        self, x_BTD: Tensor, turn: Turn | None = None, packed: Packed | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values of the same positions: self-attention. `turn`: what their places do to them.

        `packed`, here and below: x has one row for each place that is no padding.
        """
        joint = self._joint(x_BTD, self.query, self.key, self.value)
        if packed is None:
            q_BHTK, k_BHTK, v_BHTE = self._split_heads(joint, self.key_dim, self.key_dim, self.value_dim)
        else:
            lengths = packed.length, packed.num_keys, packed.num_keys
            q_BHTK, k_BHTK, v_BHTE = self._spread(joint, packed, *lengths)
        if turn is not None:
            q_BHTK, k_BHTK = turn(q_BHTK), turn(k_BHTK)
        return q_BHTK, KeysValues(k_BHTK, v_BHTE)

    def _joint(self, x_BTD: Tensor, *projections: Linear) -> Tensor:
        """Return the projections of x side by side, computed in one product."""
        return linear(x_BTD, *join_projections(projections), self.training)

    def queries(self, x_BTD: Tensor, packed: Packed | None = None) -> Tensor:
        """q_BHTK alone, where the keys come from elsewhere."""
        q = self.query(x_BTD)
        if packed is not None:
            return self._spread(q, packed, packed.length)[0]
        return self._split_heads(q, self.key_dim)[0]

    def keys_values(self, x_BSD: Tensor, packed: Packed | None = None) -> KeysValues:
        """Keys and values alone: what the decoder looks up in the encoder's output."""
        joint = self._joint(x_BSD, self.key, self.value)
        if packed is not None:
            return KeysValues(*self._spread(joint, packed, packed.num_keys, packed.num_keys))
        k_BHSK, v_BHSE = self._split_heads(joint, self.key_dim, self.value_dim)
        return KeysValues(k_BHSK, v_BHSE)

    def forward(
        self,
        q_BHTK: Tensor,
        memory: KeysValues,
        mask: Tensor | None = None,
        is_causal: bool = False,
        want_weights: bool = False,
        packed: Packed | None = None,
    ) -> Attended:
        """The heads' mixtures, projected; `is_causal` takes the last query to stand at the last key.

        The mask is boolean (True: may be attended) or, without `is_causal`, additive.
        """
        num_queries, num_keys = q_BHTK.shape[-2], memory.k_BHSK.shape[-2]
        if is_causal and num_queries == 1:
            is_causal = False  # one query at the last place sees everything
        holds_weights = want_weights or self.dropout.is_active
        if is_causal and (holds_weights or mask is not None or num_queries != num_keys):
            mask, is_causal = both(mask, causal_mask(num_queries, num_keys, q_BHTK.device)), False
        if holds_weights:
            weights_BHTS = attention_weights(q_BHTK, memory.k_BHSK, mask, self.scale)
            mixed_BHTE = self.dropout(weights_BHTS) @ memory.v_BHSE
            return Attended(self.merge_heads(mixed_BHTE, packed), weights_BHTS if want_weights else None)
        if self.training and is_short(q_BHTK, memory.k_BHSK, mask):
            mixed_BHTE = attend_short(q_BHTK, memory.k_BHSK, memory.v_BHSE, mask, is_causal, self.scale)
        else:
            mixed_BHTE = attend(q_BHTK, memory, mask, is_causal, self.scale)
        return Attended(self.merge_heads(mixed_BHTE, packed), None)

    def merge_heads(self, mixed_BHTE: Tensor, packed: Packed | None = None) -> Tensor:
        """The heads concatenated and projected: y_BTD."""
        y_BTD: Tensor = self.output(
            mixed_BHTE.transpose(1, 2).flatten(2) if packed is None else packed.pack(mixed_BHTE)
        )
        return y_BTD
