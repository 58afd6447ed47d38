"""The decoder for one sentence, laid out beforehand, on arrays: what its steps need is where they need it.

For one sentence a step of a small model is a hundred calls that compute next to nothing. Against the flat stack
(`flat.py`) they are calls of numpy (`arrays.py`), fewer where norms can be folded into matrices (`level.py`); queries,
keys and values are projected straight into one buffer of all layers (only a change of parents copies it); and a source
is read together with the projections around it: the scores of all heads are one product with (W_q K^T), what they mix
is one product with (V W_o), both made once a sentence.

W rows, T tokens so far, S source length, L layers, D model width, H heads, K head width, J = 3*H*K, M = H*S,
V vocabulary
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.model.affine import Array
from clearhead.model.arrays import Turns, bent, can_read, embed, leave, scale_of, think
from clearhead.model.attention import KeysValues
from clearhead.model.flat import Flat, Heads
from clearhead.model.level import levelled

_WIDEST = 4  # times the model's width: with more scores than that, reading the source by itself is less work


class Softmax:
    """Scores that become weights, by torch's kernel: one call in place of five of numpy, which sees the same memory."""

    __slots__ = ("_given", "_made", "scores_WHT", "scores_WHT1", "scores_WM", "weights_WH1T", "weights_WM")

    def __init__(self, table_VD: Tensor, rows: int, heads: int, keys: int) -> None:
        self._given, self._made = table_VD.new_empty(rows, heads, keys), table_VD.new_empty(rows, heads, keys)
        self.scores_WHT: Array = self._given.numpy()
        self.scores_WHT1, self.scores_WM = self.scores_WHT[..., None], self.scores_WHT.reshape(rows, -1)
        weights_WHT: Array = self._made.numpy()
        self.weights_WH1T, self.weights_WM = weights_WHT[:, :, None], weights_WHT.reshape(rows, -1)

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
    """Queries, keys and values of all layers so far: as they are written, and as attention takes them."""

    def __init__(self, table_VD: Tensor, most: int, layers: int, width: int, heads: Heads) -> None:
        size = 3 * heads.num_heads * heads.key_dim
        self.tensor_TLWJ = table_VD.new_empty(most, layers, width, size)
        self.joint_TLWJ: Array = self.tensor_TLWJ.numpy()
        split_TLW3HK = self.joint_TLWJ.reshape(most, layers, width, 3, heads.num_heads, heads.key_dim)
        self.turned_LTW2HK = split_TLW3HK[:, :, :, :2].swapaxes(0, 1)  # what places turn
        self.q_LTWHK1 = split_TLW3HK[:, :, :, 0, ..., None].swapaxes(0, 1)
        self.k_LWHTK, self.v_LWHTK = (split_TLW3HK[:, :, :, part].transpose(1, 2, 3, 0, 4) for part in (1, 2))

    def follow(self, other: "Past", parents: Sequence[int], count: int) -> None:
        """Each row has the first `count` tokens of its parent there."""
        rows = torch.tensor(parents)
        torch.index_select(other.tensor_TLWJ[:count], 2, rows, out=self.tensor_TLWJ[:count])


class Solo:
    """The rows of one sentence on their way. A step changes what is kept: there is no way back to an earlier one."""

    def __init__(
        self,
        flat: Flat,
        sources: Sequence[KeysValues],
        width: int,
        most: int,
        logits: Callable[[Tensor], Tensor],
    ) -> None:
        """`most`: tokens that may be given to a row; `logits`: of states."""
        self.flat, self.width, self.logits, self.heads = flat, width, logits, flat.layers[0].of_self
        self.layers = [
            (layer, Source.of(layer.of_source, source), layer.around_source)
            for layer, source in zip(flat.layers, sources, strict=True)
            if layer.of_source is not None and layer.around_source is not None
        ]
        self.over_source = Softmax(flat.table_VD, width, self.heads.num_heads, sources[0].k_BHSK.shape[2])
        self.scale = scale_of(self.heads)
        self.turns = Turns.of(flat.stack, most)
        self.new_past = partial(Past, flat.table_VD, most, len(flat.layers), width, self.heads)
        self.past, self.spare = self.new_past(), None if width == 1 else self.new_past()
        self.places_TD = flat.places(most)
        self.position = 0

    def step(self, tokens: Sequence[int], parents: Sequence[int] | None) -> Tensor:
        """logits_WV after these tokens; row i goes on where row `parents[i]` was, or row i itself."""
        if parents is not None and self.spare is not None:
            self.spare.follow(self.past, parents, self.position)
            self.past, self.spare = self.spare, self.past
        flat, position = self.flat, self.position
        places_TD, relative = self.places_TD, flat.stack.relative
        x_WD = embed(flat, tokens, None if places_TD is None else places_TD[position])
        bias_HT = None if relative is None else relative(position, 1)[0, :, 0].detach().numpy()
        over_self = Softmax(flat.table_VD, self.width, self.heads.num_heads, position + 1)
        joint_LWJ = self.past.joint_TLWJ[position]
        for number, (layer, source, around_source) in enumerate(self.layers):
            around = layer.around_self
            layer.of_self.into.few(bent(around.enter, x_WD), joint_LWJ[number])
            x_WD = leave(around, x_WD, layer.of_self.out.few(self._of_self(number, bias_HT, over_self)))
            x_WD = leave(around_source, x_WD, source(bent(around_source.enter, x_WD), self.over_source))
            x_WD = leave(layer.around_inner, x_WD, think(layer, bent(layer.around_inner.enter, x_WD)))
        self.position = position + 1
        return self.logits(torch.from_numpy(bent(flat.norm, x_WD)))

    def _of_self(self, number: int, bias_HT: Array | None, over: "Softmax") -> Array:
        """What the heads mix of all tokens so far, side by side; the last ones' numbers are in the past already."""
        past, position = self.past, self.position
        if self.turns is not None:
            self.turns(position, past.turned_LTW2HK[number, position])
        q_WHK1, length = past.q_LTWHK1[number, position] * self.scale, position + 1
        np.matmul(past.k_LWHTK[number, :, :, :length], q_WHK1, over.scores_WHT1)
        if bias_HT is not None:
            over.scores_WHT += bias_HT
        mixed_WHK: Array = np.matmul(over().weights_WH1T, past.v_LWHTK[number, :, :, :length])
        return mixed_WHK.reshape(self.width, -1)


def solo(
    flat: Flat | None,
    sources: Sequence[KeysValues],
    allowed_N11S: Tensor | None,
    width: int,
    most: int,
    logits: Callable[[Tensor], Tensor],
) -> Solo | None:
    """The decoder of one sentence without padding, or None where it cannot be laid out so."""
    if flat is None or most > flat.most or not can_read(flat, sources[0].k_BHSK, allowed_N11S):
        return None
    heads, length = flat.layers[0].of_self, sources[0].k_BHSK.shape[2]
    if heads.key_dim != heads.value_dim or heads.num_heads * length > _WIDEST * flat.table_VD.shape[1]:
        return None
    return Solo(flat.once(levelled), sources, width, most, logits)
