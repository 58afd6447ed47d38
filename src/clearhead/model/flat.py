"""A stack laid out flat, for search: the encoder that reads a source, and the steps that read one token a row.

The same parameters in the same sums as the modules have, without the calls between them: of a step of preset tiny for
one sentence those took most of the time. Before each search it is checked that the modules and parameters are still
those that were laid out, where they were, and that matrices laid out for their kernel (`Affine`) have the numbers of
now; plain attributes, such as the number of heads, are read once. Where something is hooked to a module or computes its
weights, while training and for gradients there is no flat stack (`flatten` gives None), and the modules run.

B rows, T tokens of each at once, M of these B*T places that are no padding, S source length or keys, N sentences,
W rows of each, D model width, F inner width, H heads, K head width, E head width of values, V vocabulary; 1 = broadcast
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from clearhead.model.affine import Affine, more_rows
from clearhead.model.attention import KeysValues, MultiHeadAttention, attend, join_projections
from clearhead.model.embedding import OutputProjection, PositionedEmbedding
from clearhead.model.encoder import Scope, Stack
from clearhead.model.feed_forward import ACTIVATIONS, FeedForward
from clearhead.model.kept import Kept
from clearhead.model.residual import Residual

Bend = Callable[[Tensor], Tensor]


# A batch is read without its padding from this share of padding on: what is left out has to pay for two copies a layer.
_MUCH_PADDING = 0.08


class Places(NamedTuple):
    """Which of the B*T places of a batch have a row of their own: all, or those that are no padding."""

    batch: int
    length: int
    rows: int  # with some behind that nobody looks at
    real_M: Tensor | None = None
    row_of: Tensor | None = None  # of each of the B*T places

    @classmethod
    def of(cls, ids_BT: Tensor, allowed: Tensor | None) -> "Places":
        """`allowed`: True where there is no padding, if there is any."""
        batch, length = ids_BT.shape
        if ids_BT.device.type != "cpu":
            return cls(batch, length, batch * length)
        if length > 1 and allowed is not None and allowed.numel() == batch * length:
            is_real = allowed.flatten()
            real_M = is_real.nonzero()[:, 0]
            if 0 < len(real_M) < (1 - _MUCH_PADDING) * batch * length:
                rows = more_rows(len(real_M))
                more = real_M[:1].expand(rows - len(real_M))
                return cls(batch, length, rows, torch.cat((real_M, more)), (is_real.cumsum(0) - 1).clamp_(min=0))
        return cls(batch, length, more_rows(batch * length))

    def take(self, x_BTD: Tensor) -> Tensor:
        """x_MD, from anything that has B*T places in their order."""
        count = self.batch * self.length
        if self.real_M is not None:
            return x_BTD.reshape(count, -1).index_select(0, self.real_M)
        if self.rows == count:
            return x_BTD.reshape(count, -1)
        x_MD = x_BTD.new_empty(self.rows, x_BTD.numel() // count)
        x_MD[:count].view(x_BTD.shape).copy_(x_BTD)
        x_MD[count:].zero_()
        return x_MD

    def put(self, x_MD: Tensor) -> Tensor:
        """x_BTD; padding has the numbers of some row, which nobody looks at."""
        x_MD = x_MD[: self.batch * self.length] if self.row_of is None else x_MD.index_select(0, self.row_of)
        return x_MD.view(self.batch, self.length, -1)


class Heads(NamedTuple):
    """One attention: its shape, and what stands before and behind it."""

    num_heads: int
    key_dim: int
    value_dim: int
    scale: float | None
    into: Affine
    out: Affine

    def of_self(self, x_MD: Tensor, places: Places, past: KeysValues | None, scope: Scope) -> tuple[Tensor, KeysValues]:
        """What the heads have mixed, side by side, and the past with these tokens behind it."""
        q_BHTK, k_BHTK, v_BHTE = self._split(places.put(self.into(x_MD)))
        if scope.turn is not None:
            q_BHTK, k_BHTK = scope.turn(q_BHTK), scope.turn(k_BHTK)
        now = KeysValues(k_BHTK, v_BHTE)
        past = now if past is None else past.followed(now)
        return places.take(attend(q_BHTK, past, scope.mask, False, self.scale).transpose(1, 2)), past

    def of_source(self, x_MD: Tensor, places: Places, source: KeysValues, allowed_N11S: Tensor | None) -> Tensor:
        """What the heads have mixed: the W rows of a sentence ask together."""
        q_NWHK = places.put(self.into(x_MD)).view(source.k_BHSK.shape[0], -1, self.num_heads, self.key_dim)
        mixed_NHWE = attend(q_NWHK.transpose(1, 2), source, allowed_N11S, False, self.scale)
        return places.take(mixed_NHWE.transpose(1, 2))

    def keys_values(self, joint_NSJ: Tensor) -> KeysValues:
        """Of a source, laid out for the many look-ups to come: greedy decoding at preset tiny gains 9 %."""
        (batch, length, _), heads = joint_NSJ.shape, self.num_heads
        if self.key_dim == self.value_dim:
            both_2NHSK = joint_NSJ.view(batch, length, 2, heads, self.key_dim).permute(2, 0, 3, 1, 4).contiguous()
            return KeysValues(*both_2NHSK.unbind(0))
        parts = joint_NSJ.split_with_sizes([heads * self.key_dim, heads * self.value_dim], -1)
        return KeysValues(*(part.view(batch, length, heads, -1).transpose(1, 2).contiguous() for part in parts))

    def _split(self, joint_BTJ: Tensor) -> tuple[Tensor, ...]:
        (batch, length, _), heads = joint_BTJ.shape, self.num_heads
        if self.key_dim == self.value_dim:
            return joint_BTJ.view(batch, length, 3, heads, self.key_dim).permute(2, 0, 3, 1, 4).unbind(0)
        parts = joint_BTJ.split_with_sizes([heads * self.key_dim, heads * self.key_dim, heads * self.value_dim], -1)
        return tuple(part.view(batch, length, heads, part.shape[-1] // heads).transpose(1, 2) for part in parts)


class Around(NamedTuple):
    """What a residual connection does before its sub-layer, and after it."""

    enter: Bend
    has_skip: bool
    after: Bend

    def leave(self, x_MD: Tensor, out: Affine, y_MF: Tensor) -> Tensor:
        """The stream, with the sub-layer's last projection."""
        return self.after(out.onto(x_MD, y_MF) if self.has_skip else out(y_MF))


