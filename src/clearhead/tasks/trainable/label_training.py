"""Training on labels: a table of their counts with warnings, the loss and the validation.

N examples, L labels
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.data.readers.labelled import is_number
from clearhead.data.readers.lines import excerpt
from clearhead.evaluation.labels import score_labels
from clearhead.model.loss import Loss
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import Baseline
from clearhead.tasks.trainable.task import MIN_RECORDS, Validation

LABELS_SHOWN = 20


def report_labels(labels: Iterable[str], noun: str, tell: Log) -> dict[str, int]:
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
