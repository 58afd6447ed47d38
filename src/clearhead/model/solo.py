"""The decoder for one sentence, laid out beforehand: what its steps need is where they need it.

For one sentence a step of a small model is a hundred calls of a few microseconds, so what counts is their number.
Against the flat stack (`flat.py`) the keys and values of all layers have one buffer that grows in place (only a change
of parents copies it), and a source is read together with the projections around it: the scores of all heads are one
product with (W_q K^T), what they mix is one product with (V W_o), both made once a sentence.

W rows, T tokens so far, S source length, L layers, D model width, H heads, K head width, V vocabulary
"""

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.model.attention import KeysValues
from clearhead.model.encoder import Scope
from clearhead.model.flat import Affine, Flat, FlatLayer, Heads

_LARGEST = 2**23  # numbers of a table that is turned: 32 MiB
_WIDEST = 4  # times the model's width: with more scores than that, reading the source by itself is less work


class Turned:
    """A table laid out for products with few rows, once for many sentences: until its numbers change.

    One row of width 128 times 6,000 tokens took 51 us so, and 94 us by the table as it is; four rows 152 and 188 (CPU
    time of one thread, best of 9, while the other core was busy).
    """

    def __init__(self) -> None:
        self._source: Callable[[], Tensor | None] = lambda: None
        self._key = (0, 0)
        self._table_DV = torch.empty(0)

    def of(self, table_VD: Tensor) -> Tensor:
        """table_DV: a copy, or a view of a table that is too large to be held twice."""
        if table_VD.numel() > _LARGEST or table_VD.is_inference():
            return table_VD.t()
        key = table_VD.data_ptr(), table_VD._version
        if self._source() is not table_VD or key != self._key:
            self._table_DV = table_VD.detach().t().contiguous()
            self._source, self._key = weakref.ref(table_VD), key
        return self._table_DV


class Source(NamedTuple):
    """One layer's look into the source, between its residual connection's two ends."""

    num_heads: int
    scores: Affine  # from D to H*S
    mix: Tensor  # from H*S to D, its bias in the rows of the first head: their weights sum to 1

    @classmethod
    def of(cls, heads: Heads, source: KeysValues) -> "Source":
        """All heads of one sentence, side by side."""
        k_HSK, v_HSK = source.k_BHSK[0], source.v_BHSE[0]
        count, length, width = k_HSK.shape
        scale = width**-0.5 if heads.scale is None else heads.scale
        into_HDK = heads.into.weight.view(-1, count, width).transpose(0, 1)
        scores_DM = torch.bmm(into_HDK, k_HSK.transpose(1, 2)).mul_(scale).transpose(0, 1).reshape(-1, count * length)
        bias = None
        if heads.into.bias is not None:
            bias = torch.bmm(k_HSK, heads.into.bias.view(count, width, 1)).mul_(scale).view(1, -1)
        mix_HSD = torch.bmm(v_HSK, heads.out.weight.view(count, width, -1))
        if heads.out.bias is not None:
            mix_HSD[0] += heads.out.bias
        return cls(count, Affine(scores_DM, bias), mix_HSD.view(count * length, -1))

    def __call__(self, x_WD: Tensor) -> Tensor:
        rows = len(x_WD)
        weights_WHS = self.scores(x_WD).view(rows, self.num_heads, -1).softmax(-1)
        return weights_WHS.view(rows, -1).mm(self.mix)


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
        self.num_heads, self.key_dim = heads.num_heads, heads.key_dim
        self.scale = heads.key_dim**-0.5 if heads.scale is None else heads.scale
        self.sources = [
            Source.of(layer.of_source, source) for layer, source in zip(flat.layers, sources, strict=True)
            if layer.of_source is not None
        ]  # fmt: skip
        shape = len(flat.layers), 2, most, width, self.num_heads * self.key_dim
        self.past_L2TWD = flat.table_VD.new_empty(shape)
        self.position = 0

    def step(self, tokens: Sequence[int], parents: Sequence[int] | None) -> Tensor:
        """logits_WV after these tokens; row i goes on where row `parents[i]` was, or row i itself."""
        position, flat = self.position, self.flat
        ids_W1 = torch.tensor(tokens, device=self.past_L2TWD.device).view(-1, 1)
        if parents is not None:
            kept = self.past_L2TWD[:, :, :position]
            kept.copy_(kept.index_select(3, torch.tensor(parents, device=kept.device)))
        x_WD = flat.embed(ids_W1, position).view(self.width, -1)
        scope = flat.stack.scope_of_one(position)
        for number, (layer, source) in enumerate(zip(flat.layers, self.sources, strict=True)):
            first, second = layer.around_self, layer.around_source
            assert second is not None
            x_WD = first.leave(x_WD, self._of_self(layer, number, first.enter(x_WD), scope))
            x_WD = layer.think(second.leave(x_WD, source(second.enter(x_WD))))
        self.position = position + 1
        return self.logits(flat.norm(x_WD))

    def _of_self(self, layer: FlatLayer, number: int, x_WD: Tensor, scope: Scope) -> Tensor:
        width, heads, key_dim = self.width, self.num_heads, self.key_dim
        joint_W3D = layer.of_self.into(x_WD).view(width, 3, -1)
        past_2TWD = self.past_L2TWD[number, :, : self.position + 1]
        if scope.turn is None:
            q_WD = joint_W3D[:, 0]
            past_2TWD[:, -1].copy_(joint_W3D[:, 1:].transpose(0, 1))
        else:
            turned_W2HTK = scope.turn(joint_W3D[:, :2].reshape(width, 2 * heads, 1, key_dim)).view(width, 2, -1)
            q_WD = turned_W2HTK[:, 0]
            past_2TWD[0, -1], past_2TWD[1, -1] = turned_W2HTK[:, 1], joint_W3D[:, 2]
        k_TMK, v_TMK = past_2TWD.view(2, -1, width * heads, key_dim).unbind(0)
        scores_M1T = torch.bmm(q_WD.mul(self.scale).view(-1, 1, key_dim), k_TMK.permute(1, 2, 0))
        if scope.mask is not None:
            scores_M1T = (scores_M1T.view(width, heads, 1, -1) + scope.mask).view(width * heads, 1, -1)
        mixed_M1K = torch.bmm(scores_M1T.softmax(-1), v_TMK.transpose(0, 1))
        return layer.of_self.out(mixed_M1K.view(width, -1))


def solo(
    flat: Flat | None,
    sources: Sequence[KeysValues],
    allowed_N11S: Tensor | None,
    width: int,
    most: int,
    logits: Callable[[Tensor], Tensor],
) -> Solo | None:
    """The decoder of one sentence without padding, or None where it cannot be laid out so."""
    if flat is None or len(sources[0].k_BHSK) != 1 or not (allowed_N11S is None or bool(allowed_N11S.all())):
        return None
    heads, length = flat.layers[0].of_self, sources[0].k_BHSK.shape[2]
    if heads.key_dim != heads.value_dim or heads.num_heads * length > _WIDEST * flat.table_VD.shape[1]:
        return None
    return Solo(flat, sources, width, most, logits)
