"""The parts of a flat stack on arrays, for one sentence without padding; and its encoder made of them.

For few rows of a small model what counts is what a call costs, and numpy's cost a third of torch's (`affine.py`). The
parameters are those of the flat stack (`flat.py`), in the same sums.

W rows, S source length, D model width, F inner width, H heads, K head width, C = K/2 pairs, T places, J = 3*H*K;
1 = broadcast
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.model.affine import Array
from clearhead.model.flat import Around, Bend, Flat, FlatLayer, Heads, LayerNorm, same
from clearhead.model.level import Centre, Deviation


class Turns(NamedTuple):
    """Rotary positions: pair c of a head's dimensions (c, c + K/2) turns by the angle of its place."""

    cos_T1C: Array
    sin_T2C: Array  # of what stands crosswise: minus for the first half

    def __call__(self, place: int | slice, x_HTK: Array) -> None:
        """Heads of one place, or of several, turned where they stand."""
        x_HT2C = x_HTK.reshape(*x_HTK.shape[:-1], 2, -1)
        crosswise_HT2C = x_HT2C[..., ::-1, :] * self.sin_T2C[place]
        x_HT2C *= self.cos_T1C[place]
        x_HT2C += crosswise_HT2C


def turns_of(flat: Flat) -> Turns | None:
    """Of all places."""
    rotary = flat.stack.rotary
    if rotary is None:
        return None
    turn = rotary(0, len(rotary.table_LK))
    cos_TC, sin_TC = turn.cos_TC.numpy(), turn.sin_TC.numpy()
    return Turns(cos_TC[:, None].copy(), np.stack((-sin_TC, sin_TC), 1))


def places_of(flat: Flat) -> Array | None:
    """places_TD: the vectors of all places, where they are added."""
    positions = flat.embedding.positions
    return None if positions is None else positions.forward(0, len(positions.table_LD)).detach().numpy()


def can_read(flat: Flat, ids_NS: Tensor, allowed: Tensor | None = None) -> bool:
    """Whether these are ids of one sentence without padding, and numpy has the type of the stack's numbers."""
    table_VD = flat.table_VD
    return (
        len(ids_NS) == 1
        and table_VD.device.type == "cpu"
        and table_VD.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and (allowed is None or bool(allowed.all()))
    )


def read(flat: Flat, ids: Sequence[int]) -> Array:
    """hidden_SD of an encoder: all tokens see all."""
    if min(ids) < 0:
        raise IndexError(f"expected ids from 0 on, got {min(ids)}")  # numpy would count them from the end
    length, relative = len(ids), flat.stack.relative
    places_TD, turns = flat.once(places_of), flat.once(turns_of)
    x_SD = embed(flat, ids, None if places_TD is None else places_TD[:length])
    bias_HSS = None if relative is None else relative(0, length)[0].detach().numpy()
    for layer in flat.layers:
        around, heads = layer.around_self, layer.of_self
        mixed_SD = _of_all(heads, heads.into.few(bent(around.enter, x_SD)), turns, bias_HSS)
        x_SD = leave(around, x_SD, heads.out.few(mixed_SD))
        x_SD = leave(layer.around_inner, x_SD, think(layer, bent(layer.around_inner.enter, x_SD)))
    return bent(flat.norm, x_SD)


def _of_all(heads: Heads, joint_SJ: Array, turns: Turns | None, bias_HSS: Array | None) -> Array:
    """What the heads mix of all places, side by side."""
    length, keys = len(joint_SJ), 2 * heads.num_heads * heads.key_dim
    shape = length, 2, heads.num_heads, heads.key_dim
    both_2HSK = joint_SJ[:, :keys].reshape(shape).transpose(1, 2, 0, 3)
    if turns is not None:
        turns(slice(0, length), both_2HSK)
    v_HSE = joint_SJ[:, keys:].reshape(length, heads.num_heads, heads.value_dim).transpose(1, 0, 2)
    scores_HSS = np.matmul(both_2HSK[0] * scale_of(heads), both_2HSK[1].transpose(0, 2, 1))
    if bias_HSS is not None:
        scores_HSS += bias_HSS
    mixed_HSE: Array = np.matmul(softmax(scores_HSS), v_HSE)
    return mixed_HSE.transpose(1, 0, 2).reshape(length, -1)


def embed(flat: Flat, ids: Sequence[int], places: Array | None) -> Array:
    """x_WD, as `Flat.embed` has it; `places`: the vector of the place of each row, or one for all of them."""
    table_VD: Array = flat.once(_table)
    x_WD = table_VD.take(ids, 0)
    if flat.embedding.scale is not None:
        x_WD *= flat.embedding.scale
    if places is not None:
        x_WD += places
    return bent(flat.embedding_norm, x_WD)


def _table(flat: Flat) -> Array:
    return flat.table_VD.detach().numpy()


def scale_of(heads: Heads) -> float:
    """Of the scores."""
    return float(heads.key_dim**-0.5 if heads.scale is None else heads.scale)


def softmax(x: Array) -> Array:
    """Over the last axis, in place."""
    x -= np.maximum.reduce(x, -1, keepdims=True)
    np.exp(x, out=x)
    x /= np.add.reduce(x, -1, keepdims=True)
    return x


def bent(bend: Bend, x_WD: Array) -> Array:
    """By torch's own kernel; the usual norm, and what is left of it, in less time where rows are few."""
    if bend is same:
        return x_WD
    bent_WD: Array
    if type(bend) is Deviation:
        bent_WD = _divided(x_WD, bend.epsilon)
    elif type(bend) is Centre:
        bent_WD = bent(bend.bend, x_WD)
        bent_WD = bent_WD - np.add.reduce(bent_WD, 1, keepdims=True) / bent_WD.shape[1]
    elif isinstance(bend, LayerNorm) and len(x_WD) == 1 and bend.arrays is not None:
        even_D, gain_D, shift_D = bend.arrays
        bent_WD = _divided(x_WD - x_WD[0].dot(even_D), bend.epsilon)
        bent_WD *= gain_D
        bent_WD += shift_D
    else:
        bent_WD = bend(torch.from_numpy(x_WD)).numpy()
    return bent_WD


def _divided(x_WD: Array, epsilon: float) -> Array:
    """Rows without a mean by their deviation."""
    bent_WD: Array
    if len(x_WD) == 1:
        x_D = x_WD[0]
        bent_WD = x_WD * (1 / sqrt(x_D.dot(x_D) / len(x_D) + epsilon))
    else:
        squares_W = np.vecdot(x_WD, x_WD)
        squares_W /= x_WD.shape[1]
        squares_W += epsilon
        bent_WD = x_WD / np.sqrt(squares_W)[:, None]
    return bent_WD


def leave(around: Around, x_WD: Array, y_WD: Array) -> Array:
    """The stream, with what a sub-layer gave, in whose place it stands."""
    if around.has_skip:
        y_WD += x_WD
    return bent(around.after, y_WD)


def think(layer: FlatLayer, x_WD: Array) -> Array:
    """The feed-forward network."""
    inner_WF = layer.inner.few(x_WD)
    inner_WF = np.maximum(inner_WF, 0, out=inner_WF) if layer.bend is None else bent(layer.bend, inner_WF)
    if layer.gate is not None:
        inner_WF *= layer.gate.few(x_WD)
    return layer.outer.few(inner_WF)