class FlatLayer(NamedTuple):
    """The parts of one layer, in their order."""

    around_self: Around
    of_self: Heads
    around_source: Around | None
    of_source: Heads | None
    source: Affine | None  # keys and values of it
    around_inner: Around
    inner: Affine
    gate: Affine | None
    bend: Bend | None  # None: relu
    outer: Affine

    def think(self, x_MD: Tensor) -> Tensor:
        """The stream after the feed-forward network."""
        entered_MD = self.around_inner.enter(x_MD)
        inner_MF = self.inner.relu(entered_MD) if self.bend is None else self.bend(self.inner(entered_MD))
        if self.gate is not None:
            inner_MF = inner_MF * self.gate(entered_MD)
        return self.around_inner.leave(x_MD, self.outer, inner_MF)

    def affines(self) -> Iterator[Affine | None]:
        """All that it multiplies by."""
        for heads in (self.of_self, self.of_source):
            if heads is not None:
                yield from (heads.into, heads.out)
        yield from (self.source, self.inner, self.gate, self.outer)


@dataclass(frozen=True, eq=False)
class Flat:
    """An embedding and a stack of layers: several tokens a row if all see all, one if each sees those before it."""

    embedding: PositionedEmbedding
    table_VD: Tensor
    embedding_norm: Bend
    stack: Stack
    layers: tuple[FlatLayer, ...]
    norm: Bend
    output: Affine | None  # from states to logits

    def __call__(
        self,
        ids_BT: Tensor,
        allowed: Tensor | None = None,
        position: int = 0,
        pasts: Sequence[KeysValues] = (),
        sources: Sequence[KeysValues] = (),
        allowed_N11S: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """hidden_BTD of tokens that follow the pasts, and the pasts with them; `allowed`: which keys they may see."""
        x_BTD, places = self.embed(ids_BT, position), Places.of(ids_BT, allowed)
        scope = self.stack.scope(x_BTD, pasts[0] if pasts else None, allowed)
        x_MD, new_pasts = places.take(x_BTD), []
        for number, layer in enumerate(self.layers):
            around = layer.around_self
            mixed, past = layer.of_self.of_self(around.enter(x_MD), places, pasts[number] if pasts else None, scope)
            x_MD = around.leave(x_MD, layer.of_self.out, mixed)
            new_pasts.append(past)
            if layer.around_source is not None and layer.of_source is not None:
                around = layer.around_source
                mixed = layer.of_source.of_source(around.enter(x_MD), places, sources[number], allowed_N11S)
                x_MD = around.leave(x_MD, layer.of_source.out, mixed)
            x_MD = layer.think(x_MD)
        return places.put(self.norm(x_MD)), tuple(new_pasts)

    def sources(self, states_NSD: Tensor) -> Iterator[KeysValues]:
        """Each layer's keys and values of an encoder's states."""
        places = Places.of(states_NSD[:, :, 0], None)
        states_MD = places.take(states_NSD)
        for layer in self.layers:
            assert layer.of_source is not None and layer.source is not None
            yield layer.of_source.keys_values(places.put(layer.source(states_MD)))

    def embed(self, ids_BT: Tensor, position: int) -> Tensor:
        """What enters the stack."""
        x_BTD = torch.embedding(self.table_VD, ids_BT)
        scale, positions = self.embedding.scale, self.embedding.positions
        if scale is not None:
            x_BTD = x_BTD * scale
        if positions is not None:
            x_BTD = x_BTD + positions.forward(position, ids_BT.shape[1])
        return self.embedding_norm(x_BTD)

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """logits_BTV, of a stack that has an output."""
        assert self.output is not None
        hidden_MD = hidden_BTD.flatten(0, -2)
        if more_rows(len(hidden_MD)) == len(hidden_MD):
            return self.output(hidden_MD).view(*hidden_BTD.shape[:-1], -1)
        places = Places.of(hidden_MD[:, :1], None)
        return places.put(self.output(places.take(hidden_MD))).view(*hidden_BTD.shape[:-1], -1)

    @property
    def is_fresh(self) -> bool:
        """Whether everything that was copied still has the numbers of the weights."""
        affines = (each for layer in self.layers for each in layer.affines())
        return all(each.is_fresh for each in (*affines, self.output) if each is not None)


def flatten(
    embedding: nn.Module,
    stack: Stack,
    kept: Kept[Flat],
    output: OutputProjection | None = None,
) -> Flat | None:
    """The flat form of a stack and what stands before it and behind, or None where the modules themselves must run."""
    if stack.training or torch.is_grad_enabled() or torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    if not isinstance(embedding, PositionedEmbedding) or embedding.segments is not None:
        return None
    modules = [embedding, stack] if output is None else [embedding, stack, output]
    return kept.of(modules, partial(_lay_out, embedding, stack, output))


def has_own(module: nn.Module, family: type[nn.Module], name: str) -> bool:
    """Whether a method is that of its family, and nobody has put another in its place."""
    return getattr(type(module), name) is getattr(family, name) and name not in module.__dict__


def _lay_out(embedding: PositionedEmbedding, stack: Stack, output: OutputProjection | None) -> Flat:
    norm = same if embedding.norm is None else _norm(embedding.norm)
    layers = tuple(map(_flat_layer, stack.layers))
    logits = None if output is None else Affine(output.weight, output.bias)
    return Flat(embedding, embedding.tokens.weight, norm, stack, layers, _norm(stack.norm), logits)


def same(x_MD: Tensor) -> Tensor:
    """What bends nothing."""
    return x_MD


def _norm(module: nn.Module) -> Bend:
    """Return the norm's `forward`; the identity as a plain function."""
    if type(module) is nn.Identity:
        return same
    forward: Bend = module.forward
    return forward


def _around(residual: Residual) -> Around:
    norm = _norm(residual.norm)
    before, after = (norm, same) if residual.is_pre_norm else (same, norm)
    return Around(before, residual.has_skip, after)


def _affine(linear: nn.Linear) -> Affine:
    return Affine(linear.weight, linear.bias)


def _heads(attention: MultiHeadAttention, *projections: nn.Linear) -> Heads:
    """An attention whose input goes through these projections."""
    shape = attention.num_heads, attention.key_dim, attention.value_dim, attention.scale
    return Heads(*shape, _joined(*projections), _affine(attention.output))


def _joined(*projections: nn.Linear) -> Affine:
    """One product for several projections of the same input."""
    if len(projections) == 1:
        return _affine(projections[0])
    with torch.inference_mode(False), torch.no_grad():
        weight_ND, bias_N = join_projections(projections)
    parts = [part for each in projections for part in (each.weight, each.bias) if part is not None]
    return Affine(weight_ND, bias_N, parts)


def _flat_layer(layer: Any) -> FlatLayer:
    inside: FeedForward = layer.feed_forward
    own: MultiHeadAttention = layer.self_attention
    cross: MultiHeadAttention | None = getattr(layer, "cross_attention", None)
    return FlatLayer(
        _around(layer.self_attention_residual),
        _heads(own, own.query, own.key, own.value),
        None if cross is None else _around(layer.cross_attention_residual),
        None if cross is None else _heads(cross, cross.query),
        None if cross is None else _joined(cross.key, cross.value),
        _around(layer.feed_forward_residual),
        _affine(inside.w1),
        None if inside.w3 is None else _affine(inside.w3),
        None if inside.activation == "relu" else ACTIVATIONS[inside.activation],
        _affine(inside.w2),
    )
