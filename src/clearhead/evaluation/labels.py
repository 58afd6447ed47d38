"""Scores of predicted labels and spans against gold ones.

Labels: accuracy, F1 per label and macro-averaged, and the confusion matrix. Spans: precision, recall and F1 over
spans, micro-averaged and per type. A span is correct if type, start and end are correct. Spans are extracted from BIO
tags as by conlleval and seqeval's default mode: an I-X that does not follow B-X or I-X starts a new span.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.readers.labelled import BEGIN, OUTSIDE, repair_tags, span_type


@dataclass(frozen=True)
class LabelReport:
    """Classification scores of one test set."""

    labels: tuple[str, ...]
    confusion_LL: NDArray[np.int64]
    """Confusion matrix: rows are gold labels, columns predicted labels."""

    @property
    def examples(self) -> int:
        """Return the number of scored examples."""
        return int(self.confusion_LL.sum())

    @property
    def accuracy(self) -> float:
        """Return the fraction of correct predictions."""
        return float(np.trace(self.confusion_LL)) / self.examples

    @property
    def f1(self) -> list[float]:
        """Return the F1 of each label, 0 for a label that is neither gold nor predicted."""
        correct_L = np.diag(self.confusion_LL)
        return [2 * float(c) / float(n) if n else 0.0 for c, n in zip(correct_L, self._occurrences_L, strict=True)]

    @property
    def macro_f1(self) -> float:
        """Return the mean F1 of the labels that are gold or predicted."""
        return float(np.mean([f1 for f1, n in zip(self.f1, self._occurrences_L, strict=True) if n]))

    @property
    def _occurrences_L(self) -> NDArray[np.int64]:
        """Gold plus predicted occurrences of each label."""
        occurrences_L: NDArray[np.int64] = self.confusion_LL.sum(0) + self.confusion_LL.sum(1)
        return occurrences_L

    @property
    def signature(self) -> str:
        """Return the counts that the scores are based on."""
        return f"examples:{self.examples}|labels:{len(self.labels)}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        return {
            "accuracy": {"score": self.accuracy, "signature": self.signature},
            "macro_f1": {"score": self.macro_f1, "signature": self.signature},
            "f1": dict(zip(self.labels, self.f1, strict=True)),
            "confusion": {"labels": list(self.labels), "rows_are_gold": self.confusion_LL.tolist()},
            "examples": self.examples,
        }

    def __str__(self) -> str:
        head = [
            f"accuracy {100 * self.accuracy:.2f} % {self.signature}",
            f"macro F1 {100 * self.macro_f1:.2f} % {self.signature}",
        ]
        return "\n".join([*head, f"examples {self.examples}", "", *self._table()])

    def _table(self) -> list[str]:
        """Return the lines of the confusion matrix and the F1 of each label."""
        margin = max(map(len, (*self.labels, "gold")))
        widths = [max(len(name), 6) for name in self.labels]
        names = "  ".join(f"{name:>{width}}" for name, width in zip(self.labels, widths, strict=True))
        rows = [f"{'gold':<{margin}}  {names}      F1"]
        for name, row, f1 in zip(self.labels, self.confusion_LL, self.f1, strict=True):
            cells = "  ".join(f"{count:>{width}}" for count, width in zip(row, widths, strict=True))
            rows.append(f"{name:<{margin}}  {cells}  {100 * f1:6.2f}")
        return rows


def score_labels(predicted: Sequence[int], gold: Sequence[int], labels: Sequence[str]) -> LabelReport:
    """Return the scores of predicted label ids against gold label ids."""
    confusion_LL = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion_LL, (np.asarray(gold), np.asarray(predicted)), 1)
    return LabelReport(tuple(labels), confusion_LL)


class Span(NamedTuple):
    """Words from `start` to `end` (exclusive) with a type."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class SpanScore:
    """Numbers of correct, predicted and gold spans."""

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Return the fraction of predicted spans that are correct, 0 without predicted spans."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Return the fraction of gold spans that were predicted, 0 without gold spans."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        return 2 * self.correct / (self.predicted + self.gold) if self.correct else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        rates = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return rates | {"correct": self.correct, "predicted": self.predicted, "gold": self.gold}


@dataclass(frozen=True)
class SpanReport:
    """Span scores of one test set."""

    by_type: Mapping[str, SpanScore]
    sentences: int
    words: int

    @property
    def total(self) -> SpanScore:
        """Return the counts over all types (micro average)."""
        scores = self.by_type.values()
        return SpanScore(*(sum(getattr(score, side) for score in scores) for side in ("correct", "predicted", "gold")))

    @property
    def signature(self) -> str:
        """Return the scheme and the counts that the scores are based on."""
        counts = f"sentences:{self.sentences}|words:{self.words}|spans:{self.total.gold}"
        return f"scheme:BIO|mode:conlleval|average:micro|{counts}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        total = self.total
        rates = {"f1": total.f1, "precision": total.precision, "recall": total.recall}
        scores = {name: {"score": rate, "signature": self.signature} for name, rate in rates.items()}
        types = {name: score.to_json() for name, score in self.by_type.items()}
        return {**scores, "types": types, "sentences": self.sentences, "words": self.words, "spans": total.gold}

    def __str__(self) -> str:
        total = self.total
        rates = {"F1": total.f1, "precision": total.precision, "recall": total.recall}
        head = [f"{name} {100 * rate:.2f} % {self.signature}" for name, rate in rates.items()]
        return "\n".join([*head, f"sentences {self.sentences}", "", *self._table()])

    def _table(self) -> list[str]:
        """Return one line per type."""
        margin = max(map(len, (*self.by_type, "type")))
        rows = [f"{'type':<{margin}}  precision  recall      F1  correct  predicted    gold"]
        for name, score in self.by_type.items():
            rates = f"{100 * score.precision:9.2f}  {100 * score.recall:6.2f}  {100 * score.f1:6.2f}"
            rows.append(f"{name:<{margin}}  {rates}  {score.correct:7}  {score.predicted:9}  {score.gold:6}")
        return rows


def find_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of one sentence, from left to right."""
    spans: list[Span] = []
    for i, tag in enumerate(repair_tags(tags)):
        if tag.startswith(BEGIN):
            spans.append(Span(span_type(tag), i, i + 1))
        elif tag != OUTSIDE:
            spans[-1] = spans[-1]._replace(end=i + 1)
    return spans


def score_spans(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], types: Sequence[str] = ()
) -> SpanReport:
    """Return the scores of predicted tags against gold tags; `types` are included even if they do not occur."""
    counts = {name: Counter[str]() for name in types}
    for predicted_tags, gold_tags in zip(predicted, gold, strict=True):
        assert len(predicted_tags) == len(gold_tags)
        predicted_spans, gold_spans = set(find_spans(predicted_tags)), set(find_spans(gold_tags))
        sides = {"predicted": predicted_spans, "gold": gold_spans, "correct": predicted_spans & gold_spans}
        for side, spans in sides.items():
            for span in spans:
                counts.setdefault(span.type, Counter())[side] += 1
    by_type = {name: SpanScore(c["correct"], c["predicted"], c["gold"]) for name, c in sorted(counts.items())}
    return SpanReport(by_type, len(gold), sum(map(len, gold)))
