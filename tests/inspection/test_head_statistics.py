"""Head statistics, alignment and coreference accuracy, compared with independently computed values."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import clearhead
from clearhead import grammar
from clearhead.errors import ClearheadError
from clearhead.inspection.analyses.head_statistics import (
    HeadStatistics,
    diagonality,
    entropy,
    head_statistics,
    rank_heads_by_coreference,
)
from clearhead.inspection.analyses.word_attention import rank_heads_by_alignment, word_attention
from clearhead.inspection.trace.head_ref import AttentionKind, HeadRef
from clearhead.inspection.trace.trace_types import Floats, Trace, TracedAttention
from tests.inspection.small_models import TEXT, small_model, write_image
from tests.trained_model import Trained


def with_heads(trace: Trace, kind: AttentionKind, *heads: NDArray[Any]) -> Trace:
    """Return the trace with these heads as its only layer."""
    weights_HTS = np.stack(heads).astype(np.float32)
    return replace(trace, attention=(TracedAttention(kind, 0, weights_HTS, np.ones(weights_HTS.shape[1:], bool)),))


def statistics(trace: Trace, kind: AttentionKind, *heads: NDArray[Any]) -> list[HeadStatistics]:
    return head_statistics(with_heads(trace, kind, *heads))


def test_statistics_of_simple_heads() -> None:
    trace = small_model("transformer").trace(TEXT, target="The dog")
    size = len(trace.source)
    diagonal, uniform, antidiagonal = np.eye(size), np.full((size, size), 1 / size), np.eye(size)[::-1]
    to_end = np.tile(np.eye(size)[-1], (size, 1))
    results = statistics(trace, "encoder", diagonal, uniform, antidiagonal, to_end)
    assert [result.head_ref for result in results] == [HeadRef("encoder", 0, head) for head in range(4)]
    np.testing.assert_allclose([result.entropy for result in results], [0, np.log(size), 0, 0], atol=1e-5)
    np.testing.assert_allclose([result.diagonality for result in results], [1, 0, -1, 0], atol=1e-5)  # type: ignore[arg-type]
    np.testing.assert_allclose(
        [result.special_share for result in results], [1 / size, 1 / size, 1 / size, 1], atol=1e-5
    )
    assert results[0].distance == 0 and results[3].distance == pytest.approx(np.mean(range(size)))


def test_entropy_and_diagonality_of_any_weights() -> None:
    """The references are torch's entropy, and numpy's correlation of positions repeated by integer weights."""
    counts_TS = np.random.default_rng(2).integers(0, 7, (5, 11))
    counts_TS[:, 0] += 60 - counts_TS.sum(1)  # rows with equal sums
    weights_TS = (counts_TS / 60).astype(np.float32)
    rows = torch.distributions.Categorical(torch.from_numpy(weights_TS))
    expected_T = rows.entropy()  # type: ignore[no-untyped-call]
    assert entropy(weights_TS) == pytest.approx(float(expected_T.mean()), abs=1e-5)
    pairs = np.array([(t, s) for (t, s), count in np.ndenumerate(counts_TS) for _ in range(count)])
    assert diagonality(weights_TS) == pytest.approx(np.corrcoef(pairs.T)[0, 1], abs=1e-6)


def test_distance_between_texts_is_from_the_scaled_position() -> None:
    trace = small_model("transformer").trace(TEXT, target="The dog")
    rows, columns = len(trace.inputs), len(trace.source)
    first = np.tile(np.eye(columns)[0], (rows, 1))
    assert statistics(trace, "cross", first)[0].distance == pytest.approx((columns - 1) / 2)


def test_distance_between_patches_is_two_dimensional(tmp_path: Path) -> None:
    trace = small_model("patches").trace_image(write_image(tmp_path))
    weights = np.eye(10)
    weights[1] = np.eye(10)[9]  # from the upper left to the lower right of 3x3
    weights[4] = np.eye(10)[0]  # to the class token
    result = statistics(trace, "encoder", weights)[0]
    assert result.distance == pytest.approx(np.sqrt(8) / 10) and result.diagonality is None
    assert result.special_share == pytest.approx(2 / 10)
    captions = small_model("captions").trace_image(write_image(tmp_path))
    assert all((result.distance is None) is (result.head_ref.name == "cross") for result in head_statistics(captions))


def gold_weights(trace: Trace, links: Sequence[tuple[int, int]]) -> Floats:
    """Return a cross-attention head that attends to the first token of the first gold word of each target word."""
    weights_TS = np.zeros((len(trace.inputs), len(trace.source)), dtype=np.float32)
    for row, position in enumerate(trace.outputs):
        source = min((i for i, j in links if j == position.word), default=-1)
        columns = [number for number, position in enumerate(trace.source) if position.word == source]
        weights_TS[row, columns[0] if source >= 0 else -1] = 1
    return weights_TS


def test_the_best_aligning_head_is_ranked_first(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    examples = list(grammar.generate(4, seed=2, split="test"))
    traces = [model.trace(example.source, example.target) for example in examples]
    one_to_one = [[(min(i for i, k in example.alignment if k == j), j) for j in {j for _, j in example.alignment}]
                  for example in examples]  # fmt: skip
    traces_with_heads = []
    for trace, links in zip(traces, one_to_one, strict=True):
        gold = gold_weights(trace, links)
        traces_with_heads.append(with_heads(trace, "cross", np.full_like(gold, 1 / gold.shape[1]), gold))
    ranking = rank_heads_by_alignment([word_attention(trace) for trace in traces_with_heads], one_to_one)
    assert ranking[0].head_ref == HeadRef("cross", 0, 1)
    words = sum(len(grammar.split_words(example.target)) for example in examples)
    linked = sum(map(len, one_to_one))
    assert ranking[0].error_rate == pytest.approx(1 - 2 * linked / (words + linked))
    assert [head.head_ref for head in ranking if head.error_rate < 0.5] == [HeadRef("cross", 0, 1), HeadRef("cross", 0)]
    with pytest.raises(ClearheadError, match="got none"):
        rank_heads_by_alignment([], [])


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_best_coreference_head_is_ranked_first(kind: AttentionKind, trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    examples = [example for example in grammar.generate(3, seed=1, split="test", distance=(3, 6)) if example.pronoun]
    traces = [model.trace(example.source, example.target) for example in examples]
    pronouns = [example.pronoun for example in examples if example.pronoun]
    traces_with_heads = []
    for trace, pronoun in zip(traces, pronouns, strict=True):
        rows = trace.source if kind == "encoder" else trace.outputs
        row = pronoun.index if kind == "encoder" else pronoun.target_index
        noun = pronoun.target_antecedent if kind == "decoder" else pronoun.antecedent
        weights_TS = np.full((len(rows), len(trace.key_positions(kind))), 0.01, dtype=np.float32)
        blind_TS = weights_TS.copy()
        for number, position in enumerate(rows):
            for column, key in enumerate(trace.key_positions(kind)):
                if position.word == row and key.word == noun:
                    weights_TS[number, column] = 0.3
                elif position.word == row and kind != "decoder" and key.word == pronoun.index:
                    weights_TS[number, column] = 9.0  # on the pronoun itself, which does not count
                elif position.word == row and key.word not in (noun, -1):
                    blind_TS[number, column] = 0.5
        traces_with_heads.append(with_heads(trace, kind, blind_TS, weights_TS))
    ranking = rank_heads_by_coreference(traces_with_heads, pronouns)
    assert [head.head_ref.head for head in ranking] == [1, 0]
    assert ranking[0].accuracy == 1 and ranking[1].accuracy == 0 and ranking[0].num_pronouns == len(examples)
    counts = [pronoun.target_index if kind == "decoder" else len(grammar.split_words(example.source)) - 1
              for example, pronoun in zip(examples, pronouns, strict=True)]  # fmt: skip
    assert ranking[0].chance_accuracy == pytest.approx(np.mean([1 / count for count in counts]))


def test_word_attention_of_every_kind_sums_over_tokens(trained: Trained) -> None:
    trace = clearhead.load(trained.folder).trace("The small dog sees the old cat.", "Der kleine Hund sieht die Katze.")
    for kind in trace.kinds:
        attention = word_attention(trace, kind)
        rows = trace.source if kind == "encoder" else trace.outputs
        assert attention.target_words == grammar.split_words(
            trace.source_text if kind == "encoder" else trace.target_text
        )
        for j in range(len(attention.target_words)):
            for i in range(len(attention.source_words)):
                cells = [sum(float(trace.weights(kind, 0, 1)[t, s]) for s, key in enumerate(trace.key_positions(kind))
                             if key.word == i) for t, position in enumerate(rows) if position.word == j]  # fmt: skip
                assert attention.weights_LHJI[0, 1, j, i] == pytest.approx(np.mean(cells), abs=1e-6)
