"""The decoder for one sentence, laid out beforehand: what its steps need is where they need it.

For one sentence a step of a small model is a hundred calls of a few microseconds, so what counts is their number.
Against the flat stack (`flat.py`) queries, keys and values are projected straight into one buffer of all layers (only a
change of parents copies it), and a source is read together with the projections around it: the scores of all heads are
one product with (W_q K^T), what they mix is one product with (V W_o), both made once a sentence.

W rows, T tokens so far, S source length, L layers, D model width, H heads, K head width, J = 3*H*K, V vocabulary
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from clearhead.model.attention import KeysValues
from clearhead.model.encoder import Scope
from clearhead.model.flat import Around, Flat, Heads

_WIDEST = 4  # times the model's width: with more scores than that, reading the source by itself is less work


class Source(NamedTuple):
    """One layer's look into the source, between its residual connection's two ends."""

    num_heads: int
    into_DM: Tensor  # from states to scores, M = H*S
    bias_1M: Tensor | None
    mix_MD: Tensor  # with its bias in the rows of the first head: their weights sum to 1

    @classmethod
    def of(cls, heads: Heads, source: KeysValues) -> "Source":
        """All heads of one sentence, side by side."""
        k_HSK, v_HSK = source.k_BHSK[0], source.v_BHSE[0]
        count, length, width = k_HSK.shape
        scale = width**-0.5 if heads.scale is None else heads.scale
        into_HDK = heads.into.weight_DN.view(-1, count, width).transpose(0, 1)
        scores_DM = torch.bmm(into_HDK, k_HSK.transpose(1, 2)).mul_(scale).transpose(0, 1).reshape(-1, count * length)
        bias = None
        if heads.into.bias_N is not None:
            bias = torch.bmm(k_HSK, heads.into.bias_N.view(count, width, 1)).mul_(scale).view(1, -1)
        mix_HSD = torch.bmm(v_HSK, heads.out.weight_DN.view(count, width, -1))
        if heads.out.bias_N is not None:
            mix_HSD[0] += heads.out.bias_N
        return cls(count, scores_DM, bias, mix_HSD.view(count * length, -1))

    def __call__(self, x_WD: Tensor, around: Around) -> Tensor:
        """The stream after it."""
        entered_WD, rows = around.enter(x_WD), x_WD.shape[0]
        if self.bias_1M is None:
            scores_WM = entered_WD.mm(self.into_DM)
        else:
            scores_WM = torch.addmm(self.bias_1M, entered_WD, self.into_DM)
        weights_WM = scores_WM.view(rows, self.num_heads, -1).softmax(-1).view(rows, -1)
        if around.has_skip:
            return around.after(torch.addmm(x_WD, weights_WM, self.mix_MD))
        return around.after(weights_WM.mm(self.mix_MD))


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
        self.shape = len(flat.layers), width, 3, heads.num_heads, heads.key_dim
        self.layers = [
            (layer, Source.of(layer.of_source, source), layer.around_source)
            for layer, source in zip(flat.layers, sources, strict=True)
            if layer.of_source is not None and layer.around_source is not None
        ]
        self.past_TLWJ = flat.table_VD.new_empty(most, len(flat.layers), width, 3 * heads.num_heads * heads.key_dim)
        self.spare_TLWJ: Tensor | None = None
        positions = flat.embedding.positions
        self.places = None if positions is None else positions.forward(0, most).unbind(0)
        self.embedding_scale = 1.0 if flat.embedding.scale is None else flat.embedding.scale
        self.position = 0

    def step(self, tokens: Sequence[int], parents: Sequence[int] | None) -> Tensor:
        """logits_WV after these tokens; row i goes on where row `parents[i]` was, or row i itself."""
        position, flat = self.position, self.flat
        if parents is not None:
            self._follow(parents)
        x_WD = self._embed(tokens)
        scope = flat.stack.scope_of_one(position)
        now = self.past_TLWJ[position].unbind(0)
        past = self.past_TLWJ[: position + 1].view(-1, *self.shape).permute(1, 3, 2, 4, 0, 5).unbind(0)
        for (layer, source, around_source), now_WJ, past_3WHTK in zip(self.layers, now, past, strict=True):
            around = layer.around_self
            mixed_WD = self._of_self(layer.of_self, around.enter(x_WD), now_WJ, past_3WHTK, scope)
            x_WD = around.leave(x_WD, layer.of_self.out, mixed_WD)
            x_WD = layer.think(source(x_WD, around_source))
        self.position = position + 1
        return self.logits(flat.norm(x_WD))

    def _follow(self, parents: Sequence[int]) -> None:
        """Each row with the past of its parent."""
        if self.spare_TLWJ is None:
            self.spare_TLWJ = torch.empty_like(self.past_TLWJ)
        rows = torch.tensor(parents, device=self.past_TLWJ.device)
        torch.index_select(self.past_TLWJ[: self.position], 2, rows, out=self.spare_TLWJ[: self.position])
        self.past_TLWJ, self.spare_TLWJ = self.spare_TLWJ, self.past_TLWJ

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        """x_WD, as `Flat.embed` has it."""
        table_VD = self.flat.table_VD
        if self.width == 1:
            x_WD = table_VD.narrow(0, tokens[0], 1)
        else:
            x_WD = torch.embedding(table_VD, torch.tensor(tokens, device=table_VD.device))
        if self.places is not None:
            x_WD = torch.add(self.places[self.position], x_WD, alpha=self.embedding_scale)
        elif self.embedding_scale != 1.0:
            x_WD = x_WD * self.embedding_scale
        return self.flat.embedding_norm(x_WD)

    def _of_self(self, heads: Heads, x_WD: Tensor, now_WJ: Tensor, past_3WHTK: Tensor, scope: Scope) -> Tensor:
        if heads.into.bias_N is None:
            torch.mm(x_WD, heads.into.weight_DN, out=now_WJ)
        else:
            torch.addmm(heads.into.bias_N, x_WD, heads.into.weight_DN, out=now_WJ)
        q_WHTK, k_WHTK, v_WHTK = past_3WHTK.unbind(0)
        q_WH1K = q_WHTK[:, :, -1:]
        if scope.turn is not None:
            q_WH1K = scope.turn(q_WH1K)
            k_WHTK[:, :, -1:] = scope.turn(k_WHTK[:, :, -1:])
        mixed_WH1K = scaled_dot_product_attention(q_WH1K, k_WHTK, v_WHTK, scope.mask, scale=heads.scale)
        return mixed_WH1K.reshape(self.width, -1)


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
    heads, length, positions = flat.layers[0].of_self, sources[0].k_BHSK.shape[2], flat.embedding.positions
    if positions is not None and most > len(positions.table_LD):
        return None
    if heads.key_dim != heads.value_dim or heads.num_heads * length > _WIDEST * flat.table_VD.shape[1]:
        return None
    return Solo(flat, sources, width, most, logits)
