"""Scores of spans against the truth: precision, recall and F1 over whole spans, all together and of each type.

A span counts as right where type, beginning and end are right. Spans are read from BIO tags as conlleval and
seqeval's default mode read them: an I-X without a B-X or I-X before it, so also after a span of another type, begins
a span of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from clearhead.data.readers.tagged import BEGIN, OUTSIDE, sound_tags, tag_type


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
    for place, tag in enumerate(sound_tags(tags)):
        if tag.startswith(BEGIN):
            spans.append(Span(tag_type(tag), place, place + 1))
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
