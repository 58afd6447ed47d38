"""A stack that reads one token a row, laid out flat: what most steps of search are.

The same parameters in the same sums as the modules have, without the calls between them: of a step of preset tiny for
one sentence those took two thirds. Nothing is copied, so nothing can be out of date; it is made anew for each search.
Where something is hooked to a module, or a module is not what it is by itself, there is no flat stack (`flatten` gives
None), and the modules run.

R rows, N sentences, W rows of each, S source length, T tokens so far, D model width, H heads, K head width, E head width
of values; 1 = broadcast
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

from clearhead.model.attention import KeysValues, MultiHeadAttention, attend
from clearhead.model.decoder import DecoderLayer
from clearhead.model.embedding import PositionedEmbedding
from clearhead.model.encoder import Stack
from clearhead.model.feed_forward import ACTIVATIONS, FeedForward
from clearhead.model.positions import Turn
from clearhead.model.residual import Residual

Bend = Callable[[Tensor], Tensor]


class Affine(NamedTuple):
    """x W + b, with W as a view of what a linear layer holds: `F.linear` would turn it at every call."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x_RD: Tensor) -> Tensor:
        return x_RD.mm(self.weight) if self.bias is None else torch.addmm(self.bias, x_RD, self.weight)


class Heads(NamedTuple):
    """One attention: its shape, and what stands before and behind it."""

    num_heads: int
    key_dim: int
    value_dim: int
    scale: float | None
    into: Affine
    out: Affine

    def of_self(self, x_RD: Tensor, past: KeysValues | None, mask: Tensor | None, turn: Turn | None) -> Any:
        """y_RD, and the past with these tokens behind it."""
        rows, joint = x_RD.shape[0], self.into(x_RD)
        if self.key_dim == self.value_dim:
            q, k, v = joint.view(rows, 3, self.num_heads, 1, self.key_dim).unbind(1)
        else:
            keys, values = self.num_heads * self.key_dim, self.num_heads * self.value_dim
            parts = joint.split_with_sizes([keys, keys, values], -1)
            q, k, v = (part.view(rows, self.num_heads, 1, -1) for part in parts)
        if turn is not None:
            q, k = turn(q), turn(k)
        now = KeysValues(k, v)
        past = now if past is None else past.extended(now)
        return self.out(attend(q, past, mask, False, self.scale).reshape(rows, -1)), past

    def of_source(self, x_RD: Tensor, source: KeysValues, allowed_N11S: Tensor | None) -> Tensor:
        """y_RD: the W rows of a sentence ask together."""
        num_sentences, rows = source.k_BHSK.shape[0], x_RD.shape[0]
        q_NWHK = self.into(x_RD).view(num_sentences, -1, self.num_heads, self.key_dim)
        mixed_NHWE = attend(q_NWHK.transpose(1, 2), source, allowed_N11S, False, self.scale)
        return self.out(mixed_NHWE.transpose(1, 2).reshape(rows, -1))


class Around(NamedTuple):
    """What a residual connection does before and after its sub-layer."""

    enter: Bend
    leave: Callable[[Tensor, Tensor], Tensor]


class FlatLayer(NamedTuple):
    """The parts of one layer, in their order."""

    around_self: Around
    of_self: Heads
    around_source: Around | None
    of_source: Heads | None
    around_inner: Around
    inner: Affine
    gate: Affine | None
    bend: Bend
    outer: Affine

    def think(self, x_RD: Tensor) -> Tensor:
        """The stream after the feed-forward network."""
        h_RD = self.around_inner.enter(x_RD)
        inner_RF = self.bend(self.inner(h_RD))
        if self.gate is not None:
            inner_RF = inner_RF * self.gate(h_RD)
        return self.around_inner.leave(x_RD, self.outer(inner_RF))


