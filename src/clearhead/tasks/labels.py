"""What tasks that give labels share: numbers for labels, the loss, the validation, and answers with probabilities.

N examples, L labels
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.errors import DataError
from clearhead.evaluation.labels import score_labels
from clearhead.model.loss import Loss
from clearhead.tasks.task import Validation


@dataclass(frozen=True)
class Classified:
    """The label of a text or picture, and how probable each label is."""

    label: str
    probabilities: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"label": self.label, "probabilities": self.probabilities}


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
            raise DataError(f"{place}: the label {label!r} is none of the labels trained on; these are {known}")
        numbers.append(number[label])
    return np.array(numbers, dtype=np.int64)


def label_loss(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Loss:
    """The loss of logits against the right labels, summed."""
    logits_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    smoothed = F.cross_entropy(logits_NL, labels_N, label_smoothing=smoothing, reduction="sum")
    nll = F.cross_entropy(logits_NL.detach(), labels_N, reduction="sum")
    return Loss(smoothed, nll, len(labels_N))


def log_probs(logits: Tensor) -> NDArray[np.float64]:
    """Over the last axis, wherever they were computed."""
    found: NDArray[np.float64] = logits.double().log_softmax(-1).cpu().numpy()
    return found


def label_validation(
    log_probs_NL: NDArray[np.float64], truth_N: NDArray[np.int64], labels: Sequence[str], shown: str
) -> Validation:
    """Accuracy and log-loss; `shown` is the first example as people see it."""
    loss = float(-log_probs_NL[np.arange(len(truth_N)), truth_N].mean())
    report = score_labels(log_probs_NL.argmax(1).tolist(), truth_N.tolist(), labels)
    example = (shown, labels[int(log_probs_NL[0].argmax())], labels[int(truth_N[0])])
    return Validation(loss, math.exp(min(loss, 50.0)), 100 * report.accuracy, "accuracy", report.signature, example)
