"""A stack laid out flat, for search: the encoder that reads a source, and the steps that read one token a row.

The same parameters in the same sums as the modules have, without the calls between them: of a step of preset tiny for
one sentence those took most of the time. No number is copied; before each search it is checked that the modules and
parameters are still those that were laid out. Where something is hooked to a module, while training and for gradients
there is no flat stack (`flatten` gives None), and the modules run.

B rows, T tokens of each at once, M = B*T, S source length or keys, N sentences, W rows of each, D model width, F inner
width, H heads, K head width, E head width of values, V vocabulary; 1 = broadcast
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from clearhead.model.attention import KeysValues, MultiHeadAttention, attend
from clearhead.model.embedding import PositionedEmbedding
from clearhead.model.encoder import Scope, Stack
from clearhead.model.feed_forward import ACTIVATIONS, FeedForward
from clearhead.model.residual import Residual

Bend = Callable[[Tensor], Tensor]


class Affine(NamedTuple):
    """x W + b, with W as a view of what a linear layer holds: `F.linear` would turn it at every call."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x_MD: Tensor) -> Tensor:
        return x_MD.mm(self.weight) if self.bias is None else torch.addmm(self.bias, x_MD, self.weight)


class Heads(NamedTuple):
    """One attention: its shape, and what stands before and behind it."""

    num_heads: int
    key_dim: int
    value_dim: int
    scale: float | None
    into: Affine
    out: Affine

    def of_self(self, x_MD: Tensor, batch: int, past: KeysValues | None, scope: Scope) -> tuple[Tensor, KeysValues]:
        """y_MD, and the past with these tokens behind it."""
        q_BHTK, k_BHTK, v_BHTE = self._split(self.into(x_MD), batch)
        if scope.turn is not None:
            q_BHTK, k_BHTK = scope.turn(q_BHTK), scope.turn(k_BHTK)
        now = KeysValues(k_BHTK, v_BHTE)
        past = now if past is None else past.extended(now)
        return self._merge(attend(q_BHTK, past, scope.mask, False, self.scale)), past

    def of_source(self, x_MD: Tensor, source: KeysValues, allowed_N11S: Tensor | None) -> Tensor:
        """y_MD: the W rows of a sentence ask together."""
        q_NWHK = self.into(x_MD).view(source.k_BHSK.shape[0], -1, self.num_heads, self.key_dim)
        return self._merge(attend(q_NWHK.transpose(1, 2), source, allowed_N11S, False, self.scale))

    def _split(self, joint: Tensor, batch: int) -> tuple[Tensor, ...]:
        heads = self.num_heads
        if self.key_dim == self.value_dim:
            return joint.view(batch, -1, 3, heads, self.key_dim).permute(2, 0, 3, 1, 4).unbind(0)
        parts = joint.split_with_sizes([heads * self.key_dim, heads * self.key_dim, heads * self.value_dim], -1)
        return tuple(part.view(batch, -1, heads, part.shape[-1] // heads).transpose(1, 2) for part in parts)

    def _merge(self, mixed_BHTE: Tensor) -> Tensor:
        return self.out(mixed_BHTE.transpose(1, 2).reshape(-1, self.num_heads * self.value_dim))


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

    def think(self, x_MD: Tensor) -> Tensor:
        """The stream after the feed-forward network."""
        entered_MD = self.around_inner.enter(x_MD)
        inner_MF = self.bend(self.inner(entered_MD))
        if self.gate is not None:
            inner_MF = inner_MF * self.gate(entered_MD)
        return self.around_inner.leave(x_MD, self.outer(inner_MF))


class Flat(NamedTuple):
    """An embedding and a stack of layers: several tokens a row if all see all, one if each sees those before it."""

    embedding: PositionedEmbedding
    table_VD: Tensor
    embedding_norm: Bend
    stack: Stack
    layers: tuple[FlatLayer, ...]
    norm: Bend

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
        batch, length = ids_BT.shape
        x_BTD = self.embed(ids_BT, position)
        scope = self.stack.scope(x_BTD, pasts[0] if pasts else None, allowed)
        x_MD, new_pasts = x_BTD.view(batch * length, -1), []
        for number, layer in enumerate(self.layers):
            around = layer.around_self
            y_MD, past = layer.of_self.of_self(around.enter(x_MD), batch, pasts[number] if pasts else None, scope)
            x_MD = around.leave(x_MD, y_MD)
            new_pasts.append(past)
            if layer.around_source is not None and layer.of_source is not None:
                around = layer.around_source
                y_MD = layer.of_source.of_source(around.enter(x_MD), sources[number], allowed_N11S)
                x_MD = around.leave(x_MD, y_MD)
            x_MD = layer.think(x_MD)
        return self.norm(x_MD).view(batch, length, -1), tuple(new_pasts)

    def embed(self, ids_BT: Tensor, position: int) -> Tensor:
        """What enters the stack."""
        x_BTD = torch.embedding(self.table_VD, ids_BT)
        scale, positions = self.embedding.scale, self.embedding.positions
        if scale is not None:
            x_BTD = x_BTD * scale
        if positions is not None:
            x_BTD = x_BTD + positions.forward(position, ids_BT.shape[1])
        return self.embedding_norm(x_BTD)


class Parts(NamedTuple):
    """All modules and parameters that a flat stack was made of, and where the numbers lie."""

    modules: list[nn.Module]
    parameters: list[nn.Parameter]
    places: list[int]

    def are(self, others: "Parts") -> bool:
        """Whether these are the same objects, with their numbers where they were."""
        return (
            self.places == others.places
            and len(self.modules) == len(others.modules)
            and all(map(is_, self.modules, others.modules))
            and all(map(is_, self.parameters, others.parameters))
        )


class Kept:
    """A flat stack from one search to the next: for one short sentence making it takes a twentieth of the time."""

    def __init__(self) -> None:
        self._made: tuple[Parts, Flat] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kept":
        return Kept()  # a copied model has parameters of its own

    def of(self, parts: Parts, make: Callable[[], Flat]) -> Flat:
        """The one of these parts."""
        made = self._made
        if made is None or not made[0].are(parts):
            made = self._made = parts, make()
        return made[1]


def flatten(embedding: nn.Module, stack: Stack, kept: Kept) -> Flat | None:
    """The flat form of a stack and what stands before it, or None where the modules themselves must run."""
    if stack.training or torch.is_grad_enabled() or torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    if not isinstance(embedding, PositionedEmbedding) or embedding.segments is not None:
        return None
    parts = _bare_parts(embedding, stack)
    return None if parts is None else kept.of(parts, partial(_lay_out, embedding, stack))


def _lay_out(embedding: PositionedEmbedding, stack: Stack) -> Flat:
    norm = _same if embedding.norm is None else _norm(embedding.norm)
    layers = tuple(map(_flat_layer, stack.layers))
    return Flat(embedding, embedding.tokens.weight, norm, stack, layers, _norm(stack.norm))


def _bare_parts(*modules: nn.Module) -> Parts | None:
    """All that is below them, if calling them runs their own `forward` and nothing else, all the way down."""
    waiting: list[nn.Module] = [*modules]
    parameters: list[nn.Parameter] = []
    for module in waiting:
        own = module.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
            return None
        parameters += [each for each in own["_parameters"].values() if each is not None]
        waiting += [each for each in own["_modules"].values() if each is not None]
    return Parts(waiting, parameters, [each.data_ptr() for each in parameters])


def _same(x_MD: Tensor) -> Tensor:
    return x_MD


def _norm(module: nn.Module) -> Bend:
    """The usual one by its kernel, the others by their own `forward`."""
    if type(module) is nn.Identity:
        return _same
    if type(module) is nn.LayerNorm:
        shape, weight, bias, epsilon = module.normalized_shape, module.weight, module.bias, module.eps
        return lambda x_MD: torch.layer_norm(x_MD, shape, weight, bias, epsilon)
    forward: Bend = module.forward
    return forward


def _around(residual: Residual) -> Around:
    norm = _norm(residual.norm)
    if residual.is_pre_norm:
        return Around(norm, torch.add if residual.has_skip else _only_second)
    if residual.has_skip:
        return Around(_same, lambda x_MD, y_MD: norm(x_MD + y_MD))
    return Around(_same, lambda x_MD, y_MD: norm(y_MD))


def _only_second(x_MD: Tensor, y_MD: Tensor) -> Tensor:
    return y_MD


def _affine(linear: nn.Linear) -> Affine:
    return Affine(linear.weight.t(), linear.bias)


def _heads(attention: MultiHeadAttention, rows: int | None = None) -> Heads:
    """With all that stands side by side, or with its first rows: the queries."""
    weight, bias = attention.in_weight[:rows], attention.in_bias
    shape = attention.num_heads, attention.key_dim, attention.value_dim, attention.scale
    return Heads(*shape, Affine(weight.t(), None if bias is None else bias[:rows]), _affine(attention.out))


def _flat_layer(layer: Any) -> FlatLayer:
    inside: FeedForward = layer.feed_forward
    cross: MultiHeadAttention | None = getattr(layer, "cross", None)
    return FlatLayer(
        _around(layer.attention_residual),
        _heads(layer.attention),
        None if cross is None else _around(layer.cross_residual),
        None if cross is None else _heads(cross, cross.num_heads * cross.key_dim),
        _around(layer.feed_forward_residual),
        _affine(inside.inner),
        None if inside.gate is None else _affine(inside.gate),
        torch.relu_ if inside.activation == "relu" else ACTIVATIONS[inside.activation],
        _affine(inside.outer),
    )
