"""Labels that a model predicts, with their probabilities.

N examples, L labels
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError


@dataclass(frozen=True)
class Classification:
    """The label of a text or image, and the probability of each label."""

    label: str
    """Empty for an empty text and for one that was skipped."""
    probabilities: dict[str, float]
    parts: tuple["ClassificationPart", ...] = ()
    """The parts of a text that was too long for the model; its log-probabilities are the mean over them."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields; `parts` only for a text that was split."""
        record = {"label": self.label, "probabilities": self.probabilities}
        return {**record, "parts": [part.to_json() for part in self.parts]} if self.parts else record


@dataclass(frozen=True)
class ClassificationPart:
    """One part of a text and its label."""

    text: str
    found: Classification

    def to_json(self) -> dict[str, Any]:
        """Return the text and the fields of its label."""
        return {"text": self.text, **self.found.to_json()}


def to_classifications(log_probs_NL: NDArray[np.float64], labels: Sequence[str]) -> list[Classification]:
    """The best label of each, with the probability of every one."""
    found = []
    for row_L in np.exp(log_probs_NL):
        probabilities = {label: float(share) for label, share in zip(labels, row_L, strict=True)}
        found.append(Classification(labels[int(row_L.argmax())], probabilities))
    return found


def label_ids(given: Iterable[tuple[str, str]], labels: Sequence[str]) -> NDArray[np.int64]:
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


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log-probabilities over the last axis."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    found: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return found
