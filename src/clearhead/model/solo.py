"""The decoder's steps for one sentence, on arrays: what they need is where they need it.

For one sentence a step of a small model is a hundred calls that compute next to nothing. Against the flat stack
(`flat.py`) they are calls of numpy (`arrays.py`), fewer where norms can be folded into matrices (`level.py`); queries,
keys and values are projected straight into one buffer of all layers (only a change of parents copies it); and a source
is read together with the projections around it: the scores of all heads are one product with (W_q K^T), what they mix
is one product with (V W_o), both made once a sentence.

W rows, T tokens so far, S source length, L layers, D model width, H heads, K head width, J = 3*H*K, M = H*S,
V vocabulary
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.model.affine import Array
from clearhead.model.arrays import bent, can_read, embed, leave, places_of, scale_of, think, turns_of
from clearhead.model.attention import KeysValues
from clearhead.model.flat import Around, Flat, FlatLayer, Heads
from clearhead.model.level import levelled

_WIDEST = 4  # times the model's width: with more scores than that, reading the source by itself is less work
_FIRST = 32  # tokens that there is room for at first
_MORE = 8  # and behind a copy: the next is often made soon
MOST_ROWS = 16


class Softmax:
    """Scores that become weights, by torch's kernel: one call in place of five of numpy, which sees the same memory."""

    __slots__ = ("_given", "_made", "num_rows", "scores_WHT", "scores_WHT1", "scores_WM", "weights_WH1T", "weights_WM")

    def __init__(self, table_VD: Tensor, rows: int, heads: int, keys: int) -> None:
        self.num_rows = rows
        self._given, self._made = table_VD.new_empty(rows, heads, keys), table_VD.new_empty(rows, heads, keys)
        self.scores_WHT: Array = self._given.numpy()
        self.scores_WHT1, self.scores_WM = self.scores_WHT[..., None], self.scores_WHT.reshape(rows, -1)
        weights_WHT: Array = self._made.numpy()
        self.weights_WH1T, self.weights_WM = weights_WHT[:, :, None], weights_WHT.reshape(rows, -1)

    def fits(self, rows: int) -> bool:
        """Whether it is for so many, and may be written to: what inference mode has made may not outside."""
        is_sealed = self._made.is_inference() and not torch.is_inference_mode_enabled()
        return self.num_rows == rows and not is_sealed

    def __call__(self) -> "Softmax":
        """With the weights of its scores; the scores stay."""
        torch.softmax(self._given, -1, out=self._made)
        return self


class Source(NamedTuple):
    """One layer's look into the source, between its residual connection's two ends."""

    into_DM: Array  # from states to scores
    bias_M: Array | None
    mix_MD: Array  # with its bias in the rows of the first head: their weights sum to 1

    @classmethod
    def of(cls, heads: Heads, source: KeysValues) -> "Source":
        """All heads of one sentence, side by side."""
        k_HSK, v_HSK = source.k_BHSK[0].numpy(), source.v_BHSE[0].numpy()
        count, length, width = k_HSK.shape
        k_HKS = k_HSK.transpose(0, 2, 1) * scale_of(heads)
        into_HDK = heads.into.weight_DN.detach().numpy().reshape(-1, count, width).transpose(1, 0, 2)
        scores_DM = np.matmul(into_HDK, k_HKS).transpose(1, 0, 2).reshape(-1, count * length)
        bias_M = None
        if heads.into.bias_N is not None:
            bias_M = np.matmul(heads.into.bias_N.detach().numpy().reshape(count, 1, width), k_HKS).reshape(-1)
        mix_HSD = np.matmul(v_HSK, heads.out.weight_DN.detach().numpy().reshape(count, width, -1))
        if heads.out.bias_N is not None:
            mix_HSD[0] += heads.out.bias_N.detach().numpy()
        return cls(scores_DM, bias_M, mix_HSD.reshape(count * length, -1))

    def __call__(self, entered_WD: Array, over: Softmax) -> Array:
        """What it gives to the stream."""
        np.dot(entered_WD, self.into_DM, over.scores_WM)
        if self.bias_M is not None:
            over.scores_WM += self.bias_M
        mixed_WD: Array = np.dot(over().weights_WM, self.mix_MD)
        return mixed_WD


