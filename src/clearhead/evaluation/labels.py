"""Scores of labels against the truth: accuracy, F1 averaged over the labels, and what was taken for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
