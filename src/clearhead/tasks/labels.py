"""What tasks that give labels share: numbers for labels, the loss, the validation, and answers with probabilities.

N examples, L labels
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.data.labelled import is_number
from clearhead.data.lines import excerpt
from clearhead.errors import DataError
from clearhead.evaluation.labels import score_labels
from clearhead.model.loss import Loss
from clearhead.tasks.baseline import Baseline
from clearhead.tasks.task import MIN_RECORDS, Tell, Validation

LABELS_SHOWN = 20


@dataclass(frozen=True)
class Classified:
    """The label of a text or image, and the probability of each label."""

    label: str
    """Empty for an empty text and for one that was skipped."""
    probabilities: dict[str, float]
    parts: tuple["ClassifiedPart", ...] = ()
    """The parts of a text that was too long for the model; its log-probabilities are the mean over them."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields; `parts` only for a text that was split."""
        record = {"label": self.label, "probabilities": self.probabilities}
        return {**record, "parts": [part.to_json() for part in self.parts]} if self.parts else record


@dataclass(frozen=True)
class ClassifiedPart:
    """One part of a text and its label."""

    text: str
    found: Classified

    def to_json(self) -> dict[str, Any]:
        """Return the text and the fields of its label."""
        return {"text": self.text, **self.found.to_json()}


def answers(log_probs_NL: NDArray[np.float64], labels: Sequence[str]) -> list[Classified]:
    """The best label of each, with the probability of every one."""
    found = []
    for row_L in np.exp(log_probs_NL):
        probabilities = {label: float(share) for label, share in zip(labels, row_L, strict=True)}
        found.append(Classified(labels[int(row_L.argmax())], probabilities))
    return found


def label_numbers(given: Iterable[tuple[str, str]], labels: Sequence[str]) -> NDArray[np.int64]:
    """The number of each label, which comes with the place that an error names."""
    number = {label: index for index, label in enumerate(labels)}
    numbers = []
    for place, label in given:
        if label not in number:
            known = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
            advice = "; if line 1 is a header, set data.header=yes" if place.endswith(":1") else ""
            raise DataError(f"{place}: the label {label!r} is none of the labels trained on; these are {known}{advice}")
        numbers.append(number[label])
    return np.array(numbers, dtype=np.int64)


def report_labels(labels: Iterable[str], noun: str, tell: Tell) -> dict[str, int]:
    """Return how often each label occurs, most frequent first; `tell` receives this as a table, and warnings."""
    counts = dict(sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0])))
    total = sum(counts.values())
    tell(f"{len(counts):,} labels of {total:,} {noun}:")
    shown = [(_short(label), count) for label, count in [*counts.items()][:LABELS_SHOWN]]
    width = max(len(label) for label, _ in shown)
    for label, count in shown:
        tell(f"  {label:{width}}  {count:>{len(f'{total:,}')},}  {count / total:6.1%}")
    if len(counts) > LABELS_SHOWN:
        tell(f"  ... and {len(counts) - LABELS_SHOWN:,} more")
    for warning in label_warnings(counts, noun):
        tell(f"warning: {warning}")
    return counts


def label_warnings(counts: Mapping[str, int], noun: str) -> list[str]:
    """Return a sentence for each sign that labels are not what the user means by them."""
    total, found = sum(counts.values()), list[str]()
    if 2 * len(counts) > total >= MIN_RECORDS:
        found.append(
            f"{len(counts):,} different labels of {total:,} {noun}: nearly each has a label of its own, which no "
            "classifier can learn; if this is another column, choose with --columns text=1,label=2"
        )
    elif once := [label for label, count in counts.items() if count == 1]:
        found.append(f"{_listed(once)} only once, too rarely to be learned; add {noun} or merge labels")
    if decimal := [label for label in counts if is_number(label) and not label.lstrip("+-").isdecimal()]:
        found.append(
            f"{_listed(decimal)} in decimal form: each different number is a class of its own, without order or "
            "distance; map numbers to classes first if they are measurements"
        )
    if quoted := [label for label in counts if len(label) > 1 and label[0] == label[-1] == '"']:
        found.append(
            f"{_listed(quoted)} with quotation marks, which are part of the text in TSV; if they quote a field, set "
            "data.quoting=true"
        )
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault(_plain(label), []).append(label)
    found += [f"the labels {', '.join(map(repr, same))} differ only in form" for same in alike.values() if same[1:]]
    return found


def _short(label: str) -> str:
    """Return a label for one line of a table."""
    text = " ".join(label.split())
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(labels: Sequence[str]) -> str:
    """Return the beginning of a sentence about some labels."""
    shown = ", ".join(map(excerpt, labels[:3])) + (", ..." if len(labels) > 3 else "")
    return f"{len(labels):,} labels occur ({shown})" if len(labels) > 1 else f"the label {shown} occurs"


def _plain(label: str) -> str:
    """Return a label without quotation marks, upper case, and the form of a number."""
    plain = label.strip("\"'").strip().casefold()
    return repr(float(plain)) if is_number(plain) else plain


def label_loss(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Loss:
    """The loss of logits against the right labels, summed."""
    logits_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    smoothed = F.cross_entropy(logits_NL, labels_N, label_smoothing=smoothing, reduction="sum")
    nll = F.cross_entropy(logits_NL.detach(), labels_N, reduction="sum")
    return Loss(smoothed, nll, len(labels_N))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log-probabilities over the last axis."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    found: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return found


def label_validation(
    log_probs_NL: NDArray[np.float64],
    truth_N: NDArray[np.int64],
    labels: Sequence[str],
    shown: str,
    baseline: Baseline,
) -> Validation:
    """Return accuracy and log-loss; `shown` is the first example as people see it."""
    loss = float(-log_probs_NL[np.arange(len(truth_N)), truth_N].mean())
    report = score_labels(log_probs_NL.argmax(1).tolist(), truth_N.tolist(), labels)
    example = (shown, labels[int(log_probs_NL[0].argmax())], labels[int(truth_N[0])])
    perplexity, score = math.exp(min(loss, 50.0)), 100 * report.accuracy
    return Validation(loss, perplexity, score, "accuracy", report.signature, example, baseline)
