"""A stack whose stream has no mean, for one sentence: what the norms do besides is folded into the matrices.

A norm takes the mean away, divides by the deviation, and has gains and shifts. Where only norms read the stream, nobody
misses its mean: matrices that write to it are made to write none, gains and shifts go into the matrices behind them,
and what is left of a norm is one sum of squares. For a row of preset tiny that is two calls in place of six, twelve
times a token. The numbers are those of the flat stack but for their rounding.

W rows, D model width; 1 = broadcast
"""

from dataclasses import replace

from torch import Tensor

from clearhead.model.flat import Around, Bend, Flat, FlatLayer, Heads, LayerNorm, same

_LARGEST = 2**23  # numbers that are copied: with larger matrices it is not calls that count


class Centre:
    """Something, and then no mean."""

    __slots__ = ("bend",)

    def __init__(self, bend: Bend) -> None:
        self.bend = bend

    def __call__(self, x_WD: Tensor) -> Tensor:
        bent_WD = self.bend(x_WD)
        return bent_WD - bent_WD.mean(-1, keepdim=True)


class Deviation:
    """What is left of a norm: rows without a mean are divided by their deviation."""

    __slots__ = ("epsilon",)

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, x_WD: Tensor) -> Tensor:
        return x_WD * (x_WD.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()


def levelled(flat: Flat) -> Flat:
    """Such a stack, where the norms are the usual ones, at the beginning of each sub-layer; otherwise the same one."""
    if not _can_be_levelled(flat):
        return flat
    return replace(flat, embedding_norm=Centre(flat.embedding_norm), layers=tuple(map(_level_layer, flat.layers)))


def _can_be_levelled(flat: Flat) -> bool:
    arounds = [each for layer in flat.layers for each in layer.arounds()]
    norms = [flat.norm, *(each.enter for each in arounds)]
    affines = [each for layer in flat.layers for each in layer.affines() if each is not None]
    return (
        all(isinstance(each, LayerNorm) and each.arrays is not None for each in norms)
        and all(each.has_skip and each.after is same for each in arounds)
        and all(each.can_copy for each in affines)
        and sum(each.weight_ND.numel() for each in affines) <= _LARGEST
    )


def _level_layer(layer: FlatLayer) -> FlatLayer:
    around_source, of_source = layer.around_source, layer.of_source
    norm = _norm_of(layer.around_inner)
    gain_shift = norm.folded()
    return FlatLayer(
        _level_around(layer.around_self),
        _level_heads(layer.around_self, layer.of_self),
        None if around_source is None else _level_around(around_source),
        None if around_source is None or of_source is None else _level_heads(around_source, of_source),
        layer.source,
        _level_around(layer.around_inner),
        layer.inner.behind(*gain_shift),
        None if layer.gate is None else layer.gate.behind(*gain_shift),
        layer.bend,
        layer.outer.without_mean(),
    )


def _norm_of(around: Around) -> LayerNorm:
    assert isinstance(around.enter, LayerNorm)
    return around.enter


def _level_around(around: Around) -> Around:
    return around._replace(enter=Deviation(_norm_of(around).epsilon))


def _level_heads(around: Around, heads: Heads) -> Heads:
    return heads._replace(into=heads.into.behind(*_norm_of(around).folded()), out=heads.out.without_mean())