class Past:
    """Queries, keys and values of all layers so far, for the rows of a sentence: written behind each other.

    States share it: who goes on from the last token writes behind it, who goes on from an earlier one copies first.
    """

    def __init__(self, flat: Flat, rows: int, capacity: int = _FIRST) -> None:
        heads, self.flat, self.filled = flat.layers[0].of_self, flat, 0
        joint = 3 * heads.num_heads * heads.key_dim
        self.tensor_TLWJ = flat.table_VD.new_empty(capacity, len(flat.layers), rows, joint)
        self.joint_TLWJ: Array = self.tensor_TLWJ.numpy()
        split_TLW3HK = self.joint_TLWJ.reshape(*self.joint_TLWJ.shape[:3], 3, heads.num_heads, heads.key_dim)
        self.turned_LTW2HK = split_TLW3HK[:, :, :, :2].swapaxes(0, 1)  # what places turn
        self.q_LTWHK1 = split_TLW3HK[:, :, :, 0, ..., None].swapaxes(0, 1)
        self.k_LWHTK, self.v_LWHTK = (split_TLW3HK[:, :, :, part].transpose(1, 2, 3, 0, 4) for part in (1, 2))

    @property
    def num_rows(self) -> int:
        return self.tensor_TLWJ.shape[2]

    def of(self, rows: Tensor, count: int) -> "Past":
        """These rows' first `count` tokens, for others to go on from."""
        made = Past(self.flat, len(rows), count + _MORE)
        torch.index_select(self.tensor_TLWJ[:count], 2, rows, out=made.tensor_TLWJ[:count])
        made.filled = count
        return made

    def behind(self, count: int) -> "Past":
        """One with room behind `count` tokens: this, or a copy."""
        capacity = len(self.tensor_TLWJ)
        if self.filled == count < capacity:
            return self
        made = Past(self.flat, self.num_rows, capacity if count < capacity else 2 * capacity)
        made.tensor_TLWJ[:count] = self.tensor_TLWJ[:count]
        made.filled = count
        return made

    def keys_values(self, count: int) -> tuple[KeysValues, ...]:
        """Of the first `count` tokens, each layer's as the flat stack and the modules take them."""
        heads = self.flat.layers[0].of_self
        joint_TLWJ = self.tensor_TLWJ[:count]
        split_TLW3HK = joint_TLWJ.view(*joint_TLWJ.shape[:3], 3, heads.num_heads, heads.key_dim)
        return tuple(KeysValues(k, v) for _, k, v in split_TLW3HK.permute(1, 3, 2, 4, 0, 5).contiguous())


class Solo:
    """The steps of one sentence: the decoder, and its looks into the source, made at the first step."""

    def __init__(self, flat: Flat, sources: Sequence[KeysValues]) -> None:
        self.flat, self.sources, self.heads = flat.once(levelled), sources, flat.layers[0].of_self
        self.scale, self.most = scale_of(self.heads), flat.most
        self.over_source: Softmax | None = None

    @cached_property
    def layers(self) -> list[tuple[FlatLayer, Source, Around]]:
        return [
            (layer, Source.of(layer.of_source, source), layer.around_source)
            for layer, source in zip(self.flat.layers, self.sources, strict=True)
            if layer.of_source is not None and layer.around_source is not None
        ]

    def start(self, rows: int) -> Past:
        """Before the first token."""
        return Past(self.flat, rows)

    def step(self, tokens: Sequence[int], past: Past) -> Tensor:
        """hidden_WD of these tokens, which are written behind the past."""
        flat, position, rows, num_heads = self.flat, past.filled, len(tokens), self.heads.num_heads
        places_TD, turns, relative = flat.once(places_of), flat.once(turns_of), flat.stack.relative
        x_WD = embed(flat, tokens, None if places_TD is None else places_TD[position])
        bias_HT = None if relative is None else relative(position, 1)[0, :, 0].detach().numpy()
        over_self, over_source = Softmax(flat.table_VD, rows, num_heads, position + 1), self.over_source
        if over_source is None or not over_source.fits(rows):
            over_source = self.over_source = Softmax(flat.table_VD, rows, num_heads, self.sources[0].k_BHSK.shape[2])
        joint_LWJ = past.joint_TLWJ[position]
        for number, (layer, source, around_source) in enumerate(self.layers):
            around = layer.around_self
            layer.of_self.into.few(bent(around.enter, x_WD), joint_LWJ[number])
            if turns is not None:
                turns(position, past.turned_LTW2HK[number, position])
            x_WD = leave(around, x_WD, layer.of_self.out.few(self._of_self(past, number, bias_HT, over_self)))
            x_WD = leave(around_source, x_WD, source(bent(around_source.enter, x_WD), over_source))
            x_WD = leave(layer.around_inner, x_WD, think(layer, bent(layer.around_inner.enter, x_WD)))
        past.filled = position + 1
        return torch.from_numpy(bent(flat.norm, x_WD))

    def _of_self(self, past: Past, number: int, bias_HT: Array | None, over: Softmax) -> Array:
        """What the heads mix of all tokens so far, side by side; the last ones' numbers are in the past already."""
        length = past.filled + 1
        q_WHK1 = past.q_LTWHK1[number, past.filled] * self.scale
        np.matmul(past.k_LWHTK[number, :, :, :length], q_WHK1, over.scores_WHT1)
        if bias_HT is not None:
            over.scores_WHT += bias_HT
        mixed_WHK: Array = np.matmul(over().weights_WH1T, past.v_LWHTK[number, :, :, :length])
        return mixed_WHK.reshape(over.num_rows, -1)


def solo(
    flat: Flat | None, sources: Sequence[KeysValues], allowed_N11S: Tensor | None, rows: int
) -> tuple[Solo, Past] | None:
    """The steps of one sentence without padding in few rows, and their start; None where they cannot be laid out so."""
    if flat is None or rows > MOST_ROWS or not can_read(flat, sources[0].k_BHSK, allowed_N11S):
        return None
    heads, length = flat.layers[0].of_self, sources[0].k_BHSK.shape[2]
    if heads.key_dim != heads.value_dim or heads.num_heads * length > _WIDEST * flat.table_VD.shape[1]:
        return None
    made = Solo(flat, sources)
    return made, made.start(rows)
