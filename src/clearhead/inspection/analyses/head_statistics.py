"""What kind of head it is, in four numbers: how spread, how far, how much along the diagonal, how much on frames.

T queries, S keys

Does a head find the noun that a pronoun stands for? The paper's figure on "it", measured on many sentences.

Sources and targets must be the gold ones: the grammar knows which word is which.

H heads, L layers, I words looked at, J words that look
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import InspectionError
from clearhead.grammar import Pronoun
from clearhead.inspection.analyses.word_attention import word_attention
from clearhead.inspection.trace.head_ref import KINDS, HeadRef, Kind
from clearhead.inspection.trace.trace_types import Floats, Trace

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class HeadStatistics:
    """Means over the rows of one head; None where a number has no meaning."""

    part: HeadRef
    entropy: float
    """Of a row, in nats: 0 for one place, log(n) for n places alike."""
    distance: float | None
    """From the place that looks to the places looked at, in places; for patches as the crow flies. From a target to a
    source, where lengths differ, it is counted from the opposite place: as far along its own row."""
    diagonality: float | None
    """Correlation of the place that looks with the place looked at: 1 along the diagonal, -1 along the other one."""
    special: float
    """Share of the weights on start and end tokens, or the class token."""


def head_statistics(trace: Trace) -> list[HeadStatistics]:
    """One for every head, in the order of the trace."""
    found = []
    for one in trace.attention:
        distance_TS = _distances(trace, one.kind, one.weights_HTS.shape[1:])
        special_S = np.array([place.is_special for place in trace.columns(one.kind)])
        has_line = distance_TS is not None and trace.grid is None
        for head, weights_TS in enumerate(one.weights_HTS):
            statistics = HeadStatistics(
                HeadRef(one.kind, one.layer, head),
                entropy=entropy(weights_TS),
                distance=None if distance_TS is None else float((weights_TS * distance_TS).sum(1).mean()),
                diagonality=diagonality(weights_TS) if has_line else None,
                special=float(weights_TS[:, special_S].sum(1).mean()),
            )
            found.append(statistics)
    return found


def entropy(weights_TS: Floats) -> float:
    """Mean over the rows of -sum w ln w."""
    w_TS = weights_TS.astype(np.float64)
    return float(-(w_TS * np.log(np.where(w_TS > 0, w_TS, 1.0))).sum(1).mean())


def diagonality(weights_TS: Floats) -> float:
    """Correlation of row and column when a row is drawn evenly and a column by its weights; 0 where one is fixed."""
    joint_TS = weights_TS.astype(np.float64) / weights_TS.sum()
    t_T, s_S = (np.arange(length, dtype=np.float64) for length in joint_TS.shape)
    p_T, p_S = joint_TS.sum(1), joint_TS.sum(0)
    t_T, s_S = t_T - p_T @ t_T, s_S - p_S @ s_S
    spread = float(np.sqrt((p_T @ t_T**2) * (p_S @ s_S**2)))
    return float(t_T @ joint_TS @ s_S) / spread if spread > 1e-12 else 0.0


def _distances(trace: Trace, kind: Kind, shape: tuple[int, ...]) -> Doubles | None:
    """distance_TS between places; none between a text and a picture."""
    num_rows, num_columns = shape
    if trace.grid is not None:
        if kind == "cross":
            return None
        if kind == "encoder":
            return _grid_distances(trace)
    opposite_T = np.arange(num_rows, dtype=np.float64)
    if kind == "cross":
        opposite_T *= (num_columns - 1) / max(1, num_rows - 1)
    return np.abs(opposite_T[:, None] - np.arange(num_columns))


def _grid_distances(trace: Trace) -> Doubles:
    """Between patches; a class token is nowhere, and so at no distance."""
    assert trace.grid is not None
    first, columns = int(trace.grid.has_class_token), trace.grid.columns
    patches = np.arange(trace.grid.rows * columns)
    rows_P, columns_P = patches // columns, patches % columns
    distance_PP = np.hypot(rows_P[:, None] - rows_P, columns_P[:, None] - columns_P)
    return np.pad(distance_PP, ((first, 0), (first, 0)))


@dataclass(frozen=True)
class HeadAntecedent:
    """How often one head looks from a pronoun at its antecedent more than at any other word."""

    part: HeadRef
    found: float
    """Share of the pronouns whose most attended word, other than the pronoun itself, is the antecedent."""
    share: float
    """Mean weight on the antecedent."""
    chance: float
    """What `found` would be for a head that picks among those words by lot."""
    pronouns: int


def find_antecedents(traces: Sequence[Trace], pronouns: Sequence[Pronoun]) -> list[HeadAntecedent]:
    """Every head of every kind, the one that finds most first.

    encoder: from "it" to its noun in the source; decoder: while the pronoun is written, to the noun in the target;
    cross: while it is written, to the noun in the source.
    """
    if not traces:
        raise InspectionError("expected traces of sentences with a pronoun, got none")
    found = [one for kind in KINDS if kind in traces[0].kinds for one in _of_kind(traces, pronouns, kind)]
    return sorted(found, key=lambda one: (-one.found, -one.share))


def _of_kind(traces: Sequence[Trace], pronouns: Sequence[Pronoun], kind: Kind) -> list[HeadAntecedent]:
    hits, shares, chances = [], [], []
    for trace, pronoun in zip(traces, pronouns, strict=True):
        weights_LHI = word_attention(trace, kind).weights_LHJI[:, :, _row(kind, pronoun)].copy()
        noun = pronoun.target_antecedent if kind == "decoder" else pronoun.antecedent
        shares.append(weights_LHI[:, :, noun])
        last = pronoun.target_index if kind == "decoder" else weights_LHI.shape[2]  # what is not written is not seen
        if kind == "decoder":
            choices = last
        else:
            weights_LHI[:, :, pronoun.index] = -1.0
            choices = last - 1
        hits.append(weights_LHI[:, :, :last].argmax(2) == noun)
        chances.append(1 / choices)
    found_LH, share_LH = np.mean(hits, 0), np.mean(shares, 0)
    return [
        HeadAntecedent(
            HeadRef(kind, layer, head), float(found), float(share_LH[layer, head]), float(np.mean(chances)), len(traces)
        )
        for (layer, head), found in np.ndenumerate(found_LH)
    ]


def _row(kind: Kind, pronoun: Pronoun) -> int:
    return pronoun.index if kind == "encoder" else pronoun.target_index
