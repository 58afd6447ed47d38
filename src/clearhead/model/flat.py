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
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from clearhead.model.affine import Affine, Array, are_fresh, more_rows
from clearhead.model.attention import KeysValues, MultiHeadAttention, attend
from clearhead.model.embedding import PositionedEmbedding
from clearhead.model.encoder import Scope, Stack
from clearhead.model.feed_forward import ACTIVATIONS, FeedForward
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
        yield from (self.inner, self.gate, self.outer)


class Flat(NamedTuple):
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
        places = Places.of(hidden_MD[:, :1], None)
        return places.put(self.output(places.take(hidden_MD))).view(*hidden_BTD.shape[:-1], -1)

    def places(self, most: int) -> Array | None:
        """places_TD: the vectors of the first places, where they are added."""
        positions = self.embedding.positions
        return None if positions is None else positions.forward(0, most).detach().numpy()

    @property
    def most(self) -> float:
        """How many places there are."""
        added, rotary = self.embedding.positions, self.stack.rotary
        places = [] if added is None else [len(added.table_LD)]
        return min(places if rotary is None else [*places, len(rotary.table_LK)], default=float("inf"))

    @property
    def is_fresh(self) -> bool:
        """Whether everything that was copied still has the numbers of the weights."""
        return are_fresh(each for layer in self.layers for each in layer.affines()) and are_fresh([self.output])


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
    """A flat stack from one search to the next: for one short sentence making it takes a twentieth of the time.

    A module that keeps something else than weights is an exception, and this is the only one: it holds nothing of any
    input, is checked before each search, is never saved or copied, and without it only time would change. The model
    that holds it drops it when it is moved or trained, and the old numbers with it.
    """

    def __init__(self) -> None:
        self._made: tuple[Parts, Flat] | None = None

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        return Kept, ()  # a copied model has parameters of its own

    def of(self, parts: Parts, make: Callable[[], Flat]) -> Flat:
        """The one of these parts."""
        made = self._made
        if made is None or not made[0].are(parts) or not made[1].is_fresh:
            made = self._made = parts, make()
        return made[1]


def flatten(
    embedding: nn.Module, stack: Stack, kept: Kept, output: nn.Module | None = None, bias_V: nn.Parameter | None = None
) -> Flat | None:
    """The flat form of a stack and what stands before it and behind, or None where the modules themselves must run."""
    if stack.training or torch.is_grad_enabled() or torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    if not isinstance(embedding, PositionedEmbedding) or embedding.segments is not None:
        return None
    parts = _bare_parts([embedding, stack, *([] if output is None else [output])], [] if bias_V is None else [bias_V])
    return None if parts is None else kept.of(parts, partial(_lay_out, embedding, stack, output, bias_V))


def has_own(module: nn.Module, family: type[nn.Module], name: str) -> bool:
    """Whether a method is that of its family, and nobody has put another in its place."""
    return getattr(type(module), name) is getattr(family, name) and name not in module.__dict__


def _lay_out(embedding: PositionedEmbedding, stack: Stack, output: Any, bias_V: nn.Parameter | None) -> Flat:
    norm = same if embedding.norm is None else _norm(embedding.norm)
    layers = tuple(map(_flat_layer, stack.layers))
    logits = None if output is None else Affine(output.weight, bias_V)
    return Flat(embedding, embedding.tokens.weight, norm, stack, layers, _norm(stack.norm), logits)


def _bare_parts(waiting: list[nn.Module], parameters: list[nn.Parameter]) -> Parts | None:
    """These and all that is below, if calling them runs their own `forward` and nothing else, all the way down."""
    for module in waiting:
        own = module.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
            return None
        if "parametrizations" in own["_modules"]:
            return None
        if own["_parameters"]:
            parameters += [each for each in own["_parameters"].values() if each is not None]
        if own["_modules"]:
            waiting += [each for each in own["_modules"].values() if each is not None]
    return Parts(waiting, parameters, [each.data_ptr() for each in parameters])


def same(x_MD: Tensor) -> Tensor:
    """What bends nothing."""
    return x_MD


class LayerNorm:
    """The usual norm, by its kernel; and what it takes as arrays, where numpy has such numbers."""

    __slots__ = ("arrays", "bias_D", "epsilon", "shape", "weight_D")

    def __init__(self, module: nn.LayerNorm) -> None:
        self.shape, self.epsilon = module.normalized_shape, module.eps
        self.weight_D, self.bias_D = module.weight, module.bias
        self.arrays: tuple[Array, Array, Array] | None = None  # what a mean is a product with, gains and shifts
        plain = (torch.float32, torch.float64)
        if self.weight_D is not None and self.weight_D.device.type == "cpu" and self.weight_D.dtype in plain:
            gain_D, width = self.weight_D.detach().numpy(), len(self.weight_D)
            shift_D = np.zeros_like(gain_D) if self.bias_D is None else self.bias_D.detach().numpy()
            self.arrays = np.full_like(gain_D, 1 / width), gain_D, shift_D

    def __call__(self, x_MD: Tensor) -> Tensor:
        return torch.layer_norm(x_MD, self.shape, self.weight_D, self.bias_D, self.epsilon)


def _norm(module: nn.Module) -> Bend:
    """The usual one by its kernel, the others by their own `forward`."""
    if type(module) is nn.Identity:
        return same
    if type(module) is nn.LayerNorm:
        return LayerNorm(module)
    forward: Bend = module.forward
    return forward


def _around(residual: Residual) -> Around:
    norm = _norm(residual.norm)
    before, after = (norm, same) if residual.is_pre_norm else (same, norm)
    return Around(before, residual.has_skip, after)


def _affine(linear: nn.Linear) -> Affine:
    return Affine(linear.weight, linear.bias)


def _heads(attention: MultiHeadAttention, rows: int | None = None) -> Heads:
    """With all that stands side by side, or with its first rows: the queries."""
    weight, bias = attention.in_weight[:rows], attention.in_bias
    shape = attention.num_heads, attention.key_dim, attention.value_dim, attention.scale
    return Heads(*shape, Affine(weight, None if bias is None else bias[:rows]), _affine(attention.out))


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
        None if inside.activation == "relu" else ACTIVATIONS[inside.activation],
        _affine(inside.outer),
    )