class Flat(NamedTuple):
    """An embedding and a stack of layers, for one token a row."""

    embedding: PositionedEmbedding
    table_VD: Tensor
    embedding_norm: Bend
    stack: Stack
    layers: tuple[FlatLayer, ...]
    norm: Bend

    def __call__(
        self,
        tokens_R: Tensor,
        position: int,
        pasts: Sequence[KeysValues],
        sources: Sequence[KeysValues] = (),
        allowed_N11S: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """hidden_RD of tokens that follow the pasts, and the pasts with them."""
        x_RD = self._embed(tokens_R, position)
        relative, rotary = self.stack.relative, self.stack.rotary
        mask = None if relative is None else relative.forward(position, 1)
        turn = None if rotary is None else rotary.forward(position, 1)
        new_pasts = []
        for number, layer in enumerate(self.layers):
            around = layer.around_self
            y_RD, past = layer.of_self.of_self(around.enter(x_RD), pasts[number] if pasts else None, mask, turn)
            new_pasts.append(past)
            x_RD = around.leave(x_RD, y_RD)
            if layer.around_source is not None and layer.of_source is not None:
                around = layer.around_source
                x_RD = around.leave(
                    x_RD, layer.of_source.of_source(around.enter(x_RD), sources[number], allowed_N11S)
                )
            x_RD = layer.think(x_RD)
        return self.norm(x_RD), tuple(new_pasts)

    def _embed(self, tokens_R: Tensor, position: int) -> Tensor:
        x_RD = F.embedding(tokens_R, self.table_VD)
        scale, positions = self.embedding.scale, self.embedding.positions
        if scale is not None:
            x_RD = x_RD * scale
        if positions is not None:
            x_RD = x_RD + positions.forward(position, 1)
        return self.embedding_norm(x_RD)


def flatten(embedding: PositionedEmbedding, stack: Stack) -> Flat | None:
    """The flat form of a stack and its embedding, or None where the modules must run: hooks, training, gradients."""
    if stack.training or torch.is_grad_enabled() or torch_module._has_any_global_hook():
        return None
    if not (_is_bare(embedding) and _is_bare(stack)) or embedding.segments is not None:
        return None
    layers = tuple(_layer(layer) for layer in stack.layers)
    return Flat(
        embedding, embedding.tokens.weight, _norm(embedding.norm or nn.Identity()), stack, layers, _norm(stack.norm)
    )


def _is_bare(module: nn.Module) -> bool:
    """Whether calling it runs its class's own `forward` and nothing else, all the way down."""
    return not (
        module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    ) and all(_is_bare(child) for child in module._modules.values() if child is not None)


def _same(x_RD: Tensor) -> Tensor:
    return x_RD


def _norm(module: nn.Module) -> Bend:
    """The usual ones by their kernel, the others by their own `forward`."""
    if type(module) is nn.Identity:
        return _same
    if type(module) is nn.LayerNorm:
        shape, weight, bias, epsilon = module.normalized_shape, module.weight, module.bias, module.eps
        return lambda x_RD: torch.layer_norm(x_RD, shape, weight, bias, epsilon)
    forward: Bend = module.forward
    return forward


def _around(residual: Residual) -> Around:
    norm = _norm(residual.norm)
    if residual.is_pre_norm:
        return Around(norm, torch.add if residual.has_skip else lambda x_RD, y_RD: y_RD)
    if norm is _same and residual.has_skip:
        return Around(_same, torch.add)
    return Around(_same, (lambda x_RD, y_RD: norm(x_RD + y_RD)) if residual.has_skip else lambda x_RD, y_RD: norm(y_RD))


def _affine(linear: nn.Linear | None) -> Any:
    return None if linear is None else Affine(linear.weight.t(), linear.bias)


def _heads(attention: MultiHeadAttention, is_self: bool) -> Heads:
    into = Affine(attention.in_weight.t(), attention.in_bias)
    if not is_self:  # queries alone
        rows = attention.num_heads * attention.key_dim
        into = Affine(into.weight[:, :rows], None if into.bias is None else into.bias[:rows])
    shape = attention.num_heads, attention.key_dim, attention.value_dim, attention.scale
    return Heads(*shape, into, _affine(attention.out))


def _layer(layer: Any) -> FlatLayer:
    feed_forward: FeedForward = layer.feed_forward
    looks_up = isinstance(layer, DecoderLayer)
    return FlatLayer(
        _around(layer.attention_residual),
        _heads(layer.attention, is_self=True),
        _around(layer.cross_residual) if looks_up else None,
        _heads(layer.cross, is_self=False) if looks_up else None,
        _around(layer.feed_forward_residual),
        _affine(feed_forward.inner),
        _affine(feed_forward.gate),
        ACTIVATIONS[feed_forward.activation],
        _affine(feed_forward.outer),
    )
