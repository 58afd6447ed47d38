"""Statistics of attention heads: entropy, distance, diagonality, share on special tokens, and coreference accuracy.

Coreference accuracy measures how often a head attends from a pronoun to its antecedent, as the head in the paper's
figure on "its" does. The pronouns and antecedents come from the built-in grammar, so the traces must be of sources and
forced targets that the grammar generated.

T queries, S keys, P patches, H heads, L layers, I key words
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import InspectionError
from clearhead.grammar import Pronoun
from clearhead.inspection.analyses.word_attention import word_attention
from clearhead.inspection.trace.head_ref import ATTENTION_KINDS, AttentionKind, HeadRef
from clearhead.inspection.trace.trace_types import Floats, Trace

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of one head, as means over its rows (queries); None if a statistic is undefined."""

    head_ref: HeadRef
    entropy: float
    """Entropy of the weights, in nats: 0 if one key has all the weight, log(n) for n equal weights."""
    distance: float | None
    """Weighted mean distance from the query to the keys, in positions; Euclidean for patches. In encoder-decoder
    attention, the query's position is scaled to the length of the source. None between a text and an image."""
    diagonality: float | None
    """Correlation of query and key position: 1 on the diagonal, -1 on the antidiagonal. None for images."""
    special_share: float
    """Share of the weight on special tokens such as the end token, or on the class token of an image."""


def head_statistics(trace: Trace) -> list[HeadStatistics]:
    """Return the statistics of every head, in the order of the trace."""
    statistics = []
    for attention in trace.attention:
        distance_TS = _distances(trace, attention.kind, attention.weights_HTS.shape[1:])
        is_special_S = np.array([position.is_special for position in trace.key_positions(attention.kind)])
        has_diagonal = distance_TS is not None and trace.grid is None
        for head, weights_TS in enumerate(attention.weights_HTS):
            head_ref = HeadRef(attention.kind, attention.layer, head)
            distance = None if distance_TS is None else float((weights_TS * distance_TS).sum(1).mean())
            special_share = float(weights_TS[:, is_special_S].sum(1).mean())
            diagonal = diagonality(weights_TS) if has_diagonal else None
            statistics.append(HeadStatistics(head_ref, entropy(weights_TS), distance, diagonal, special_share))
    return statistics


def entropy(weights_TS: Floats) -> float:
    """Return the mean entropy of the rows, -sum w ln w, in nats."""
    w_TS = weights_TS.astype(np.float64)
    return float(-(w_TS * np.log(np.where(w_TS > 0, w_TS, 1.0))).sum(1).mean())


def diagonality(weights_TS: Floats) -> float:
    """Return the Pearson correlation of row and column index, where each cell counts with its weight.

    Returns 0 if one of the indices does not vary.
    """
    joint_TS = weights_TS.astype(np.float64) / weights_TS.sum()
    t_T, s_S = (np.arange(length, dtype=np.float64) for length in joint_TS.shape)
    p_T, p_S = joint_TS.sum(1), joint_TS.sum(0)
    t_T, s_S = t_T - p_T @ t_T, s_S - p_S @ s_S
    deviation = float(np.sqrt((p_T @ t_T**2) * (p_S @ s_S**2)))
    return float(t_T @ joint_TS @ s_S) / deviation if deviation > 1e-12 else 0.0


def _distances(trace: Trace, kind: AttentionKind, shape: tuple[int, ...]) -> Doubles | None:
    """Return distance_TS between query and key positions; None between a text and an image."""
    num_rows, num_columns = shape
    if trace.grid is not None:
        if kind == "cross":
            return None
        if kind == "encoder":
            return _grid_distances(trace)
    query_T = np.arange(num_rows, dtype=np.float64)
    if kind == "cross":
        query_T *= (num_columns - 1) / max(1, num_rows - 1)
    return np.abs(query_T[:, None] - np.arange(num_columns))


def _grid_distances(trace: Trace) -> Doubles:
    """Return the Euclidean distances between patches; 0 from and to the class token, which has no location."""
    assert trace.grid is not None
    num_class_tokens, columns = int(trace.grid.has_class_token), trace.grid.columns
    patches = np.arange(trace.grid.rows * columns)
    rows_P, columns_P = patches // columns, patches % columns
    distance_PP = np.hypot(rows_P[:, None] - rows_P, columns_P[:, None] - columns_P)
    return np.pad(distance_PP, ((num_class_tokens, 0), (num_class_tokens, 0)))


@dataclass(frozen=True)
class HeadCoreference:
    """Accuracy with which one head attends from pronouns to their antecedents."""

    head_ref: HeadRef
    accuracy: float
    """Share of the pronouns from which the antecedent gets the largest weight of all words but the pronoun itself."""
    mean_weight: float
    """Mean attention weight from the pronoun to its antecedent."""
    chance_accuracy: float
    """Expected accuracy of a head that attends to a random one of these words."""
    num_pronouns: int


def rank_heads_by_coreference(traces: Sequence[Trace], pronouns: Sequence[Pronoun]) -> list[HeadCoreference]:
    """Return the coreference accuracy of every head, the most accurate first.

    Attention is measured from the pronoun to its antecedent: in `encoder`, within the source; in `decoder`, from the
    step that predicts the pronoun to the noun in the target; in `cross`, from that step to the noun in the source.
    """
    if not traces:
        raise InspectionError("expected traces of sentences with a pronoun, got none")
    kinds = [kind for kind in ATTENTION_KINDS if kind in traces[0].kinds]
    results = [result for kind in kinds for result in _coreference_of_kind(traces, pronouns, kind)]
    return sorted(results, key=lambda result: (-result.accuracy, -result.mean_weight))


def _coreference_of_kind(
    traces: Sequence[Trace], pronouns: Sequence[Pronoun], kind: AttentionKind
) -> list[HeadCoreference]:
    """Return the coreference accuracy of every head of one kind of attention, in the order of layers and heads."""
    hits, antecedent_weights, chances = [], [], []
    for trace, pronoun in zip(traces, pronouns, strict=True):
        query_word = pronoun.index if kind == "encoder" else pronoun.target_index
        weights_LHI = word_attention(trace, kind).weights_LHJI[:, :, query_word].copy()
        noun = pronoun.target_antecedent if kind == "decoder" else pronoun.antecedent
        antecedent_weights.append(weights_LHI[:, :, noun])
        if kind == "decoder":
            num_words = num_choices = pronoun.target_index  # the pronoun and later words are masked
        else:
            num_words = weights_LHI.shape[2]
            num_choices = num_words - 1
            weights_LHI[:, :, pronoun.index] = -1.0  # excludes the pronoun itself
        hits.append(weights_LHI[:, :, :num_words].argmax(2) == noun)
        chances.append(1 / num_choices)
    accuracy_LH, weight_LH = np.mean(hits, 0), np.mean(antecedent_weights, 0)
    chance = float(np.mean(chances))
    return [
        HeadCoreference(HeadRef(kind, layer, head), float(accuracy), float(weight_LH[layer, head]), chance, len(traces))
        for (layer, head), accuracy in np.ndenumerate(accuracy_LH)
    ]
