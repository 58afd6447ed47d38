"""Scores of labels against the truth: accuracy, F1 averaged over the labels, and what was taken for what.

Scores of spans against the truth: precision, recall and F1 over whole spans, all together and of each type.

A span counts as right where type, beginning and end are right. Spans are read from BIO tags as conlleval and
seqeval's default mode read them: an I-X without a B-X or I-X before it, so also after a span of another type, begins
a span of its own.
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
    """All scores of one test set."""

    labels: tuple[str, ...]
    confusion_LL: NDArray[np.int64]
    """Rows are the truth, columns what was given."""

    @property
    def examples(self) -> int:
        """How many were scored."""
        return int(self.confusion_LL.sum())

    @property
    def accuracy(self) -> float:
        """The share that is right, from 0 to 1."""
        return float(np.trace(self.confusion_LL)) / self.examples

    @property
    def f1(self) -> list[float]:
        """Of each label; 0 where a label neither occurs nor is given."""
        right = np.diag(self.confusion_LL)
        both = self.confusion_LL.sum(0) + self.confusion_LL.sum(1)
        return [2 * float(hit) / float(all_) if all_ else 0.0 for hit, all_ in zip(right, both, strict=True)]

    @property
    def macro_f1(self) -> float:
        """The mean of the F1 of the labels that occur or were given."""
        both = self.confusion_LL.sum(0) + self.confusion_LL.sum(1)
        return float(np.mean([f1 for f1, all_ in zip(self.f1, both, strict=True) if all_]))

    @property
    def signature(self) -> str:
        """What the figures were counted over."""
        return f"examples:{self.examples}|labels:{len(self.labels)}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "accuracy": {"score": self.accuracy, "signature": self.signature},
            "macro_f1": {"score": self.macro_f1, "signature": self.signature},
            "f1": dict(zip(self.labels, self.f1, strict=True)),
            "confusion": {"labels": list(self.labels), "rows_are_truth": self.confusion_LL.tolist()},
            "examples": self.examples,
        }

    def __str__(self) -> str:
        head = [
            f"accuracy {100 * self.accuracy:.2f} % {self.signature}",
            f"macro F1 {100 * self.macro_f1:.2f} % {self.signature}",
        ]
        return "\n".join([*head, f"examples {self.examples}", "", *self._table()])

    def _table(self) -> list[str]:
        """The confusion matrix with the names of the labels."""
        margin = max(map(len, (*self.labels, "truth")))
        widths = [max(len(name), 6) for name in self.labels]
        names = "  ".join(f"{name:>{width}}" for name, width in zip(self.labels, widths, strict=True))
        rows = [f"{'truth':<{margin}}  {names}      F1"]
        for name, row, f1 in zip(self.labels, self.confusion_LL, self.f1, strict=True):
            cells = "  ".join(f"{count:>{width}}" for count, width in zip(row, widths, strict=True))
            rows.append(f"{name:<{margin}}  {cells}  {100 * f1:6.2f}")
        return rows


def score_labels(given: Sequence[int], truth: Sequence[int], labels: Sequence[str]) -> LabelReport:
    """The scores of label numbers against the right ones."""
    confusion_LL = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion_LL, (np.asarray(truth), np.asarray(given)), 1)
    return LabelReport(tuple(labels), confusion_LL)


class Span(NamedTuple):
    """The words from `start` up to, not including, `end`."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class SpanScore:
    """How many spans there are, were given, and are the same."""

    right: int
    given: int
    truth: int

    @property
    def precision(self) -> float:
        """The share of the given spans that is right; 0 where none is given."""
        return self.right / self.given if self.given else 0.0

    @property
    def recall(self) -> float:
        """The share of the true spans that was found; 0 where there is none."""
        return self.right / self.truth if self.truth else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        return 2 * self.right / (self.given + self.truth) if self.right else 0.0

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        rates = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return rates | {"right": self.right, "given": self.given, "truth": self.truth}


@dataclass(frozen=True)
class SpanReport:
    """All scores of one test set."""

    by_type: Mapping[str, SpanScore]
    sentences: int
    words: int

    @property
    def total(self) -> SpanScore:
        """Over the spans of all types alike (micro average)."""
        scores = self.by_type.values()
        return SpanScore(*(sum(getattr(score, side) for score in scores) for side in ("right", "given", "truth")))

    @property
    def signature(self) -> str:
        """How the figures were counted, and over what."""
        counts = f"sentences:{self.sentences}|words:{self.words}|spans:{self.total.truth}"
        return f"scheme:BIO|mode:conlleval|average:micro|{counts}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        total = self.total
        rates = {"f1": total.f1, "precision": total.precision, "recall": total.recall}
        scores = {name: {"score": rate, "signature": self.signature} for name, rate in rates.items()}
        types = {name: score.to_json() for name, score in self.by_type.items()}
        return {**scores, "types": types, "sentences": self.sentences, "words": self.words, "spans": total.truth}

    def __str__(self) -> str:
        total = self.total
        rates = {"F1": total.f1, "precision": total.precision, "recall": total.recall}
        head = [f"{name} {100 * rate:.2f} % {self.signature}" for name, rate in rates.items()]
        return "\n".join([*head, f"sentences {self.sentences}", "", *self._table()])

    def _table(self) -> list[str]:
        """Each type in a row."""
        margin = max(map(len, (*self.by_type, "type")))
        rows = [f"{'type':<{margin}}  precision  recall      F1   right   given   truth"]
        for name, score in self.by_type.items():
            rates = f"{100 * score.precision:9.2f}  {100 * score.recall:6.2f}  {100 * score.f1:6.2f}"
            rows.append(f"{name:<{margin}}  {rates}  {score.right:6}  {score.given:6}  {score.truth:6}")
        return rows


def find_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, from left to right."""
    spans: list[Span] = []
    for place, tag in enumerate(repair_tags(tags)):
        if tag.startswith(BEGIN):
            spans.append(Span(span_type(tag), place, place + 1))
        elif tag != OUTSIDE:
            spans[-1] = spans[-1]._replace(end=place + 1)
    return spans


def score_spans(
    given: Sequence[Sequence[str]], truth: Sequence[Sequence[str]], types: Sequence[str] = ()
) -> SpanReport:
    """The scores of sentences' tags against the right ones; `types` are listed even where they do not occur."""
    counts = {name: Counter[str]() for name in types}
    for given_tags, true_tags in zip(given, truth, strict=True):
        assert len(given_tags) == len(true_tags)
        given_spans, true_spans = set(find_spans(given_tags)), set(find_spans(true_tags))
        sides = {"given": given_spans, "truth": true_spans, "right": given_spans & true_spans}
        for side, spans in sides.items():
            for span in spans:
                counts.setdefault(span.type, Counter())[side] += 1
    by_type = {name: SpanScore(c["right"], c["given"], c["truth"]) for name, c in sorted(counts.items())}
    return SpanReport(by_type, len(truth), sum(map(len, truth)))
