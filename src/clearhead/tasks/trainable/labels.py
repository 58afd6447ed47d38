"""Training on labels: label counts with warnings, batches, loss and validation.

N examples, L labels
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.config import Config
from clearhead.data.readers.labelled import is_number
from clearhead.data.readers.lines import excerpt
from clearhead.evaluation.labels import score_labels
from clearhead.model.loss import Loss
from clearhead.model.output_heads import SequenceClassifier
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import Baseline, label_baseline
from clearhead.tasks.trainable.records import MIN_RECORDS
from clearhead.tasks.trainable.task import Decode, ExampleTable, ExampleTask, Validation

LABELS_SHOWN = 20


def report_labels(labels: Iterable[str], record_name: str, log: Log) -> dict[str, int]:
    """Return how often each label occurs, most frequent first; log the counts as a table, and warnings."""
    counts = dict(sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0])))
    total = sum(counts.values())
    log(f"{len(counts):,} labels of {total:,} {record_name}:")
    shown = [(_shorten(label), count) for label, count in [*counts.items()][:LABELS_SHOWN]]
    width = max(len(label) for label, _ in shown)
    for label, count in shown:
        log(f"  {label:{width}}  {count:>{len(f'{total:,}')},}  {count / total:6.1%}")
    if len(counts) > LABELS_SHOWN:
        log(f"  ... and {len(counts) - LABELS_SHOWN:,} more")
    for warning in label_warnings(counts, record_name):
        log(f"warning: {warning}")
    return counts


def label_warnings(counts: Mapping[str, int], record_name: str) -> list[str]:
    """Return a warning for each sign that a wrong column was read or that labels are unsuitable for training."""
    total, warnings = sum(counts.values()), list[str]()
    if 2 * len(counts) > total >= MIN_RECORDS:
        warnings.append(
            f"{len(counts):,} different labels of {total:,} {record_name}: nearly each has a different label, which no "
            "classifier can learn; if the label is another column, choose with --columns text=1,label=2"
        )
    elif rare := [label for label, count in counts.items() if count == 1]:
        warnings.append(f"{_enumerate(rare)} only once, too rarely to be learned; add {record_name} or merge labels")
    if decimal := [label for label in counts if is_number(label) and not label.lstrip("+-").isdecimal()]:
        warnings.append(
            f"{_enumerate(decimal)} in decimal form: each different number is a separate class, without order or "
            "distance; map numbers to classes first if they are measurements"
        )
    if quoted := [label for label in counts if len(label) > 1 and label[0] == label[-1] == '"']:
        warnings.append(
            f"{_enumerate(quoted)} with quotation marks, which are part of the text in TSV; if they quote a field, set "
            "data.quoting=true"
        )
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(_normalize(label), []).append(label)
    warnings += [
        f"the labels {', '.join(map(repr, group))} differ only in form" for group in groups.values() if len(group) > 1
    ]
    return warnings


def _shorten(label: str) -> str:
    """Return a label on one line, with at most 40 characters."""
    text = " ".join(label.split())
    return text if len(text) <= 40 else text[:37] + "..."


def _enumerate(labels: Sequence[str]) -> str:
    """Return the beginning of a warning, such as "2 labels occur (a, b)"."""
    shown = ", ".join(map(excerpt, labels[:3])) + (", ..." if len(labels) > 3 else "")
    return f"{len(labels):,} labels occur ({shown})" if len(labels) > 1 else f"the label {shown} occurs"


def _normalize(label: str) -> str:
    """Return a label in lower case without quotation marks, and a number in its normal form."""
    normalized = label.strip("\"'").strip().casefold()
    return repr(float(normalized)) if is_number(normalized) else normalized


def label_loss(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Loss:
    """Return the cross-entropy of logits against the gold labels, summed over the examples."""
    logits_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    smoothed = F.cross_entropy(logits_NL, labels_N, label_smoothing=smoothing, reduction="sum")
    nll = F.cross_entropy(logits_NL.detach(), labels_N, reduction="sum")
    return Loss(smoothed, nll, len(labels_N))


@dataclass(frozen=True)
class LabelBatch:
    """Texts or images as input of the network, and their label ids."""

    inputs: Tensor
    """ids_NS or images_NCYX."""
    labels_N: Tensor


class LabelTask(ExampleTask[LabelBatch]):
    """Base of tasks with one label per example, over one training and one validation set."""

    def __init__(
        self, config: Config, examples: ExampleTable, labels_N: NDArray[np.int64], valid_labels_N: NDArray[np.int64],
        batch_tokens: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(config, examples, len(valid_labels_N), batch_tokens)
        self.labels_N, self.valid_labels_N = labels_N, valid_labels_N

    def loss(self, model: SequenceClassifier, batch: LabelBatch) -> Loss:
        """Return the smoothed cross-entropy over the labels, summed over the examples."""
        return label_loss(model.logits(model(batch.inputs)), batch.labels_N, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of label frequencies, and accuracy of the most frequent label."""
        return label_baseline(self.labels_N, self.valid_labels_N, len(self.config.labels), "the most frequent label")

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return accuracy and log-loss; `decode` has no effect."""
        log_probs_NL, gold_N, labels = self.valid_log_probs(model), self.valid_labels_N, self.config.labels
        loss = float(-log_probs_NL[np.arange(len(gold_N)), gold_N].mean())
        report = score_labels(log_probs_NL.argmax(1).tolist(), gold_N.tolist(), labels)
        example = (self.valid_input, labels[int(log_probs_NL[0].argmax())], labels[int(gold_N[0])])
        return Validation(loss, 100 * report.accuracy, "accuracy", report.signature, example, self.baseline)

    @abstractmethod
    def valid_log_probs(self, model: Any) -> NDArray[np.float64]:
        """Return the log-probabilities of the labels of each validation example, [N, L]."""

    @property
    @abstractmethod
    def valid_input(self) -> str:
        """The first validation example for the training display."""
