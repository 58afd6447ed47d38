"""The decoder for one sentence, laid out beforehand, on arrays: what its steps need is where they need it.

For one sentence a step of a small model is a hundred calls that compute next to nothing. Against the flat stack
(`flat.py`) they are calls of numpy (`arrays.py`), queries, keys and values are projected straight into one buffer of
all layers (only a change of parents copies it), and a source is read together with the projections around it: the
scores of all heads are one product with (W_q K^T), what they mix is one product with (V W_o), both made once a
sentence.

W rows, T tokens so far, S source length, L layers, D model width, H heads, K head width, J = 3*H*K, M = H*S,
V vocabulary
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.model.affine import Array
from clearhead.model.arrays import Turns, bent, can_read, embed, leave, scale_of, softmax, think
from clearhead.model.attention import KeysValues
from clearhead.model.flat import Flat, Heads

_WIDEST = 4  # times the model's width: with more scores than that, reading the source by itself is less work


class Source(NamedTuple):
    """One layer's look into the source, between its residual connection's two ends."""

    num_heads: int
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
        return cls(count, scores_DM, bias_M, mix_HSD.reshape(count * length, -1))

    def __call__(self, entered_WD: Array) -> Array:
        """What it gives to the stream."""
        scores_WM = np.dot(entered_WD, self.into_DM)
        if self.bias_M is not None:
            scores_WM += self.bias_M
        weights_WHS = softmax(scores_WM.reshape(len(entered_WD), self.num_heads, -1))
        mixed_WD: Array = np.dot(weights_WHS.reshape(len(entered_WD), -1), self.mix_MD)
        return mixed_WD


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
        heads = flat.layers[0].of_self
        self.flat, self.width, self.logits = flat, width, logits
        self.split = len(flat.layers), width, 3, heads.num_heads, heads.key_dim
        self.layers = [
            (layer, Source.of(layer.of_source, source), layer.around_source)
            for layer, source in zip(flat.layers, sources, strict=True)
            if layer.of_source is not None and layer.around_source is not None
        ]
        self.scale = scale_of(heads)
        self.turns = Turns.of(flat.stack, most)
        self.past_TLWJ = flat.table_VD.new_empty(most, len(flat.layers), width, 3 * heads.num_heads * heads.key_dim)
        self.spare_TLWJ: Tensor | None = None
        self.places_TD = flat.places(most)
        self.position = 0

    def step(self, tokens: Sequence[int], parents: Sequence[int] | None) -> Tensor:
        """logits_WV after these tokens; row i goes on where row `parents[i]` was, or row i itself."""
        if parents is not None:
            self._follow(parents)
        places, relative = self.places_TD, self.flat.stack.relative
        x_WD = embed(self.flat, tokens, None if places is None else places[self.position])
        bias_HT = None if relative is None else relative(self.position, 1)[0, :, 0].detach().numpy()
        past_TLWJ = self.past_TLWJ.numpy()[: self.position + 1]
        past_LT3WHK = past_TLWJ.reshape(-1, *self.split).transpose(1, 0, 3, 2, 4, 5)
        for number, (layer, source, around_source) in enumerate(self.layers):
            around = layer.around_self
            layer.of_self.into.few(bent(around.enter, x_WD), past_TLWJ[-1, number])
            x_WD = leave(around, x_WD, layer.of_self.out.few(self._of_self(past_LT3WHK[number], bias_HT)))
            x_WD = leave(around_source, x_WD, source(bent(around_source.enter, x_WD)))
            x_WD = leave(layer.around_inner, x_WD, think(layer, bent(layer.around_inner.enter, x_WD)))
        self.position += 1
        return self.logits(self.flat.norm(torch.from_numpy(x_WD)))

    def _follow(self, parents: Sequence[int]) -> None:
        """Each row with the past of its parent."""
        if self.spare_TLWJ is None:
            self.spare_TLWJ = torch.empty_like(self.past_TLWJ)
        rows = torch.tensor(parents)
        torch.index_select(self.past_TLWJ[: self.position], 2, rows, out=self.spare_TLWJ[: self.position])
        self.past_TLWJ, self.spare_TLWJ = self.spare_TLWJ, self.past_TLWJ

    def _of_self(self, past_T3WHK: Array, bias_HT: Array | None) -> Array:
        """What the heads mix of all tokens so far, side by side; the last ones' numbers are in the past already."""
        if self.turns is not None:
            self.turns(self.position, past_T3WHK[-1, :2])
        q_WHK1 = past_T3WHK[-1, 0, :, :, :, None] * self.scale
        k_WHTK, v_WHTK = past_T3WHK[:, 1].transpose(1, 2, 0, 3), past_T3WHK[:, 2].transpose(1, 2, 0, 3)
        scores_WHT = np.matmul(k_WHTK, q_WHK1)[..., 0]
        if bias_HT is not None:
            scores_WHT += bias_HT
        mixed_WHK: Array = np.matmul(softmax(scores_WHT)[:, :, None], v_WHTK)
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
    return Solo(flat, sources, width, most, logits)
