"""Scores of spans, against seqeval and by hand."""

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


def seqeval_report(truth: Sentences, found: Sentences) -> dict[str, Any]:
    """What seqeval says; it warns of what cannot be divided."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from seqeval.metrics import classification_report  # type: ignore[import-untyped]

        report: dict[str, Any] = classification_report(truth, found, output_dict=True)
    return report


@settings(max_examples=80, deadline=None)
@given(PAIRS)
def test_scores_are_those_of_seqeval(pairs: list[list[tuple[str, str]]]) -> None:
    truth, found = [[a for a, _ in pair] for pair in pairs], [[b for _, b in pair] for pair in pairs]
    if not any(find_spans(tags) for tags in truth + found):
        return  # seqeval has no report of nothing
    report, wanted = score_spans(found, truth), seqeval_report(truth, found)
    for name, score in {**report.by_type, "micro avg": report.total}.items():
        assert score.precision == pytest.approx(wanted[name]["precision"])
        assert score.recall == pytest.approx(wanted[name]["recall"])
        assert score.f1 == pytest.approx(wanted[name]["f1-score"])
        assert score.truth == wanted[name]["support"]
    assert set(report.by_type) == set(wanted) - {"micro avg", "macro avg", "weighted avg"}


@settings(max_examples=200, deadline=None)
@given(st.lists(TAGS, max_size=13))
def test_repair_keeps_the_spans_that_seqeval_sees(tags: list[str]) -> None:
    from seqeval.metrics.sequence_labeling import get_entities  # type: ignore[import-untyped]
    from seqeval.scheme import IOB2, Entities  # type: ignore[import-untyped]

    wanted = [Span(kind, start, end + 1) for kind, start, end in get_entities(tags)]
    sound = repair_tags(tags)
    assert find_spans(tags) == find_spans(sound) == wanted
    strict = [Span(one.tag, one.start, one.end) for one in Entities([sound], IOB2).entities[0]] if sound else []
    assert strict == wanted  # a strict reader of BIO sees the same: the sequence is sound


def test_figures_by_hand() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    found = [["B-PER", "O", "O", "B-LOC"], ["O", "B-PER"]]
    report = score_spans(found, truth, ["ORG"])
    assert report.by_type == {"LOC": SpanScore(1, 1, 2), "ORG": SpanScore(0, 0, 0), "PER": SpanScore(0, 2, 1)}
    assert (report.total.precision, report.total.recall, report.total.f1) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert report.signature == "scheme:BIO|mode:conlleval|average:micro|sentences:2|words:6|spans:3"
    data = report.to_json()
    assert data["f1"] == {"score": pytest.approx(1 / 3), "signature": report.signature}
    assert data["types"]["LOC"]["recall"] == 0.5 and data["spans"] == 3
    shown = str(report).splitlines()
    assert shown[0] == f"F1 33.33 % {report.signature}"
    assert shown[6].split() == ["LOC", "100.00", "50.00", "66.67", "1", "1", "2"]


def test_nothing_at_all_is_no_error() -> None:
    report = score_spans([["O"]], [["O"]])
    assert report == SpanReport({}, 1, 1) and report.total.f1 == 0.0
    assert str(report).startswith("F1 0.00 %")
