"""Scores of spans, compared with seqeval and with values computed by hand."""

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.readers.labelled import repair_tags
from clearhead.evaluation.labels import Span, SpanReport, SpanScore, find_spans, score_spans

TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-a-b", "B-a-b"])
PAIRS = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=11), min_size=1, max_size=7)
Sentences = list[list[str]]


def seqeval_report(gold: Sentences, predicted: Sentences) -> dict[str, Any]:
    """Return the report of seqeval without its warnings of undefined ratios."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from seqeval.metrics import classification_report  # type: ignore[import-untyped]

        report: dict[str, Any] = classification_report(gold, predicted, output_dict=True)
    return report


@settings(max_examples=80, deadline=None)
@given(PAIRS)
def test_scores_are_those_of_seqeval(pairs: list[list[tuple[str, str]]]) -> None:
    gold, predicted = [[a for a, _ in pair] for pair in pairs], [[b for _, b in pair] for pair in pairs]
    if not any(find_spans(tags) for tags in gold + predicted):
        return  # seqeval raises an error without spans
    report, expected = score_spans(predicted, gold), seqeval_report(gold, predicted)
    for name, score in {**report.by_type, "micro avg": report.total}.items():
        assert score.precision == pytest.approx(expected[name]["precision"])
        assert score.recall == pytest.approx(expected[name]["recall"])
        assert score.f1 == pytest.approx(expected[name]["f1-score"])
        assert score.gold == expected[name]["support"]
    assert set(report.by_type) == set(expected) - {"micro avg", "macro avg", "weighted avg"}


@settings(max_examples=200, deadline=None)
@given(st.lists(TAGS, max_size=13))
def test_repair_preserves_the_spans_of_seqeval(tags: list[str]) -> None:
    from seqeval.metrics.sequence_labeling import get_entities  # type: ignore[import-untyped]
    from seqeval.scheme import IOB2, Entities  # type: ignore[import-untyped]

    expected = [Span(kind, start, end + 1) for kind, start, end in get_entities(tags)]
    repaired = repair_tags(tags)
    assert find_spans(tags) == find_spans(repaired) == expected
    strict = (
        [Span(entity.tag, entity.start, entity.end) for entity in Entities([repaired], IOB2).entities[0]]
        if repaired
        else []
    )
    assert strict == expected  # strict BIO parsing gives the same spans: the repaired sequence is valid


def test_scores_computed_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["O", "B-PER"]]
    report = score_spans(predicted, gold, ["ORG"])
    assert report.by_type == {"LOC": SpanScore(1, 1, 2), "ORG": SpanScore(0, 0, 0), "PER": SpanScore(0, 2, 1)}
    assert (report.total.precision, report.total.recall, report.total.f1) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert report.signature == "scheme:BIO|mode:conlleval|average:micro|sentences:2|words:6|spans:3"
    data = report.to_json()
    assert data["f1"] == {"score": pytest.approx(1 / 3), "signature": report.signature}
    assert data["types"]["LOC"]["recall"] == 0.5 and data["spans"] == 3
    lines = str(report).splitlines()
    assert lines[0] == f"F1 33.33 % {report.signature}"
    assert lines[6].split() == ["LOC", "100.00", "50.00", "66.67", "1", "1", "2"]


def test_sentences_without_spans() -> None:
    report = score_spans([["O"]], [["O"]])
    assert report == SpanReport({}, 1, 1) and report.total.f1 == 0.0
    assert str(report).startswith("F1 0.00 %")
